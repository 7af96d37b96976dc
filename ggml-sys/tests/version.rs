//! Which versions of sources given by the user are accepted.

use build_plan::version;

use std::path::Path;

#[test]
fn source_dir_of_another_version_is_refused() {
    let folder = Path::new("/my/ggml");
    let accepted = ["1.2.3", "1.4.0"];
    assert!(accepted.iter().all(|version| version::check(folder, version, &accepted) == Ok(())));
    for other in ["1.2.30", "1.2.2", "1.4", ""] {
        let error = version::check(folder, other, &accepted).unwrap_err();
        assert!(error.starts_with(&format!("GGML_SYS_SOURCE_DIR=/my/ggml is ggml {other}, ")), "{error}");
        assert!(error.contains("for 1.2.3 or 1.4.0 only") && error.contains("v1.2.3"), "{error}");
    }
}
