//! Models divided over devices, one of them a server in a process of its own that can be lost.

#![cfg(test)]
#![cfg(feature = "rpc")]

use std::path::Path;
use std::sync::Arc;

use ggml::{Device, rpc};
use ggml_llm::made_up::Recipe;
use ggml_llm::{Architecture, Batch, Error, Model, ModelOptions, Session, SessionOptions};
use testkit::server::ServerProcess;

/// The child process: see `testkit::server`.
#[test]
fn server_process() {
    testkit::server::server_process();
}

fn load(file: &Path, devices: &[Device], split: &[u32]) -> Result<Arc<Model>, Error> {
    let mut options = ModelOptions::default();
    (options.devices, options.split) = (devices.to_vec(), split.to_vec());
    // Servers have ggml's kernels, and don't repack; others round otherwise.
    (options.kernels, options.repack) = (false, false);
    Model::load(file, &options)
}

fn session(model: Arc<Model>) -> Session {
    let mut options = SessionOptions::default();
    (options.n_ctx, options.threads, options.n_batch) = (256, 1, 16);
    Session::new(model, &options).unwrap()
}

fn decode(session: &mut Session, tokens: &[i32]) -> Result<Vec<f32>, Error> {
    let mut batch = Batch::new();
    batch.prompt(0, tokens);
    session.decode(&batch)?;
    Ok(session.logits(0).unwrap().to_vec())
}

/// A prompt, longer than a batch, and steps.
fn texts() -> Vec<Vec<i32>> {
    let mut rng = fastrand::Rng::with_seed(3);
    let mut some = |n| (0..n).map(|_| rng.i32(0..320)).collect();
    vec![some(30), some(1), some(1)]
}

fn assert_near(a: &[f32], b: &[f32], what: &str) {
    let apart = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(a.len() == b.len() && apart < 1e-4, "{what}: {apart}");
}

#[test]
fn layers_on_two_devices_compute_the_same() {
    let server = ServerProcess::start();
    let connection = rpc::connect(&server.address.to_string()).unwrap();
    let (remote, cpu) = (connection.devices()[0], Device::cpu().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.gguf");
    for &architecture in Architecture::ALL {
        Recipe::new(architecture).write(&file).unwrap();
        let mut alone = session(load(&file, &[cpu], &[]).unwrap());
        let wanted: Vec<_> = texts().iter().map(|t| decode(&mut alone, t).unwrap()).collect();
        for (devices, split) in [([remote, cpu], [2, 1]), ([cpu, remote], [1, 2]), ([remote, cpu], [1, 0])] {
            let mut both = session(load(&file, &devices, &split).unwrap());
            for (text, wanted) in texts().iter().zip(&wanted) {
                let what = format!("{architecture}, {split:?} of {devices:?}");
                assert_near(&decode(&mut both, text).unwrap(), wanted, &what);
            }
        }
    }
}

#[test]
fn a_split_that_fits_no_devices_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.gguf");
    Recipe::new(Architecture::Llama).write(&file).unwrap();
    let cpu = Device::cpu().unwrap();
    for split in [&[1, 1][..], &[0], &[u32::MAX, u32::MAX, 1]] {
        let refused = load(&file, &[cpu], split);
        assert!(matches!(refused, Err(Error::Options { name: "split", .. })), "{refused:?}");
    }
}

#[test]
fn a_session_of_a_lost_server_goes_on_elsewhere() {
    for architecture in [Architecture::Llama, Architecture::Mamba2] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("model.gguf");
        Recipe::new(architecture).write(&file).unwrap();
        let mut server = ServerProcess::start();
        let connection = rpc::connect(&server.address.to_string()).unwrap();
        let (remote, cpu) = (connection.devices()[0], Device::cpu().unwrap());
        let [prompt, step, _] = &texts()[..] else { panic!("three texts") };
        let mut first = session(load(&file, &[remote, cpu], &[2, 1]).unwrap());
        decode(&mut first, prompt).unwrap();
        let saved = first.save(0).unwrap();
        server.kill();
        let lost = decode(&mut first, step);
        assert!(matches!(lost, Err(Error::Ggml(ggml::Error::RpcLost { .. }))), "{lost:?}");
        assert!(first.save(0).is_err() && first.len(0).unwrap() == prompt.len());
        let mut alone = session(load(&file, &[cpu], &[]).unwrap());
        decode(&mut alone, prompt).unwrap();
        let wanted = decode(&mut alone, step).unwrap();
        let mut second = session(load(&file, &[cpu], &[]).unwrap());
        second.restore(0, &saved).unwrap();
        assert_near(&decode(&mut second, step).unwrap(), &wanted, architecture.name());
    }
}
