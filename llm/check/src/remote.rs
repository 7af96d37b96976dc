//! llama.cpp's own RPC client, with all layers on this crate's server.

use std::ffi::CString;
use std::path::Path;

use ggml::rpc::Server;
use ggml::sys;

use crate::cases::{Case, Script};
use llama_reference::{Llama, Options, Result, Token, ggml_backend_dev_t};

/// The steps after a prompt.
const STEPS: usize = 4;

/// Compares the logits with those that llama.cpp computes without a server, bit by bit.
pub fn check(file: &Path, cases: &[&Case]) -> Result<()> {
    log::set_logger(&Warnings).map_err(|error| error.to_string())?;
    log::set_max_level(log::LevelFilter::Warn);
    let server = Server::builder().threads(1).start()?;
    let device = device(&server)?;
    let (mut models, mut logits) = (0, 0);
    // Of the others, all layers are on a server anyway, or there is no file.
    for case in cases.iter().filter(|case| !case.divided && case.there.is_none()) {
        // What this asks of the server is not answered by an error if it is refused: llama.cpp ends the process.
        logits += same(case, file, device).map_err(|error| format!("{} on a server: {error}", case.name))?;
        models += 1;
    }
    println!("remote: models={models} logits={logits} differing=0");
    Ok(())
}

/// The number of logits of a case that are the same.
fn same(case: &Case, file: &Path, device: ggml_backend_dev_t) -> Result<usize> {
    case.recipe.write(file)?;
    // Servers don't repack.
    let options = Options { repack: false, ..case.options.clone() };
    let (mut local, mut remote) = (Llama::open(file, &options)?, Llama::open_on(file, &options, Some(device))?);
    let mut token = case.tokens()?;
    let mut prompt = Vec::new();
    for (sequence, &n) in (0..).zip(case.lengths()) {
        prompt.extend((0..n).map(|i| token(sequence, i as i32)));
    }
    let mut logits = compare(&mut local, &mut remote, &prompt)?;
    let mut moved = 0;
    if case.script == Script::Shift {
        moved = 40;
        local.shift(0, 4, moved)?;
        remote.shift(0, 4, moved)?;
    }
    for step in 0..STEPS {
        let place = |(sequence, &n): (i32, &usize)| token(sequence, (n + step) as i32 - moved);
        let tokens: Vec<_> = (0..).zip(case.lengths()).map(place).collect();
        logits += compare(&mut local, &mut remote, &tokens)?;
    }
    Ok(logits)
}

fn compare(local: &mut Llama, remote: &mut Llama, tokens: &[Token]) -> Result<usize> {
    let (a, b) = (local.decode(tokens)?.concat(), remote.decode(tokens)?.concat());
    let differing = a.iter().zip(&b).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
    if differing > 0 || a.len() != b.len() {
        return Err(format!("{differing} of {} logits differ", a.len()).into());
    }
    Ok(a.len())
}

/// The server's device, by ggml's own client, without this crate's relay.
fn device(server: &Server) -> Result<ggml_backend_dev_t> {
    let endpoint = CString::new(server.address().to_string())?;
    // SAFETY: a C string, which ggml copies.
    let registry = unsafe { sys::ggml_backend_rpc_add_server(endpoint.as_ptr()) };
    if registry.is_null() {
        return Err("ggml's client finds no server".into());
    }
    // SAFETY: a registry, which ggml keeps for ever.
    unsafe { sys::ggml_backend_register(registry) };
    // SAFETY: as above; a server has a device.
    Ok(unsafe { sys::ggml_backend_reg_dev_get(registry, 0) }.cast())
}

/// Prints why the server disconnects a client.
struct Warnings;

impl log::Log for Warnings {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        println!("{}: {}", record.level(), record.args());
    }

    fn flush(&self) {}
}
