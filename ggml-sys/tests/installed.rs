//! Which installed ggml is accepted, tested on folders that look like one.

#![cfg(test)]

use std::fs;
use std::path::{Path, PathBuf};

use build_plan::input::Input;
use build_plan::installed;
use build_plan::installed::{Installed, Wanted};
use tempfile::TempDir;

const VERSION: &str = "1.2.3";
const HEADERS: &[&str] = &["ggml.h", "ggml-rpc.h", "ggml-opencl.h"];
const TEXT: &str = "int ggml_this(void);\n";

/// The headers that the declarations are generated from.
fn pinned() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for header in HEADERS {
        fs::write(folder.path().join(header), TEXT).unwrap();
    }
    folder
}

/// A folder that looks like an installed ggml, with its libraries in `lib`.
struct Tree {
    folder: TempDir,
    lib: PathBuf,
}

impl Tree {
    fn new(lib: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tree = Self { lib: folder.path().join(lib), folder };
        tree.version(VERSION);
        tree.config("carrier-1.0");
        for name in ["libggml.so", "libggml-base.so"] {
            tree.library(name, b"text\0 1.2.3\0carrier-1.0\0more");
        }
        fs::create_dir_all(tree.root().join("include")).unwrap();
        for header in HEADERS.iter().filter(|header| **header != "ggml-opencl.h") {
            tree.header(header, TEXT);
        }
        tree
    }

    fn root(&self) -> &Path {
        self.folder.path()
    }

    fn cmake(&self, name: &str, text: &str) {
        let folder = self.lib.join("cmake/ggml");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(name), text).unwrap();
    }

    fn version(&self, version: &str) {
        let text = format!("# a comment\nset(PACKAGE_VERSION \"{version}\")\n");
        self.cmake("ggml-config-version.cmake", &text);
    }

    fn config(&self, commit: &str) {
        self.cmake("ggml-config.cmake", &format!("set(GGML_BUILD_COMMIT \"{commit}\")\n"));
    }

    fn library(&self, name: &str, bytes: &[u8]) {
        fs::write(self.lib.join(name), bytes).unwrap();
    }

    fn header(&self, name: &str, text: &str) {
        fs::write(self.root().join("include").join(name), text).unwrap();
    }

    fn variable(&self) -> (&'static str, String) {
        ("GGML_SYS_PREFIX", self.root().display().to_string())
    }
}

/// The result of the search in this environment; pkg-config knows `known`, if given.
fn find(variables: &[(&'static str, String)], known: Option<&Tree>) -> Result<Installed, String> {
    let usual = [
        ("HOST", "x86_64-unknown-linux-gnu"),
        ("TARGET", "x86_64-unknown-linux-gnu"),
        ("CARGO_CFG_TARGET_ARCH", "x86_64"),
        ("CARGO_CFG_TARGET_ENV", "gnu"),
    ];
    let all: Vec<_> = usual.iter().map(|(n, v)| (*n, (*v).to_owned())).chain(variables.iter().cloned()).rev().collect();
    let get = |name: &str| all.iter().find(|(n, _)| *n == name).map(|(_, value)| value.clone());
    let input = Input::read(get, std::iter::empty());
    let headers = pinned();
    let wanted =
        Wanted { version: VERSION, libraries: &["ggml", "ggml-base"], headers: HEADERS, include: headers.path() };
    installed::find(&input, wanted, |variable| {
        let tree = known?;
        let path = match variable {
            "prefix" => tree.root().to_owned(),
            "libdir" => tree.lib.clone(),
            "includedir" => tree.root().join("include"),
            other => unreachable!("pkg-config is not asked for {other}"),
        };
        Some(format!("{}/../{}", path.display(), path.file_name()?.display()))
    })
}

/// The error message for a tree that is refused.
fn refused(tree: &Tree) -> String {
    find(&[tree.variable()], None).unwrap_err()
}

#[test]
fn system_ggml_is_found_in_every_library_folder() {
    for lib in ["lib", "lib64", "lib/x86_64-linux-gnu"] {
        let tree = Tree::new(lib);
        let found = find(&[tree.variable()], None).unwrap();
        assert_eq!((found.root.as_path(), &found.lib), (tree.root(), &tree.lib));
        assert_eq!(found.include, tree.root().join("include"));
        assert_eq!(found.commit, "carrier-1.0");
        for file in ["libggml.so", "libggml-base.so", "cmake/ggml/ggml-config.cmake"] {
            assert!(found.files.contains(&tree.lib.join(file)), "{file} is watched: {:?}", found.files);
        }
        assert!(found.files.contains(&tree.root().join("include/ggml.h")), "{:?}", found.files);
    }
    for suffix in ["dylib", "lib"] {
        let tree = Tree::new("lib");
        for library in ["ggml", "ggml-base"] {
            let prefix = if suffix == "lib" { "" } else { "lib" };
            let from = tree.lib.join(format!("lib{library}.so"));
            fs::rename(from, tree.lib.join(format!("{prefix}{library}.{suffix}"))).unwrap();
        }
        assert!(find(&[tree.variable()], None).is_ok(), "{suffix}");
    }
}

#[test]
fn system_ggml_variables_precede_pkg_config() {
    let trees = [Tree::new("lib64"), Tree::new("lib"), Tree::new("lib")];
    let [named, cmake, known] = &trees;
    let nothing = tempfile::tempdir().unwrap();
    let list = std::env::join_paths([nothing.path(), cmake.root(), known.root()]).unwrap();
    let prefix_path = ("CMAKE_PREFIX_PATH", list.into_string().unwrap());
    let root = |variables: &[_], known| find(variables, known).unwrap().root;
    assert_eq!(root(&[named.variable(), prefix_path.clone()], Some(known)), named.root());
    assert_eq!(root(std::slice::from_ref(&prefix_path), Some(known)), cmake.root(), "the first that has one");
    assert_eq!(root(&[("CMAKE_PREFIX_PATH", String::new())], Some(known)), known.root().canonicalize().unwrap());
    // Another crate's cmake would take that one, so no other is used instead.
    cmake.version("1.2.4");
    let error = find(&[prefix_path], Some(known)).unwrap_err();
    assert!(error.contains("is 1.2.4") && error.contains("found by CMAKE_PREFIX_PATH"), "{error}");
    // pkg-config knows this machine's libraries only.
    let other = [("TARGET", "aarch64-unknown-linux-gnu".to_owned())];
    assert!(find(&other, Some(known)).unwrap_err().contains("none is named"));
}

#[test]
fn system_ggml_error_names_the_searched_folders() {
    let nothing = tempfile::tempdir().unwrap();
    let folder = nothing.path().display().to_string();
    for variable in ["GGML_SYS_PREFIX", "CMAKE_PREFIX_PATH"] {
        let error = find(&[(variable, folder.clone())], None).unwrap_err();
        assert!(error.contains(&format!("not in {folder} ({variable})")), "{error}");
        assert!(error.contains(VERSION) && error.contains("cargo xtask install"), "{error}");
    }
    assert!(find(&[], None).unwrap_err().contains("none is named"));
}

#[test]
fn system_ggml_refuses_another_version() {
    let tree = Tree::new("lib");
    tree.version("1.2.4");
    let error = refused(&tree);
    let place = format!("the ggml in {} is 1.2.4, and this crate declares 1.2.3", tree.root().display());
    assert!(error.contains(&place) && error.contains("found by GGML_SYS_PREFIX"), "{error}");
    tree.cmake("ggml-config-version.cmake", "nothing of use\n");
    assert!(refused(&tree).contains("of an unknown version"));
}

#[test]
fn system_ggml_requires_all_shared_libraries() {
    let tree = Tree::new("lib64");
    fs::rename(tree.lib.join("libggml-base.so"), tree.lib.join("libggml-base.a")).unwrap();
    let error = refused(&tree);
    assert!(error.contains("no shared library ggml-base") && error.contains("BUILD_SHARED_LIBS"), "{error}");
}

#[test]
fn system_ggml_refuses_libraries_of_another_build() {
    let tree = Tree::new("lib");
    tree.library("libggml-base.so", b"text\x001.2.2\0carrier-1.0\0");
    assert!(refused(&tree).contains("it is not of 1.2.3"));
    tree.library("libggml-base.so", b"text\x001.2.3\0another\0");
    assert!(refused(&tree).contains("it is not of carrier-1.0"));
}

#[cfg(unix)]
#[test]
fn system_ggml_refuses_a_link_to_another_version() {
    let tree = Tree::new("lib");
    let link = tree.lib.join("libggml.so");
    for (version, taken) in [("1.2.3", true), ("1.2.2", false)] {
        fs::remove_file(&link).unwrap();
        let file = format!("libggml.so.{version}");
        tree.library(&file, b"");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let found = find(&[tree.variable()], None);
        assert_eq!(found.is_ok(), taken, "{found:?}");
        assert!(taken || found.unwrap_err().contains("do not belong together"));
    }
}

#[test]
fn system_ggml_refuses_other_headers() {
    let tree = Tree::new("lib");
    tree.header("ggml.h", &TEXT.replace('\n', "\r\n"));
    assert!(find(&[tree.variable()], None).is_ok(), "line ends do not count");
    tree.header("ggml.h", "int ggml_that(void);\n");
    let error = refused(&tree);
    assert!(error.contains("ggml.h is not the header of ggml 1.2.3"), "{error}");
    tree.header("ggml.h", TEXT);
    fs::remove_file(tree.root().join("include/ggml-rpc.h")).unwrap();
    assert!(refused(&tree).contains("lacks the header ggml-rpc.h"));
}
