//! Generates the Rust declarations from ggml's headers.

use std::fmt::Write as _;
use std::path::Path;

use super::input::Input;
use super::plan::Plan;

/// Writes `OUT_DIR/bindings.rs`.
pub(crate) fn generate(input: &Input, plan: &Plan, include: &Path) -> Result<(), String> {
    let mut wrapper = String::new();
    for header in plan.headers.iter().chain(&["guard.h"]) {
        // Writing to a String cannot fail.
        let _infallible = writeln!(wrapper, "#include <{header}>");
    }
    let bindings = bindgen::Builder::default()
        .header_contents("wrapper.h", &wrapper)
        .clang_arg(format!("-I{}", include.display()))
        .clang_arg(format!("-I{}", input.manifest_dir.join("shim").display()))
        .allowlist_item("(ggml|gguf|GGML|GGUF|RPC)_.*")
        .allowlist_item("(ggml_sys|GGML_SYS)_.*")
        // Constants, as a newer ggml may return a value that this one does not name.
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        // ggml's abort callback may throw.
        .override_abi(bindgen::Abi::CUnwind, ".*")
        .blocklist_type("FILE|_IO_.*")
        .raw_line("use libc::FILE;")
        .use_core()
        .size_t_is_usize(true)
        .derive_debug(true)
        .layout_tests(true)
        .rust_edition(bindgen::RustEdition::Edition2024)
        .formatter(bindgen::Formatter::Prettyplease)
        .generate()
        .map_err(|e| format!("cannot generate bindings: {e}"))?;
    let file = input.out_dir.join("bindings.rs");
    bindings.write_to_file(&file).map_err(|e| format!("cannot write {}: {e}", file.display()))
}
