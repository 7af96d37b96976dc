//! Finding SDKs.

#![cfg(test)]

use std::fs;

use build_plan::find;
use build_plan::input::Input;
use build_plan::sdk::Sdk;

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
