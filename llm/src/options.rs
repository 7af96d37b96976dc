//! Setters of options.

/// Gives a struct of options a setter for each field: other crates can't name all fields, as there may be more later.
macro_rules! setters {
    ($name:ident { $($with:ident($field:ident: $type:ty);)* }) => {
        impl $name {
            $(
                #[doc = concat!("Sets [`", stringify!($field), "`](Self::", stringify!($field), ").")]
                #[must_use]
                pub fn $with(mut self, $field: impl Into<$type>) -> Self {
                    self.$field = $field.into();
                    self
                }
            )*
        }
    };
}

pub(crate) use setters;
