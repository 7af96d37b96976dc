//! A guide in short pages. Every snippet is compiled and run by the tests; they are bodies of
//! `fn main() -> ggml::Result<()>`.
//!
//! New to ggml: [questions], [shapes](mod@shapes), [memory], [graphs]. A model from a file: [weights], [sched]. Complete on their own:
//! [decoder], [cluster]. The rest is to look up.
//!
//! To find a C function, search these docs for its full name. The few that have no counterpart are in [omitted].

pub mod omitted;

/// Makes a module of a page of `docs/guide`. Links from it to other pages work both in the file and in these docs: of
/// several definitions of a label, the first counts.
macro_rules! page {
    ($($(#[doc = $about:literal])+ $name:ident, $file:literal $(, $picture:literal)?;)*) => {
        $(
            $(#[doc = $about])+
            #[doc = ""]
            #[doc = include_str!("guide/links.md")]
            #[doc = ""]
            #[doc = include_str!(concat!("../docs/guide/", $file))]
            $(
                #[doc = "# The picture\n\n<div style=\"overflow-x: auto\">\n"]
                #[doc = include_str!(concat!("../docs/pictures/", $picture))]
                #[doc = "</div>"]
            )?
            #[allow(clippy::doc_markdown, reason = "names of products")]
            pub mod $name {}
        )*
    };
}

page! {
    /// Questions that are asked first, with short answers.
    questions, "questions.md";
    /// How elements lie in memory: `ne`, `nb`, row-major data, broadcasting.
    shapes, "shapes.md";
    /// Who owns which bytes: contexts, weights, states, schedulers.
    memory, "memory.md";
    /// From a formula to a graph: layers, attention, outputs.
    graphs, "graphs.md";
    /// Weights and GGUF: load, map, repack, quantise, write.
    weights, "weights.md";
    /// The scheduler, step by step: devices, splits, copies, plans.
    sched, "sched.md", "digits.svg";
    /// A decoder with a KV cache, planned once.
    decoder, "decoder.md";
    /// Operations of your own, as closures.
    custom, "custom.md";
    /// Devices, offload, tensor parallelism.
    devices, "devices.md";
    /// A cluster: devices of other machines, and what to do when one is lost.
    cluster, "cluster.md";
    /// Writing a device, step by step.
    driver, "driver.md";
    /// Training: data sets, losses, optimisers.
    training, "training.md";
    /// Errors, and what to do about each.
    errors, "errors.md";
    /// From C to Rust, line by line.
    from_c, "from_c.md";
    /// One ggml with llama.cpp and whisper.cpp.
    interop, "interop.md";
    /// Other crates: ndarray, safetensors, serde.
    friends, "friends.md";
    /// A service: tokio, logs, choosing a device.
    service, "service.md";
    /// Deployment: CPU variants, dynamic backends, containers.
    deployment, "deployment.md";
    /// Tuning: threads, types, repacking, profiles.
    tuning, "tuning.md";
}

#[cfg(test)]
mod tests {
    /// The names of the variants of `Error`, from its source.
    fn variants(source: &str) -> impl Iterator<Item = &str> {
        let body = source.split("pub enum Error {").nth(1).unwrap().split("\n}\n").next().unwrap();
        body.lines()
            .filter_map(|line| line.strip_prefix("    ")?.split([' ', ',']).next())
            .filter(|name| name.starts_with(|c: char| c.is_ascii_uppercase()))
    }

    #[test]
    fn guide_names_each_error() {
        let page = include_str!("../docs/guide/errors.md");
        let missing: Vec<_> =
            variants(include_str!("error/mod.rs")).filter(|name| !page.contains(&format!("`{name}`"))).collect();
        assert!(missing.is_empty(), "docs/guide/errors.md lacks {missing:?}");
        assert!(variants(include_str!("error/mod.rs")).count() > 20, "the variants are found");
    }
}
