//! Which versions of sources given by the user are accepted.

use build_plan::version;

use std::path::Path;

#[test]
fn source_dir_of_another_version_is_refused() {
    let folder = Path::new("/my/ggml");
    assert_eq!(version::check(folder, "1.2.3", "1.2.3"), Ok(()));
    for other in ["1.2.30", "1.2.2", ""] {
        let error = version::check(folder, other, "1.2.3").unwrap_err();
        assert!(error.starts_with(&format!("GGML_SYS_SOURCE_DIR=/my/ggml is ggml {other}, ")), "{error}");
        assert!(error.contains("for 1.2.3 only") && error.contains("v1.2.3"), "{error}");
    }
}
