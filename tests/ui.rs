//! Programs that must not compile, one for each rule that lifetimes and borrows enforce.

use std::env;
use std::process::Command;

/// Types are enough for them: with `DOCS_RS`, `ggml-sys` compiles no C.
#[test]
fn lifetimes_are_enforced_at_compile_time() {
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["--ignored", "--exact", "programs_do_not_compile", "--nocapture"]);
    assert!(child.env("DOCS_RS", "1").status().unwrap().success(), "see above");
}

#[test]
#[ignore = "the other test runs it, with a variable that cargo gets"]
fn programs_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
