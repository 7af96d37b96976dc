//! `Debug` for types of which only a part is shown.

/// Implements `Debug`, which shows these fields: `debug!(Event, |this| device = &this.device)`, of `Rows<'_, T>` as
/// `Rows<'_; T>`, of `Pinned<M>` as `Pinned<; M>`, or what one method returns: `debug!(Device(name))`.
macro_rules! debug {
    ($name:ident $(<$life:lifetime>)? ($shown:ident)) => {
        impl std::fmt::Debug for $name $(<$life>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({})", stringify!($name), self.$shown())
            }
        }
    };
    ($name:ident $(<$($life:lifetime),* $(; $t:ident $(: $bound:ident)?)?>)? $(, |$this:ident| $($field:ident = $value:expr),+ $(,)?)?) => {
        impl $($(<$t $(: $bound)?>)?)? std::fmt::Debug for $name $(<$($life,)* $($t)?>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut shown = f.debug_struct(stringify!($name));
                $(
                    let $this = self;
                    $(shown.field(stringify!($field), $value);)+
                )?
                shown.finish_non_exhaustive()
            }
        }
    };
}

pub(crate) use debug;
