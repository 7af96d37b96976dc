//! Finds an installed ggml, for the feature `system`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::input::Input;

/// The requirements for an installed ggml.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    pub version: &'a str,
    pub libraries: &'a [&'static str],
    pub headers: &'a [&'static str],
    /// The headers that this crate's declarations are generated from.
    pub include: &'a Path,
}

/// An installed ggml.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    pub root: PathBuf,
    pub lib: PathBuf,
    pub include: PathBuf,
    /// The commit that it reports.
    pub commit: String,
    /// The files that were examined: a change of one reruns the search.
    pub files: Vec<PathBuf>,
}

/// A candidate location.
#[derive(Debug)]
struct Place {
    /// The source of the path.
    by: &'static str,
    root: PathBuf,
    libs: Vec<PathBuf>,
    include: PathBuf,
}

/// The version file that ggml's own build installs, relative to the library folder.
const VERSION_FILE: &str = "cmake/ggml/ggml-config-version.cmake";

/// ggml's build does not install this header.
const NEVER_INSTALLED: &str = "ggml-opencl.h";

/// Finds an installed ggml: below `GGML_SYS_PREFIX`, else below the first folder of `CMAKE_PREFIX_PATH` that contains
/// one, else where pkg-config says.
///
/// # Errors
///
/// None is found, or the one found has another version, no shared libraries, libraries of different builds, or other
/// headers. The search stops at the first one found, because other crates would take that one.
pub fn find(
    input: &Input,
    wanted: Wanted<'_>,
    pkg_config: impl Fn(&str) -> Option<String>,
) -> Result<Installed, String> {
    let places = places(input, pkg_config);
    for place in &places {
        if let Some(lib) = place.libs.iter().find(|lib| lib.join(VERSION_FILE).is_file()) {
            return check(place, lib, wanted)
                .map_err(|what| format!("{what} (found by {}).\n{}", place.by, advice(wanted.version)));
        }
    }
    let tried: Vec<_> = places.iter().map(|p| format!("{} ({})", p.root.display(), p.by)).collect();
    let tried = if tried.is_empty() { "none is named".to_owned() } else { format!("not in {}", tried.join(", ")) };
    Err(format!(
        "the feature `system` needs an installed ggml {}, with its file {VERSION_FILE}: {tried}.\n{}",
        wanted.version,
        advice(wanted.version)
    ))
}

fn advice(version: &str) -> String {
    format!(
        "Install ggml {version} with shared libraries, by `cargo xtask install --prefix FOLDER` in this crate's repository or \
         by ggml's own build (-DBUILD_SHARED_LIBS=ON), and name the folder: GGML_SYS_PREFIX, CMAKE_PREFIX_PATH, or \
         pkg-config's PKG_CONFIG_PATH. Or leave the feature `system` out: ggml is then compiled."
    )
}

fn places(input: &Input, pkg_config: impl Fn(&str) -> Option<String>) -> Vec<Place> {
    let below = |by, root: &Path| Place {
        by,
        root: root.to_owned(),
        // Debian's, Fedora's, everybody's.
        libs: [format!("lib/{}-linux-{}", input.arch, input.env), "lib64".to_owned(), "lib".to_owned()]
            .iter()
            .map(|lib| root.join(lib))
            .collect(),
        include: root.join("include"),
    };
    if let Some(prefix) = &input.prefix {
        return vec![below("GGML_SYS_PREFIX", prefix)];
    }
    let mut places: Vec<_> = input.prefix_path.iter().map(|root| below("CMAKE_PREFIX_PATH", root)).collect();
    // A relocatable file contains paths such as `/opt/ggml/lib/pkgconfig/../..`.
    let folder = |variable| pkg_config(variable).map(|f| fs::canonicalize(&f).unwrap_or_else(|_| f.into()));
    // pkg-config knows the libraries of this machine only.
    if input.host == input.target
        && let (Some(root), Some(lib), Some(include)) = (folder("prefix"), folder("libdir"), folder("includedir"))
    {
        places.push(Place { by: "pkg-config", root, libs: vec![lib], include });
    }
    places
}

/// pkg-config's value of a variable of ggml.
pub fn pkg_config(variable: &str) -> Option<String> {
    let output = Command::new("pkg-config").arg(format!("--variable={variable}")).arg("ggml").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}

fn check(place: &Place, lib: &Path, wanted: Wanted<'_>) -> Result<Installed, String> {
    let file = lib.join(VERSION_FILE);
    let there = setting(&file, "PACKAGE_VERSION");
    if there.as_deref() != Some(wanted.version) {
        let there = there.as_deref().unwrap_or("of an unknown version");
        return Err(format!(
            "the ggml in {} is {there}, and this crate declares {}",
            place.root.display(),
            wanted.version
        ));
    }
    let config = file.with_file_name("ggml-config.cmake");
    let commit = setting(&config, "GGML_BUILD_COMMIT").unwrap_or_default();
    let mut files = vec![file, config];
    for library in wanted.libraries {
        files.push(shared(place, lib, library, wanted.version, &commit)?);
    }
    for header in wanted.headers.iter().filter(|header| **header != NEVER_INSTALLED) {
        files.push(same_header(place, header, wanted)?);
    }
    Ok(Installed { root: place.root.clone(), lib: lib.to_owned(), include: place.include.clone(), commit, files })
}

/// `set(NAME "value")` in a file of cmake's.
fn setting(file: &Path, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let start = format!("set({name} \"");
    text.lines().find_map(|line| Some(line.trim().strip_prefix(&start)?.strip_suffix("\")")?.to_owned()))
}

/// Checks that a library is shared and belongs to the same build as the others.
fn shared(place: &Place, lib: &Path, library: &str, version: &str, commit: &str) -> Result<PathBuf, String> {
    let root = place.root.display();
    let names = [format!("lib{library}.so"), format!("lib{library}.dylib"), format!("{library}.lib")];
    let Some(path) = names.iter().map(|name| lib.join(name)).find(|path| path.exists()) else {
        return Err(format!(
            "the ggml in {root} has no shared library {library} in {}: it has to be built with BUILD_SHARED_LIBS=ON, \
             GGML_BACKEND_DL=OFF and all backends whose features are on",
            lib.display()
        ));
    };
    let whole = path.canonicalize().map_err(|e| format!("{}: {e}", path.display()))?;
    // libggml.so links to libggml.so.0.26.0, libggml.dylib to libggml.0.26.0.dylib.
    let name = whole.file_name().unwrap_or_default().to_string_lossy().replace(".dylib", "").replace(".so", "");
    let stamped = name.strip_prefix(&format!("lib{library}.")).filter(|rest| rest.split('.').count() == 3);
    if stamped.is_some_and(|stamped| stamped != version) {
        return Err(format!(
            "the libraries in {} do not belong together: {} is {}, the rest {version}",
            lib.display(),
            path.display(),
            whole.display()
        ));
    }
    // ggml-base contains the strings of `ggml_version` and `ggml_commit`; a .lib contains only the names in the DLL.
    if library == "ggml-base" && path.extension().is_none_or(|e| e != "lib") {
        let bytes = fs::read(&whole).map_err(|e| format!("{}: {e}", whole.display()))?;
        for says in [version, commit].into_iter().filter(|says| !says.is_empty()) {
            if !holds(&bytes, says) {
                return Err(format!(
                    "{} does not belong to {}: it is not of {says}",
                    whole.display(),
                    lib.join(VERSION_FILE).with_file_name("").display()
                ));
            }
        }
    }
    Ok(path)
}

/// Whether a library contains this C string.
fn holds(library: &[u8], text: &str) -> bool {
    let text: Vec<u8> = text.bytes().chain([0]).collect();
    library.windows(text.len()).any(|window| window == text)
}

/// Checks that a header is the one that this crate's declarations were generated from.
fn same_header(place: &Place, header: &str, wanted: Wanted<'_>) -> Result<PathBuf, String> {
    let path = place.include.join(header);
    let read = |path: &Path| {
        let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok::<_, String>(text.replace("\r\n", "\n"))
    };
    let there = read(&path)
        .map_err(|what| format!("the ggml in {} lacks the header {header}: {what}", place.root.display()))?;
    if there != read(&wanted.include.join(header))? {
        return Err(format!(
            "{} is not the header of ggml {} that this crate's declarations are made from: it was changed, or belongs to \
             another ggml",
            path.display(),
            wanted.version
        ));
    }
    Ok(path)
}
