//! What a template is made of.

/// An expression, with the line where it stands.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) expr: Expr,
    pub(super) line: usize,
    /// How many expressions are inside each other.
    pub(super) height: u32,
}

#[derive(Debug)]
pub(super) enum Expr {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Box<str>),
    Name(Box<str>),
    List(Vec<Node>),
    Tuple(Vec<Node>),
    Dict(Vec<(Node, Node)>),
    Attr(Box<Node>, Box<str>),
    Item(Box<Node>, Box<Node>),
    Slice(Box<Node>, [Option<Box<Node>>; 3]),
    Call(Box<Node>, CallArgs),
    Filter(Box<Node>, Box<str>, CallArgs),
    /// A test; `true` if its result is negated.
    Test(Box<Node>, Box<str>, CallArgs, bool),
    Neg(Box<Node>),
    Plus(Box<Node>),
    Not(Box<Node>),
    Binary(&'static str, Box<Node>, Box<Node>),
    Compare(Box<Node>, Vec<(&'static str, Node)>),
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
    /// Condition, then, else.
    If(Box<Node>, Box<Node>, Option<Box<Node>>),
}

#[derive(Debug, Default)]
pub(super) struct CallArgs {
    pub(super) positional: Vec<Node>,
    pub(super) named: Vec<(Box<str>, Node)>,
}

/// What is assigned to.
#[derive(Debug)]
pub(super) enum Target {
    Name(Box<str>),
    Attr(Box<str>, Box<str>),
    Tuple(Vec<Target>),
}

#[derive(Debug)]
pub(super) struct Macro {
    pub(super) name: Box<str>,
    /// Parameters with their defaults.
    pub(super) params: Vec<(Box<str>, Option<Node>)>,
    pub(super) body: Vec<Stmt>,
}

#[derive(Debug)]
pub(super) struct For {
    pub(super) target: Target,
    pub(super) items: Node,
    pub(super) filter: Option<Node>,
    pub(super) body: Vec<Stmt>,
    pub(super) otherwise: Vec<Stmt>,
}

/// Filters with their arguments.
pub(super) type Filters = Vec<(Box<str>, CallArgs)>;

#[derive(Debug)]
pub(super) enum Stmt {
    Data(Box<str>),
    Print(Node),
    For(Box<For>),
    /// Conditions with what they guard, and what is left.
    If(Vec<(Node, Vec<Stmt>)>, Vec<Stmt>),
    Set(Target, Node),
    SetBlock(Target, Filters, Vec<Stmt>),
    With(Vec<(Target, Node)>, Vec<Stmt>),
    FilterBlock(Filters, Vec<Stmt>),
    /// The index of a macro.
    Macro(usize),
    Break,
    Continue,
    /// A block of its own.
    Scope(Vec<Stmt>),
}

/// A parsed template.
#[derive(Debug)]
pub(super) struct Ast {
    pub(super) body: Vec<Stmt>,
    pub(super) macros: Vec<Macro>,
}
