//! Generates the Rust declarations from ggml's headers.

use std::fmt::Write as _;
use std::path::Path;

use super::compiler;
use super::enums;
use super::input::Input;
use super::plan::{Linkage, Plan};

/// Declared in ggml's headers but defined nowhere.
const NEVER_DEFINED: &str = "ggml_threadpool_get_n_threads|ggml_backend_cuda_allreduce_tensor";

/// Writes `OUT_DIR/bindings.rs`, and `OUT_DIR/functions.rs` for the test that links every function.
pub fn generate(input: &Input, plan: &Plan, include: &Path) -> Result<(), String> {
    let mut wrapper = String::new();
    for header in plan.headers.iter().chain(&["ggml-backend-impl.h", "guard.h", "graph.h"]) {
        // Writing to a String cannot fail.
        let _infallible = writeln!(wrapper, "#include <{header}>");
    }
    let headers = if plan.compile.is_some() { compiler::headers(input) } else { Vec::new() };
    let bindings = bindgen::Builder::default()
        .header_contents("wrapper.h", &wrapper)
        .clang_arg(format!("-I{}", include.display()))
        // What devices written in Rust implement is in a header that ggml doesn't install.
        .clang_arg(format!("-I{}", include.with_file_name("src").display()))
        .clang_arg(format!("-I{}", input.manifest_dir.join("shim").display()))
        .allowlist_item("(ggml|gguf|GGML|GGUF|RPC)_.*")
        .allowlist_item("(ggml_sys|GGML_SYS)_.*")
        .clang_args(headers.iter().flat_map(|folder| ["-isystem", folder]))
        // Constants instead of Rust enums: C may return a value that has no name here.
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        // ggml's abort callback may throw.
        .override_abi(bindgen::Abi::CUnwind, ".*")
        .blocklist_function(NEVER_DEFINED)
        .blocklist_type("FILE|_IO_.*|__off(64)?_t")
        .raw_line("use libc::FILE;")
        .use_core()
        .size_t_is_usize(true)
        .derive_debug(true)
        .layout_tests(true)
        .rust_edition(bindgen::RustEdition::Edition2024)
        .formatter(bindgen::Formatter::Prettyplease)
        .generate()
        .map_err(|e| format!(
                "cannot generate bindings: {e}\n\
                 If a standard header such as stddef.h is what is missing: clang's own headers come with libclang-dev on \
                 Debian and Ubuntu, with clang-devel on Fedora, with clang on Arch."
            ))?;
    let text = enums::with_one_signedness(&bindings.to_string());
    let names = text.lines().filter_map(|line| line.trim_start().strip_prefix("pub fn ")?.split('(').next());
    // Functions of dynamically loaded backends are looked up in their registry at run time.
    let modules = plan.compile.as_ref().is_some_and(|c| c.linkage == Linkage::Modules);
    let absent = if modules { declared(include, &plan.headers)? } else { Vec::new() };
    let names = names.filter(|name| !absent.iter().any(|a| a == name));
    let functions = names.fold(String::from("vec![\n"), |list, name| {
        list + &format!("    ({name:?}, ggml_sys::{name} as *const () as usize),\n")
    });
    for (name, text) in [("bindings.rs", text), ("functions.rs", functions + "]\n")] {
        let file = input.out_dir.join(name);
        std::fs::write(&file, text).map_err(|e| format!("cannot write {}: {e}", file.display()))?;
    }
    Ok(())
}

/// The functions that backend headers, including the CPU's, declare.
fn declared(include: &Path, headers: &[&str]) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for header in headers {
        let path = include.join(header);
        let text = std::fs::read_to_string(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        let lines = text.lines().filter(|line| line.trim_start().starts_with("GGML_BACKEND_API"));
        names.extend(lines.filter_map(|line| {
            let before = line.split('(').next()?;
            before.split(|c: char| !(c.is_alphanumeric() || c == '_')).rfind(|word| !word.is_empty()).map(str::to_owned)
        }));
    }
    Ok(names)
}
