//! Development tasks: `cargo xtask --help`.

mod asan;
mod ci;
mod conformance;
mod coverage;
mod cross;
mod cuda_check;
mod cuda_toolkit;
mod docs;
mod fuzz;
mod gpu_bundle;
mod headers;
mod helgrind;
mod install;
mod interop;
mod interop_static;
mod layers;
mod llm_bench;
mod llm_check;
mod locks;
mod model;
mod offline;
mod publish;
mod report;
mod semver;
mod serve_check;
mod size;
mod sys_plan;
mod text_check;
mod update;
mod valgrind;
mod vendor;
mod workspace;

use build_plan::fetch;
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(about = "The project's chores")]
struct MainArguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Run all checks, as `.ci/run` does, or some
    Ci(ci::CiArguments),
    /// Fetch ggml's pinned sources into vendor/, or pin another version
    Vendor(vendor::VendorArguments),
    /// List where the safe layer covers each function of ggml: docs/coverage.md
    Coverage(coverage::CoverageArguments),
    /// Build all docs; check links, spelling, and that items have examples; draw the front page: target/docs.png
    Docs(docs::DocsArguments),
    /// Check the library's files against the layers of ARCHITECTURE.md
    Layers,
    /// Check each workspace's lock file against the manifests; `cargo update --workspace` mends one
    Locks,
    /// Test the server of language models with OpenAI's Python package, and with many clients for some time
    ServeCheck(serve_check::ServeCheckArguments),
    /// Count lines of code, without comments, blank lines and tests
    Size(size::SizeArguments),
    /// Read randomly changed GGUF files
    FuzzGguf(fuzz::FuzzArguments),
    /// Send randomly changed requests to an RPC server, and count those that end it
    FuzzRpc(fuzz::FuzzArguments),
    /// Fetch a sentence embedding model, all-MiniLM-L6-v2, and convert it to GGUF files: target/model
    Model(model::ModelArguments),
    /// Compile ggml as the crate does, and install it for the feature `system` and for other programs
    Install(install::InstallArguments),
    /// Build programs of this crate and others over one ggml, and run them: llama-cpp-sys-2's over an installed one, whisper.cpp
    /// over the static one
    ///
    /// Takes some minutes the first time, as it compiles llama.cpp.
    Interop,
    /// Measure language models beside llama.cpp and candle
    LlmBench(llm_bench::LlmBenchArguments),
    /// Compute made-up language models by this repository's crate and by llama.cpp, and compare the logits
    LlmCheck(llm_check::LlmCheckArguments),
    /// Compare the tokenizers of `llm` with llama.cpp's on random texts
    ///
    /// Takes some minutes the first time, as it compiles llama.cpp.
    TextCheck(text_check::TextCheckArguments),
    /// Check the crates' types for other targets and with the oldest Rust; test on ARM (qemu), run on Windows (wine)
    ///
    /// `./setup --all` installs what it takes, on Debian and Ubuntu.
    Cross(cross::CrossArguments),
    /// Install CUDA's compiler and libraries, which need no GPU: target/cuda-toolkit
    CudaToolkit(cuda_toolkit::CudaToolkitArguments),
    /// Compile ggml's CUDA backend, without a GPU
    CudaCheck(cuda_check::CudaCheckArguments),
    /// Bundle the tests for a machine with a GPU, but without Rust and network: target/gpu-bundle
    GpuBundle(gpu_bundle::GpuBundleArguments),
    /// Build a program that uses the crates, in all ways, without a network: target/offline
    Offline,
    /// Package the crates of a fresh clone, and build a crate of somebody else against the packages: target/publish
    PublishCheck,
    /// Run ggml's own tests of operations on devices written in Rust, and compare what the safe interface refuses with
    /// tests/conformance/refusals.toml
    ///
    /// Fetches 77 MB the first time.
    Conformance(conformance::ConformanceArguments),
    /// Compare the public API with that of the last tag
    Semver,
    /// Run the tests and random programs with ggml's C under GCC's address sanitizer
    ///
    /// Works with stable Rust: only C and C++ are instrumented, but all memory is watched. Takes some 20 minutes.
    Asan(asan::AsanArguments),
    /// Run random programs under valgrind's memcheck
    Valgrind(valgrind::ValgrindArguments),
    /// Run the thread tests under helgrind
    Helgrind,
}

fn main() -> anyhow::Result<()> {
    match MainArguments::parse().chore {
        Chore::Ci(arguments) => ci::run(&arguments),
        Chore::Vendor(arguments) => vendor::run(&arguments),
        Chore::Coverage(arguments) => coverage::run(&arguments),
        Chore::Docs(arguments) => docs::run(&arguments),
        Chore::Layers => layers::run(),
        Chore::Locks => locks::run(),
        Chore::ServeCheck(arguments) => serve_check::run(&arguments),
        Chore::Size(arguments) => size::run(&arguments),
        Chore::FuzzGguf(arguments) => fuzz::run(fuzz::GGUF, &arguments),
        Chore::FuzzRpc(arguments) => fuzz::run(fuzz::RPC, &arguments),
        Chore::Model(arguments) => model::run(&arguments),
        Chore::Install(arguments) => install::run(&arguments),
        Chore::Interop => interop::run(),
        Chore::LlmBench(arguments) => llm_bench::run(&arguments),
        Chore::LlmCheck(arguments) => llm_check::run(&arguments),
        Chore::TextCheck(arguments) => text_check::run(&arguments),
        Chore::Cross(arguments) => cross::run(&arguments),
        Chore::CudaToolkit(arguments) => cuda_toolkit::run(&arguments),
        Chore::CudaCheck(arguments) => cuda_check::run(&arguments),
        Chore::GpuBundle(arguments) => gpu_bundle::run(&arguments),
        Chore::Conformance(arguments) => conformance::run(&arguments),
        Chore::Offline => offline::run(),
        Chore::PublishCheck => publish::run(),
        Chore::Semver => semver::run(),
        Chore::Asan(arguments) => asan::run(&arguments),
        Chore::Valgrind(arguments) => valgrind::run(&arguments),
        Chore::Helgrind => helgrind::run(),
    }
}
