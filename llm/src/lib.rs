//! Language models from GGUF files, computed by `ggml`.
//!
//! [`Model::load`] reads a file of one of the [families](Architecture). A [`Session`] computes the logits of tokens, and
//! keeps the keys and values of earlier ones. [`made_up`] writes models with random weights, for tests and benchmarks.
//!
//! ```
//! use ggml_llm::{Architecture, Batch, Model, ModelOptions, Session, SessionOptions, made_up};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = std::env::temp_dir().join(format!("ggml-llm-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let path = folder.join("model.gguf");
//! made_up::Recipe::new(Architecture::Llama).write(&path)?;
//! let model = Model::load(&path, &ModelOptions::default())?;
//! let mut session = Session::new(model, &SessionOptions::default())?;
//! let mut batch = Batch::new();
//! batch.prompt(0, &[1, 2, 3]);
//! session.decode(&batch)?;
//! assert_eq!(session.logits(0).map(<[f32]>::len), Some(session.model().config().n_vocab));
//! # std::fs::remove_dir_all(folder)?;
//! # Ok(())
//! # }
//! ```

mod architecture;
mod batch;
mod blocks;
mod cache;
mod choose;
mod config;
#[cfg(feature = "constrain")]
pub mod constrain;
mod declare;
mod decoder;
mod digest;
mod embedding;
mod error;
mod families;
mod files;
mod keys;
pub mod made_up;
mod memory;
mod metadata;
mod model;
mod options;
mod parallel;
pub mod place;
mod placing;
mod recurrent;
mod session;
mod step;
pub mod text;
mod weights;

pub use architecture::Architecture;
pub use batch::Batch;
pub use choose::Chooser;
pub use config::{Attention, Config, Experts, Pattern, RopeConfig, Ssm, Window};
pub use error::{Error, Result};
pub use metadata::Metadata;
pub use model::Model;
pub use placing::{ModelOptions, SplitMode};
pub use session::{Session, SessionOptions};
