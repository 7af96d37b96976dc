//! docs/interop.md shows the build script that is tested.

#[test]
fn the_page_shows_the_build_script_that_is_tested() {
    let script = include_str!("../../tests/interop-static/build.rs");
    let page = include_str!("../../docs/interop.md");
    assert!(page.contains(&format!("```rust\n{script}```\n")), "docs/interop.md shows another build script");
}
