//! The engines, each in its own process.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use process::Process;
use wire::{Answer, Request};

use crate::build::{ALL_Q8_0, Places};
use crate::sentences;
use crate::table::Cell;

/// An engine, and how it is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Ours,
    /// All matrices in q8_0, as llama.cpp's quantiser leaves them.
    OursQ8_0,
    /// The values' matrices in f16.
    OursMixed,
    Ggml,
    GgmlQ8_0,
    Llama,
    LlamaQ8_0,
    Candle,
    Torch,
    TorchCompiled,
    Onnx,
    OnnxInt8,
}

impl Kind {
    /// All but the one that compiles for a minute at each shape.
    pub(crate) const USUAL: [Self; 11] = [
        Self::Ours,
        Self::OursQ8_0,
        Self::OursMixed,
        Self::Ggml,
        Self::GgmlQ8_0,
        Self::Llama,
        Self::LlamaQ8_0,
        Self::Candle,
        Self::Torch,
        Self::Onnx,
        Self::OnnxInt8,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "this crate f32",
            Self::OursQ8_0 => "this crate q8_0",
            Self::OursMixed => "this crate q8_0, values f16",
            Self::Ggml => "ggml's kernels f32",
            Self::GgmlQ8_0 => "ggml's kernels q8_0",
            Self::Llama => "llama.cpp f32",
            Self::LlamaQ8_0 => "llama.cpp q8_0",
            Self::Candle => "candle f32",
            Self::Torch => "PyTorch f32",
            Self::TorchCompiled => "PyTorch f32 compiled",
            Self::Onnx => "onnxruntime f32",
            Self::OnnxInt8 => "onnxruntime int8",
        }
    }

    /// How it is started; what it needs is built or fetched.
    pub(crate) fn command(self, places: &Places, base: &Path, threads: usize) -> Result<Command> {
        let threads = threads.to_string();
        let rust = |package: &str, dtype: &str| -> Result<Command> {
            let mut command = Command::new(places.program(package)?);
            command.arg("--model").arg(places.gguf(dtype)).args(["--threads", &threads]);
            Ok(command)
        };
        let python = |engine: &str| -> Result<Command> {
            let mut command = Command::new(places.python(base)?);
            command.arg(places.script()).arg(engine).arg(places.published()).arg(&threads);
            Ok(command)
        };
        let mut command = match self {
            Self::Ours => rust("ours", "f32"),
            Self::OursQ8_0 => rust("ours", ALL_Q8_0),
            Self::OursMixed => rust("ours", "q8_0"),
            Self::Ggml | Self::GgmlQ8_0 => {
                let mut command = rust("ours", if self == Self::Ggml { "f32" } else { ALL_Q8_0 })?;
                command.args(["--kernels", "ggml"]);
                Ok(command)
            }
            Self::Llama => rust("llama", "f32"),
            Self::LlamaQ8_0 => rust("llama", ALL_Q8_0),
            Self::Candle => {
                let mut command = Command::new(places.program("candle")?);
                // candle has one pool of threads for a process.
                command.arg("--model").arg(places.published()).env("RAYON_NUM_THREADS", &threads);
                Ok(command)
            }
            Self::Torch => python("torch"),
            Self::TorchCompiled => python("torch-compiled"),
            Self::Onnx => python("onnx"),
            Self::OnnxInt8 => python("onnx-int8"),
        }?;
        places.lower(&mut command);
        Ok(command)
    }
}

/// A process that answers.
pub(crate) struct Running {
    pub(crate) kind: Kind,
    pub(crate) process: Process,
    /// From its start to its first vector.
    pub(crate) start: Duration,
}

impl Running {
    pub(crate) fn start(kind: Kind, command: Command) -> Result<Self> {
        let begin = Instant::now();
        let mut engine = Self { kind, process: Process::start(kind.name(), command)?, start: Duration::ZERO };
        engine.ask(&Request { sentences: sentences(Cell::new(1, 16), 0), repeat: 1 })?;
        engine.start = begin.elapsed();
        Ok(engine)
    }

    pub(crate) fn ask(&mut self, request: &Request) -> Result<Answer> {
        let answer = self.process.ask(&serde_json::to_string(request)?)?;
        serde_json::from_str(&answer).with_context(|| format!("{} answered {answer:?}", self.process.name()))
    }
}
