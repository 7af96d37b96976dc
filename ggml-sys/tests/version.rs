//! Which versions of sources given by the user are accepted.

#[path = "../build/version.rs"]
mod version;

use std::path::Path;

#[test]
fn sources_of_another_version_are_refused_by_both_versions() {
    let folder = Path::new("/my/ggml");
    let accepted = ["1.2.3", "1.4.0"];
    assert!(accepted.iter().all(|version| version::check(folder, version, &accepted) == Ok(())));
    for other in ["1.2.30", "1.2.2", "1.4", ""] {
        let error = version::check(folder, other, &accepted).unwrap_err();
        assert!(error.starts_with(&format!("GGML_SYS_SOURCE_DIR=/my/ggml is ggml {other}, ")), "{error}");
        assert!(error.contains("for 1.2.3 or 1.4.0 only") && error.contains("v1.2.3"), "{error}");
    }
}
