//! The set that products are computed with: the best that the processor has and that was measured, or what a variable says.

use std::fmt;
use std::sync::LazyLock;

/// The variable that lowers the choice, or turns on what was not measured.
const VARIABLE: &str = "GGML_KERNELS";

/// Instruction sets, from the least to the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// ggml's kernels.
    None,
    /// Plain Rust, which is slower than ggml's.
    Plain,
    Avx2,
    AvxVnni,
    Avx512,
    /// That of all ARM processors of 64 bits. Neither it nor what follows was measured.
    Neon,
    DotProd,
    I8mm,
}

impl Level {
    /// All in this order: what the variable calls them, and what people do.
    pub(crate) const ALL: [(Self, &str, &str); 8] = [
        (Self::None, "none", "those of ggml"),
        (Self::Plain, "plain", "plain Rust"),
        (Self::Avx2, "avx2", "AVX2 with FMA and F16C"),
        (Self::AvxVnni, "avx-vnni", "AVX-VNNI"),
        (Self::Avx512, "avx512", "AVX-512 with VNNI"),
        (Self::Neon, "neon", "NEON"),
        (Self::DotProd, "dotprod", "NEON with dotprod"),
        (Self::I8mm, "i8mm", "NEON with dotprod and i8mm"),
    ];

    fn all() -> impl DoubleEndedIterator<Item = Self> {
        Self::ALL.into_iter().map(|(level, ..)| level)
    }

    /// What the variable calls it.
    fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Whether the processor has it.
    fn is_there(self) -> bool {
        self == Self::None || with_set!(self, _s => ()).is_some()
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::ALL[*self as usize].2)
    }
}

/// What the processor has, except plain Rust, which is there for tests.
fn best() -> Level {
    Level::all().rev().find(|level| *level > Level::Plain && level.is_there()).unwrap_or(Level::None)
}

/// The level, and why.
static CHOICE: LazyLock<(Level, String)> =
    LazyLock::new(|| choose(best(), std::env::var_os(VARIABLE).as_deref().and_then(std::ffi::OsStr::to_str)));

fn choose(best: Level, variable: Option<&str>) -> (Level, String) {
    let usual = |why| (if best < Level::Neon { best } else { Level::None }, why);
    let Some(name) = variable else {
        return usual(if best < Level::Neon {
            "the best that the processor has".to_owned()
        } else {
            format!("{best} was not measured; {VARIABLE}={} turns it on", best.name())
        });
    };
    match Level::all().find(|level| level.name() == name) {
        Some(level) if level <= best.max(Level::Plain) && level.is_there() => {
            (level, format!("{VARIABLE} is `{name}`; the processor has {best}"))
        }
        Some(level) => usual(format!("{VARIABLE} is `{name}`, but the processor lacks {level}")),
        None => {
            let names = Level::ALL.map(|(_, name, _)| name).join(", ");
            usual(format!("{VARIABLE} is `{name}`, which is none of {names}"))
        }
    }
}

/// The set that is used.
pub(crate) fn level() -> Level {
    CHOICE.0
}

/// Which instructions the kernels use, and why: a line for people.
///
/// The best that the processor has are used; on ARM, where nothing was measured, ggml's own kernels. The variable
/// `GGML_KERNELS` lowers the choice, or turns it on: `none` (ggml's), `plain`, `avx2`, `avx-vnni` or `avx512`, and on ARM
/// `neon`, `dotprod` or `i8mm`. It is read once.
///
/// ```
/// println!("kernels: {}", kernels::describe());
/// ```
pub fn describe() -> String {
    let (level, why) = &*CHOICE;
    format!("{level} ({why})")
}

/// Evaluates an expression for the set of a level, if the processor has it.
macro_rules! with_set {
    ($level:expr, $s:ident => $f:expr) => {{
        use $crate::matmul::set::{self, Level};
        match $level {
            Level::Plain => Some(set::plain::Plain).map(|$s| $f),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => set::avx::Avx2::new().map(|$s| $f),
            #[cfg(target_arch = "x86_64")]
            Level::AvxVnni => set::avx::AvxVnni::new().map(|$s| $f),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => set::avx512::Avx512::new().map(|$s| $f),
            #[cfg(target_arch = "aarch64")]
            Level::Neon => set::neon::NeonAlone::new().map(|$s| $f),
            #[cfg(target_arch = "aarch64")]
            Level::DotProd => set::neon::NeonDot::new().map(|$s| $f),
            #[cfg(target_arch = "aarch64")]
            Level::I8mm => set::neon::NeonI8mm::new().map(|$s| $f),
            _ => None,
        }
    }};
}
pub(crate) use with_set;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// All that the processor has.
    pub(crate) fn levels() -> impl Iterator<Item = Level> {
        Level::all().filter(|&level| level > Level::None && level.is_there())
    }

    #[test]
    fn the_variable_lowers_the_choice() {
        assert_eq!(choose(Level::Avx512, None), (Level::Avx512, "the best that the processor has".to_owned()));
        assert_eq!(choose(Level::Avx512, Some("none")).0, Level::None);
        assert_eq!(choose(Level::None, Some("plain")).0, Level::Plain);
        let (level, why) = choose(Level::Plain, Some("avx512"));
        assert_eq!(
            (level, &*why),
            (Level::Plain, "GGML_KERNELS is `avx512`, but the processor lacks AVX-512 with VNNI")
        );
        let (level, why) = choose(Level::Avx2, Some("sse"));
        assert!(level == Level::Avx2 && why.contains("`sse`, which is none of none, plain, avx2"), "{why}");
        assert_eq!(choose(Level::Avx2, Some("neon")).0, Level::Avx2, "that of another processor");
        let (level, why) = choose(Level::DotProd, None);
        assert_eq!(
            (level, &*why),
            (Level::None, "NEON with dotprod was not measured; GGML_KERNELS=dotprod turns it on")
        );
        // Tests run all of them; who expects some reads this line (`cargo xtask cross`).
        println!("sets: {}", levels().map(Level::name).collect::<Vec<_>>().join(", "));
        assert!(Level::all().is_sorted() && Level::all().enumerate().all(|(i, level)| i == level as usize));
        let lowered = levels().map(|level| choose(best(), Some(level.name())).0);
        assert!(lowered.eq(levels()), "each that the processor has can be asked for");
    }
}
