//! Structs of options: `X::new(required).with_y(value)`.

/// Defines a struct of options. `new` takes what is required. Each `with_…` line defines a setter, the field that it
/// sets, and the field's default, which may use the arguments of `new`. With `into`, the setter takes all that converts
/// into the field's type. With `; if …`, setter and field exist under that condition. If nothing is required, [`Default`]
/// is the same as `new`. Fields are public to be read.
macro_rules! options {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident $(<$life:lifetime>)? $(<const $n:ident: usize>)? {
            $(#[$about:meta])*
            new($($required:ident: $r_type:ty),*);
            $(
                $(#[$doc:meta])*
                $with:ident($field:ident: $type:ty = $default:expr $(, $into:ident)? $(; if $cfg:meta)?);
            )*
        }
    ) => {
        $(#[$attribute])*
        #[non_exhaustive]
        pub struct $name $(<$life>)? $(<const $n: usize>)? {
            $(
                #[doc = "Given to [`new`](Self::new)."]
                pub $required: $r_type,
            )*
            $(
                $(#[cfg($cfg)])?
                #[doc = concat!("Set by [`", stringify!($with), "`](Self::", stringify!($with), ").")]
                pub $field: $type,
            )*
        }

        impl $(<$life>)? $(<const $n: usize>)? $name $(<$life>)? $(<$n>)? {
            $(#[$about])*
            pub fn new($($required: $r_type),*) -> Self {
                Self { $($(#[cfg($cfg)])? $field: $default,)* $($required,)* }
            }

            $($(#[cfg($cfg)])? $crate::options::options! {
                @with $($into)?
                $(#[$doc])*
                #[doc = ""]
                #[doc = concat!("The default is `", stringify!($default), "`.")]
                $with $field $type
            })*
        }

        $crate::options::options!(@default [$($required)*] $name $(<$life>)? $(<const $n>)?);
    };
    (@with $(#[$doc:meta])* $with:ident $field:ident $type:ty) => {
        $(#[$doc])*
        #[must_use]
        pub fn $with(mut self, $field: $type) -> Self {
            self.$field = $field;
            self
        }
    };
    (@with into $(#[$doc:meta])* $with:ident $field:ident $type:ty) => {
        $(#[$doc])*
        #[must_use]
        pub fn $with(mut self, $field: impl Into<$type>) -> Self {
            self.$field = $field.into();
            self
        }
    };
    (@default [] $name:ident $(<$life:lifetime>)? $(<const $n:ident>)?) => {
        #[allow(single_use_lifetimes, reason = "the struct's name is used by its setters")]
        impl $(<$life>)? $(<const $n: usize>)? Default for $name $(<$life>)? $(<$n>)? {
            fn default() -> Self {
                Self::new()
            }
        }
    };
    (@default [$($required:ident)+] $($rest:tt)*) => {};
}

pub(crate) use options;
