//! Enums have the same declarations on all targets.

use build_plan::enums;

const UNIX: &str = "\
pub const KIND_A: kind = 0;
pub type kind = ::core::ffi::c_uint;
pub const LONG_A:
    long = 0;
pub const OTHER_NAME_THAT_FILLS_A_LINE: other =
    -1;
pub const OTHER_B: other = 2;
#[doc = \" As C says = -1;\"]
pub type other = ::core::ffi::c_int;
pub const LIMIT: u32 = 3;
pub const MINUS: i32 = -3;
pub type number = ::core::ffi::c_int;
unsafe extern \"C-unwind\" {
    pub fn takes(kind: kind, n: ::core::ffi::c_int) -> ::core::ffi::c_uint;
}
";

#[test]
fn with_one_signedness_keeps_enums_with_negative_values_signed() {
    let microsoft = UNIX.replace("pub type kind = ::core::ffi::c_uint", "pub type kind = ::core::ffi::c_int");
    assert_ne!(microsoft, UNIX);
    assert_eq!(enums::with_one_signedness(&microsoft), UNIX);
    assert_eq!(enums::with_one_signedness(UNIX), UNIX, "what is right stays");
}

/// Checks this build's bindings: a change in bindgen's output format must be noticed.
#[test]
fn with_one_signedness_finds_the_enums_of_ggml() {
    let text = include_str!(concat!(env!("OUT_DIR"), "/bindings.rs"));
    assert_eq!(enums::with_one_signedness(text), text);
    let types = |of: &str| text.lines().filter(|line| line.starts_with("pub type ") && line.ends_with(of)).count();
    assert!(types("= ::core::ffi::c_uint;") > 15, "ggml has more enums than that");
    let all_signed = text.replace("= ::core::ffi::c_uint;", "= ::core::ffi::c_int;");
    assert_eq!(enums::with_one_signedness(&all_signed), text, "as Microsoft's compiler has them");
}
