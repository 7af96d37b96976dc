//! The same by `ggml-llm`.

use std::path::Path;
use std::sync::OnceLock;

use ggml_llm::{Batch, Model, ModelOptions, Session, SessionOptions};

use ggml::rpc::{self, Connection, Server};
use ggml::{DType, Device};
use llama_reference::{Options, Result, Token};

/// The CPU, by a server in this process.
fn served() -> Result<Device> {
    static SERVED: OnceLock<(Server, Connection)> = OnceLock::new();
    let (_, connection) = match SERVED.get() {
        Some(there) => there,
        None => {
            let server = Server::builder().threads(1).start()?;
            let connection = rpc::connect(&server.address().to_string())?;
            SERVED.get_or_init(|| (server, connection))
        }
    };
    Ok(*connection.devices().first().ok_or("a server without devices")?)
}

/// A session, and what its steps have cost.
pub struct Ours {
    session: Session,
    batch: Batch,
    /// The most allocations of a step after the first two.
    pub allocations: usize,
}

impl Ours {
    pub fn open(file: &Path, options: &Options, divided: bool) -> Result<Self> {
        let mut how = ModelOptions::default();
        if divided {
            how.devices = vec![Device::cpu()?, served()?];
        }
        // Only ggml's kernels give llama.cpp's bits.
        (how.kernels, how.repack) = (false, options.repack);
        let model = Model::load(file, &how)?;
        let mut sizes = SessionOptions::default();
        sizes.n_ctx = usize::try_from(options.n_ctx)?;
        sizes.n_batch = usize::try_from(options.n_batch)?;
        sizes.n_seq = usize::try_from(options.n_seq)?;
        sizes.cache = DType::from_id(options.cache).ok_or("a cache of an unknown type")?;
        sizes.threads = usize::try_from(options.threads)?;
        Ok(Self { session: Session::new(model, &sizes)?, batch: Batch::new(), allocations: 0 })
    }

    /// The logits of the tokens with output.
    pub fn decode(&mut self, tokens: &[Token]) -> Result<Vec<Vec<f32>>> {
        self.batch.clear();
        for token in tokens {
            let sequence = usize::try_from(token.sequence)?;
            self.batch.push(sequence, token.id, token.output);
        }
        let before = testkit::counted::allocations();
        self.session.decode(&self.batch)?;
        self.allocations = testkit::counted::allocations() - before;
        let wanted = tokens.iter().filter(|t| t.output).count();
        (0..wanted).map(|i| Ok(self.session.logits(i).ok_or("an output is missing")?.to_vec())).collect()
    }

    pub fn shift(&mut self, sequence: i32, keep: i32, n: i32) -> Result<()> {
        Ok(self.session.shift(usize::try_from(sequence)?, usize::try_from(keep)?, usize::try_from(n)?)?)
    }

    pub fn truncate(&mut self, sequence: i32, from: i32) -> Result<()> {
        Ok(self.session.truncate(usize::try_from(sequence)?, usize::try_from(from)?)?)
    }

    pub fn share(&mut self, from: i32, to: i32, n: i32) -> Result<()> {
        Ok(self.session.share(usize::try_from(from)?, usize::try_from(to)?, usize::try_from(n)?)?)
    }

    pub fn plans(&self) -> usize {
        self.session.plans()
    }
}
