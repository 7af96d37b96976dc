//! Finding SDKs.

#![cfg(test)]

#[path = "../build/backends.rs"]
mod backends;
#[path = "../build/cpu.rs"]
mod cpu;
#[path = "../build/find.rs"]
mod find;
#[path = "../build/input.rs"]
#[allow(dead_code, reason = "the real environment is read by the build script only")]
mod input;
#[path = "../build/macros.rs"]
mod macros;
#[path = "../build/plan.rs"]
#[expect(dead_code, reason = "the plan is another test's")]
mod plan;
#[path = "../build/sdk.rs"]
#[allow(dead_code, reason = "what to install is said where tools are looked for")]
mod sdk;
#[path = "../build/tools.rs"]
#[allow(dead_code, reason = "tools are another test's")]
mod tools;

use std::fs;

use input::Input;
use sdk::Sdk;

/// A library is searched only in the folder that the user sets; a BLAS other than `OpenBLAS` is not accepted.
#[test]
fn find_accepts_openblas_by_its_header() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().to_str().unwrap();
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let values = [("OUT_DIR", folder), ("OPENBLAS_DIR", folder), ("TARGET", &host), ("HOST", &host)];
    let get = |name: &str| values.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
    let input = Input::read(get, std::iter::empty());
    let find = || find::sdks(&input, &[Sdk::OpenBlas]);
    let missing = (vec![], vec![Sdk::OpenBlas]);
    assert_eq!(find(), missing);
    let include = root.path().join("include/openblas");
    fs::create_dir_all(&include).unwrap();
    fs::write(include.join("cblas.h"), "void cblas_sgemm(void);\n").unwrap();
    assert_eq!(find(), missing, "that of another library");
    fs::write(include.join("cblas.h"), "void openblas_set_num_threads(int);\n").unwrap();
    let told = ("BLAS_INCLUDE_DIRS", include.to_str().unwrap().to_owned());
    assert_eq!(find(), (vec![told], vec![]));
    assert_eq!(find::sdks(&input, &[]), (vec![], vec![]));
}
