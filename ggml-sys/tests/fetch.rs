//! Fills `vendor/ggml-VERSION/`: cargo serves a small package from a folder that replaces crates.io.

#![cfg(test)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use build_plan::fetch;
use build_plan::fetch::cargo::Cargo;
use build_plan::fetch::pin::{Pin, Pins};
use build_plan::fetch::tree::{LIST, Sums, ggml_version, verify};
use tempfile::TempDir;

const CHECKSUM: &str = "1111111111111111111111111111111111111111111111111111111111111111";
const VERSION: &str = "set(GGML_VERSION_MAJOR 4)\nset(GGML_VERSION_MINOR 5)\nset(GGML_VERSION_PATCH 6)\n";
const FILES: &[(&str, &str)] = &[
    ("up/ggml/CMakeLists.txt", VERSION),
    ("up/ggml/src/a.c", "int a;"),
    ("up/ggml/src/.gitignore", "*.o"),
    ("up/LICENSE", "MIT"),
    ("up/other.c", "no"),
];

/// A test folder with `vendor/`, a cargo configuration and a package source.
struct Place {
    root: TempDir,
    pin: Pin,
    cargo: Cargo,
}

impl Place {
    fn new() -> Self {
        let root = TempDir::new().unwrap();
        let package = root.path().join("registry/carrier");
        for (path, text) in FILES {
            let file = package.join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, text).unwrap();
        }
        fs::create_dir_all(package.join("src")).unwrap();
        fs::write(package.join("src/lib.rs"), "").unwrap();
        fs::write(package.join("Cargo.toml"), "[package]\nname = \"carrier\"\nversion = \"1.2.3\"\n").unwrap();
        let sums = format!("{{\"files\":{{}},\"package\":\"{CHECKSUM}\"}}");
        fs::write(package.join(".cargo-checksum.json"), sums).unwrap();
        fs::create_dir_all(root.path().join(".cargo")).unwrap();
        let config =
            "[source.crates-io]\nreplace-with = \"folder\"\n[source.folder]\ndirectory = \"registry\"\n".to_owned();
        fs::write(root.path().join(".cargo/config.toml"), config).unwrap();
        fs::create_dir_all(root.path().join("vendor")).unwrap();

        let expected = root.path().join("expected");
        for (from, to) in [("up/ggml", "."), ("up/LICENSE", "LICENSE")] {
            fs::create_dir_all(&expected).unwrap();
            fetch::tree::copy(&package.join(from), &expected.join(to)).unwrap();
        }
        let pin = Pin {
            ggml: "4.5.6".into(),
            package: "carrier".into(),
            version: "1.2.3".into(),
            sha256: CHECKSUM.into(),
            tree_sha256: Sums::of(&expected).unwrap().sha256(),
            keep: vec![("up/ggml".into(), ".".into()), ("up/LICENSE".into(), "LICENSE".into())],
        };
        let cargo = Cargo { program: env!("CARGO").into(), directory: root.path().to_owned(), offline: true };
        Self { root, pin, cargo }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn ensure(&self) -> Result<PathBuf, String> {
        fetch::ensure(&self.path("vendor"), &self.path("out"), &self.pin, &self.cargo)
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn fetch_keeps_only_what_the_pin_names() {
    let place = Place::new();
    let tree = place.ensure().unwrap();
    assert_eq!(tree, place.path("vendor/ggml-4.5.6"));
    assert_eq!(names(&tree), ["CMakeLists.txt", "LICENSE", LIST, "src"]);
    assert_eq!(fs::read_to_string(tree.join("src/a.c")).unwrap(), "int a;");
    assert_eq!(names(&place.path("vendor")), ["ggml-4.5.6"]);
    assert_eq!(ggml_version(&tree).unwrap(), "4.5.6");
    // Otherwise cargo would assume that the sources changed after the build began.
    for path in ["CMakeLists.txt", "src", "src/a.c"] {
        let age = fs::metadata(tree.join(path)).unwrap().modified().unwrap().elapsed().unwrap();
        assert!(age > Duration::from_secs(50_000), "{path}: {age:?}");
    }
}

#[test]
fn fetch_leaves_a_matching_tree_alone() {
    let mut place = Place::new();
    place.ensure().unwrap();
    let marker = place.path("vendor/ggml-4.5.6/src");
    let before = fs::metadata(&marker).unwrap().modified().unwrap();
    place.cargo.program = "no-such-program".into();
    place.ensure().unwrap();
    assert_eq!(fs::metadata(&marker).unwrap().modified().unwrap(), before);
}

#[test]
fn fetch_refuses_a_package_with_another_checksum() {
    let mut place = Place::new();
    place.cargo.offline = false;
    place.pin.sha256 = CHECKSUM.replace('1', "2");
    let error = place.ensure().unwrap_err();
    // Cargo itself refuses, before anything is copied.
    assert!(error.contains("checksum") && error.contains("lock file"), "{error}");
    assert_eq!(names(&place.path("vendor")), [""; 0]);
}

#[test]
fn fetch_refuses_a_package_with_other_files() {
    let place = Place::new();
    fs::write(place.path("registry/carrier/up/ggml/src/a.c"), "int b;").unwrap();
    let error = place.ensure().unwrap_err();
    assert!(error.contains("not as pinned: the SHA-256 of its tree"), "{error}");
    assert_eq!(names(&place.path("vendor")), [""; 0]);
}

#[test]
fn fetch_refuses_a_changed_tree_and_names_the_file() {
    type Change = fn(&Path);
    let cases: [(&str, Change); 3] = [
        ("src/a.c was changed", |tree| fs::write(tree.join("src/a.c"), "evil").unwrap()),
        ("src/b.c was added", |tree| fs::write(tree.join("src/b.c"), "evil").unwrap()),
        ("LICENSE is missing", |tree| fs::remove_file(tree.join("LICENSE")).unwrap()),
    ];
    for (expected, change) in cases {
        let place = Place::new();
        let tree = place.ensure().unwrap();
        change(&tree);
        let before = Sums::of(&tree).unwrap();
        let error = place.ensure().unwrap_err();
        assert!(error.contains(expected), "{error}");
        assert!(error.contains("GGML_SYS_SOURCE_DIR"), "{error}");
        assert_eq!(Sums::of(&tree).unwrap(), before);
    }
}

#[test]
fn a_tree_without_gits_files_is_taken_as_cargo_vendor_leaves_it() {
    let place = Place::new();
    let tree = place.ensure().unwrap();
    fs::remove_file(tree.join("src/.gitignore")).unwrap();
    assert_eq!(place.ensure().unwrap(), tree);
    fs::write(tree.join("src/.gitignore"), "*.c").unwrap();
    assert!(place.ensure().unwrap_err().contains("src/.gitignore was changed"));
}

#[test]
fn fetch_refuses_a_changed_tree_with_a_matching_list() {
    let place = Place::new();
    let tree = place.ensure().unwrap();
    fs::write(tree.join("src/a.c"), "evil").unwrap();
    fs::write(tree.join(LIST), Sums::of(&tree).unwrap().to_text()).unwrap();
    assert!(place.ensure().unwrap_err().contains("have the hash"));
    fs::remove_file(tree.join(LIST)).unwrap();
    assert!(verify(&tree, &place.pin.tree_sha256).is_err());
}

#[test]
fn fetch_error_when_offline_says_what_to_do_without_a_checkout() {
    let place = Place::new();
    fs::remove_dir_all(place.path("registry/carrier")).unwrap();
    let error = place.ensure().unwrap_err();
    assert!(error.contains("With a network: build once."), "{error}");
    let url = "https://static.crates.io/crates/carrier/carrier-1.2.3.crate";
    assert!(error.contains(&format!("unpack {url} and set GGML_SYS_SOURCE_DIR to its folder up/ggml")), "{error}");
    assert_eq!(error.lines().count(), 3, "cargo's own words are left out: {error}");
}

#[test]
fn fetch_allows_concurrent_builds() {
    let place = Place::new();
    let trees: Vec<_> = std::thread::scope(|scope| {
        let builds: Vec<_> = (0..6).map(|_| scope.spawn(|| place.ensure())).collect();
        builds.into_iter().map(|build| build.join().unwrap()).collect()
    });
    assert!(trees.iter().all(|tree| tree == &Ok(place.path("vendor/ggml-4.5.6"))), "{trees:?}");
    assert_eq!(names(&place.path("vendor")), ["ggml-4.5.6"]);
}

#[test]
fn fetch_falls_back_where_vendor_is_not_writable() {
    let place = Place::new();
    fs::write(place.path("file"), "").unwrap();
    // Even root can't create a folder inside a file.
    let unwritable = place.path("file/vendor");
    let tree = fetch::ensure(&unwritable, &place.path("out"), &place.pin, &place.cargo).unwrap();
    assert_eq!(tree, place.path("out/ggml-4.5.6"));
}

#[test]
fn versions_lie_side_by_side() {
    let place = Place::new();
    let other = Pin { ggml: "4.6.0".into(), ..place.pin.clone() };
    fetch::ensure(&place.path("vendor"), &place.path("out"), &other, &place.cargo).unwrap();
    place.ensure().unwrap();
    assert_eq!(names(&place.path("vendor")), ["ggml-4.5.6", "ggml-4.6.0"]);
}

#[test]
fn the_committed_pins_read_and_fetched_versions_are_packaged() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pins = Pins::read(&folder.join("vendor/ggml.toml")).unwrap();
    let default = pins.choose(None).unwrap();
    assert_eq!(default.ggml, pins.default);
    let manifest: toml::Table = fs::read_to_string(folder.join("Cargo.toml")).unwrap().parse().unwrap();
    let packaged = manifest["package"]["include"].as_array().unwrap();
    assert!(packaged.iter().any(|path| path.as_str() == Some("/vendor/ggml-*")), "{packaged:?}");
}

#[test]
fn pins_that_are_wrong_are_refused_by_the_key() {
    let pin = |ggml: &str| {
        format!("[[pin]]\nggml = \"{ggml}\"\npackage = \"p\"\nversion = \"1\"\nsha256 = \"a\"\ntree_sha256 = \"b\"\n")
    };
    let parse = |text: String| Pins::parse(&text);
    let pins = parse(format!("default = \"2.0.0\"\n[keep]\n{}{}", pin("1.0.0"), pin("2.0.0"))).unwrap();
    assert_eq!((pins.choose(None).unwrap(), pins.choose(Some("1.0.0")).unwrap()), (&pins.all[1], &pins.all[0]));
    assert_eq!(pins.choose(Some("1.0.0")).unwrap().origin(), "p-1");
    assert!(pins.choose(Some("1.0")).unwrap_err().ends_with("expected one of 1.0.0, 2.0.0"));
    for (text, expected) in [
        (format!("default = \"3.0.0\"\n[keep]\n{}", pin("1.0.0")), "3.0.0 is not pinned"),
        (format!("default = \"1.0.0\"\n{}", pin("1.0.0")), "[keep]"),
        ("default = \"1.0.0\"\n[keep]\n".to_owned(), "[[pin]]"),
        (format!("[keep]\n{}", pin("1.0.0")), "`default`"),
        (format!("default = \"1.0.0\"\n[keep]\n{}", pin("1.0.0").replace("\"p\"", "1")), "`package`"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}
