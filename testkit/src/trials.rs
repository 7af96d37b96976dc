//! Tests for programs with a harness of their own.

#[doc(hidden)]
pub use libtest_mimic::Trial;

/// A trial that fails if the function panics.
pub fn trial(name: &str, f: fn()) -> Trial {
    Trial::test(name, move || {
        f();
        Ok(())
    })
}

/// Makes a function that returns trials of functions, with their names.
#[macro_export]
macro_rules! trials {
    ($($name:ident),* $(,)?) => {
        pub(crate) fn trials() -> Vec<$crate::trials::Trial> {
            vec![$($crate::trials::trial(concat!(module_path!(), "::", stringify!($name)), $name)),*]
        }
    };
}
