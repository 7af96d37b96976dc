//! Finds the SDKs of optional backends.

use std::fs;
use std::path::{Path, PathBuf};

use super::input::Input;
use super::sdk::Sdk;
use super::tools;

/// Searches for SDKs. Returns the cmake defines for those found, and those that are missing.
pub fn sdks(input: &Input, wanted: &[Sdk]) -> (Vec<(&'static str, String)>, Vec<Sdk>) {
    let (mut defines, mut missing) = (Vec::new(), Vec::new());
    for &sdk in wanted {
        let folder = sdk.folder(input).map(PathBuf::from);
        let below = |sub: &str| folder.iter().map(|f| f.join(sub)).collect::<Vec<_>>();
        let program = |name: &str| {
            tools::runs(name) || below("bin").into_iter().chain(below("Bin")).any(|bin| tools::runs(bin.join(name)))
        };
        let header = |name: &str| {
            let places = below("include").into_iter().chain(below("Include"));
            defining(input, name, "", places).is_some()
        };
        let found = match sdk {
            Sdk::OpenBlas => {
                let cblas = openblas(input, below("include").into_iter().chain(below("include/openblas")));
                defines.extend(cblas.iter().map(|folder| ("BLAS_INCLUDE_DIRS", folder.display().to_string())));
                cblas.is_some()
            }
            Sdk::Vulkan => header("vulkan/vulkan.h") && header("spirv/unified1/spirv.h") && program("glslc"),
            Sdk::Cuda => program("nvcc"),
            Sdk::Rocm => program("hipcc") || program("hipconfig"),
            Sdk::OpenCl => header("CL/cl.h") && (tools::runs("python3") || tools::runs("python")),
        };
        if !found {
            missing.push(sdk);
        }
    }
    (defines, missing)
}

/// The folder of `OpenBLAS`'s `cblas.h`. Other libraries have a file of that name, too, which lacks what ggml needs.
fn openblas(input: &Input, named: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    let named: Vec<_> = named.collect();
    let find = |place: &Path| {
        let path = defining(input, "cblas.h", "openblas_set_num_threads", [place.to_owned()].into_iter())?;
        Some(path.parent().unwrap_or(&path).to_owned())
    };
    if !named.is_empty() {
        return named.iter().find_map(|place| find(place).filter(|found| found == place));
    }
    // The empty first entry stands for the compiler's own search folders.
    let usual = [
        String::new(),
        format!("/usr/include/{}-linux-gnu/openblas-pthread", input.arch),
        "/usr/include/openblas".to_owned(),
    ];
    let here = if input.host == input.target { usual.len() } else { 1 };
    usual.iter().take(here).find_map(|place| find(Path::new(place)))
}

/// The folder in which the C compiler finds a header, searching `places` first, if the header defines `word`.
fn defining(input: &Input, header: &str, word: &str, places: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    let source = input.out_dir.join("probe.c");
    fs::write(&source, format!("#include <{header}>\n")).ok()?;
    let mut probe = cc::Build::new();
    probe.file(source).includes(places.filter(|p| p.is_dir())).inherit_rustflags(false);
    probe.target(&input.target).host(&input.host).opt_level(0);
    let text = probe.cargo_metadata(false).cargo_warnings(false).cargo_output(false).try_expand().ok()?;
    let text = String::from_utf8_lossy(&text);
    // `# 1 "/usr/include/cblas.h" 1 3 4`
    let lines = text.lines().filter(|line| line.starts_with('#')).filter_map(|line| line.split('"').nth(1));
    let found = lines.map(|path| path.replace("\\\\", "/")).find(|path| path.ends_with(header))?;
    text.contains(word).then(|| PathBuf::from(found))
}
