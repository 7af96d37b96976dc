//! Programs that must not compile, one for each rule that lifetimes and borrows enforce.

#[test]
fn lifetimes_are_enforced_at_compile_time() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
