//! Programs that must not compile, one for each rule that lifetimes and borrows enforce.

#[test]
fn lifetimes() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
