//! The cmake defines of `ggml-sys`'s build script, for tasks that build parts of ggml themselves.

use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use build_plan::{input, plan};

use crate::workspace::{Workspace, host};

/// The cmake defines of a build with these cargo features (written as in `Cargo.toml`), `more` variables, and an
/// `OUT_DIR`.
pub(crate) fn defines(
    workspace: &Workspace,
    features: &[&str],
    more: &[(&str, &str)],
    out: &Path,
) -> Result<Vec<(String, String)>> {
    let host = host()?;
    let parts: Vec<_> = host.split('-').collect();
    let part = |i: usize| parts.get(i).copied().unwrap_or_default().to_owned();
    let mut variables: Vec<(String, String)> = vec![
        ("TARGET".into(), host.clone()),
        ("HOST".into(), host.clone()),
        ("CARGO_CFG_TARGET_ARCH".into(), part(0)),
        ("CARGO_CFG_TARGET_VENDOR".into(), part(1)),
        ("CARGO_CFG_TARGET_OS".into(), part(2)),
        ("CARGO_CFG_TARGET_ENV".into(), part(3)),
        ("CARGO_MANIFEST_DIR".into(), workspace.root.join("ggml-sys").display().to_string()),
        ("OUT_DIR".into(), out.display().to_string()),
    ];
    let feature = |name: &&str| format!("CARGO_FEATURE_{}", name.to_uppercase().replace('-', "_"));
    variables.extend(features.iter().map(|name| (feature(name), "1".to_owned())));
    variables.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let get = |name: &str| variables.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone());
    let input = input::Input::read(get, variables.iter().map(|(name, _)| name.clone()));
    let plan = plan::plan(&input).map_err(|message| anyhow!(message))?;
    let compile = plan.compile.context("the plan compiles nothing")?;
    let mut defines: Vec<_> = vec![("CMAKE_BUILD_TYPE".to_owned(), compile.build_type)];
    let all = compile.defines.into_iter().chain(plan.cpu.options);
    defines.extend(all.map(|(name, value)| (name.to_owned(), value)));
    for name in ["CMAKE_C_FLAGS", "CMAKE_CXX_FLAGS"] {
        defines.push((name.to_owned(), format!("{} -w", compile.flags.join(" "))));
    }
    Ok(defines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_contains_features_and_variables() {
        let workspace = Workspace::find().unwrap();
        let more = [("CUDA_PATH", "/cuda"), ("GGML_SYS_CUDA_ARCHITECTURES", "90")];
        let all = defines(&workspace, &["cuda", "dynamic-backends"], &more, Path::new("/out")).unwrap();
        let value = |name: &str| all.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
        assert_eq!(
            (value("GGML_CUDA"), value("GGML_BACKEND_DL"), value("GGML_VULKAN")),
            (Some("ON"), Some("ON"), Some("OFF"))
        );
        assert_eq!(value("CMAKE_CUDA_ARCHITECTURES"), Some("90"));
        assert_eq!(value("CUDAToolkit_ROOT"), Some("/cuda"));
    }
}
