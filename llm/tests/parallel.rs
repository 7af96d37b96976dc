//! Models whose layers are divided among devices, with a part of the cache on each. (ggml 0.26 can't have it on CPUs only.)

#![cfg(test)]
#![cfg(feature = "rpc")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ggml::{DType, Device, rpc};
use ggml_llm::made_up::Recipe;
use ggml_llm::{Architecture, Batch, Error, Model, ModelOptions, Session, SessionOptions, SplitMode};
use testkit::server::ServerProcess;

/// The child process: see `testkit::server`.
#[test]
fn server_process() {
    testkit::server::server_process();
}

/// Families with models that can be divided.
const DIVIDED: [Architecture; 4] =
    [Architecture::Llama, Architecture::Qwen2, Architecture::Qwen3, Architecture::Gemma3];

fn load(file: &Path, devices: &[Device], split: &[u32]) -> Result<Arc<Model>, Error> {
    let mut options = ModelOptions::default();
    (options.devices, options.split) = (devices.to_vec(), split.to_vec());
    options.split_mode = SplitMode::Tensor;
    // Servers have ggml's kernels, and don't repack; others round otherwise.
    (options.kernels, options.repack) = (false, false);
    Model::load(file, &options)
}

fn session(model: Arc<Model>, cache: DType) -> Session {
    let mut options = SessionOptions::default();
    (options.n_ctx, options.n_seq, options.threads, options.n_batch) = (512, 2, 1, 40);
    options.cache = cache;
    Session::new(model, &options).unwrap()
}

/// The logits after each batch: prompts longer than a batch, steps, two sequences at once, and a prefix that is shared.
fn logits(session: &mut Session) -> Vec<Vec<f32>> {
    let mut rng = fastrand::Rng::with_seed(3);
    let mut some = |n: usize| (0..n).map(|_| rng.i32(0..320)).collect::<Vec<_>>();
    let mut all = Vec::new();
    let mut decode = |session: &mut Session, parts: &[(usize, Vec<i32>)]| {
        let mut batch = Batch::new();
        for (sequence, tokens) in parts {
            batch.prompt(*sequence, tokens);
        }
        session.decode(&batch).unwrap();
        all.extend((0..parts.len()).map(|i| session.logits(i).unwrap().to_vec()));
    };
    decode(session, &[(0, some(45))]);
    for _ in 0..3 {
        decode(session, &[(0, some(1))]);
    }
    session.share(0, 1, 40).unwrap();
    decode(session, &[(1, some(20)), (0, some(1))]);
    decode(session, &[(0, some(1)), (1, some(1))]);
    decode(session, &[(0, some(230))]); // the next bucket of the cache
    session.truncate(1, 10).unwrap();
    decode(session, &[(1, some(5))]);
    all
}

/// The root mean square of the differences, by that of the wanted logits.
fn apart(got: &[Vec<f32>], wanted: &[Vec<f32>]) -> f64 {
    let square = |x: f32| f64::from(x) * f64::from(x);
    let pairs = || got.iter().flatten().zip(wanted.iter().flatten());
    assert_eq!(pairs().count(), wanted.iter().flatten().count());
    let difference: f64 = pairs().map(|(a, b)| square(a - b)).sum();
    (difference / pairs().map(|(_, b)| square(*b)).sum::<f64>()).sqrt()
}

/// A model file that the recipe says.
fn made_up(folder: &Path, architecture: Architecture, change: impl FnOnce(&mut Recipe)) -> PathBuf {
    let file = folder.join("model.gguf");
    let mut recipe = Recipe::new(architecture);
    change(&mut recipe);
    recipe.write(&file).unwrap();
    file
}

/// A session on one CPU, with ggml's kernels.
fn alone(file: &Path, cache: DType) -> Session {
    let mut options = ModelOptions::default();
    (options.devices, options.kernels, options.repack) = (vec![Device::cpu().unwrap()], false, false);
    session(Model::load(file, &options).unwrap(), cache)
}

#[test]
fn layers_divided_among_devices_compute_the_same() {
    let servers = [(); 2].map(|()| ServerProcess::start());
    let connections = servers.each_ref().map(|server| rpc::connect(&server.address.to_string()).unwrap());
    let remote = connections.each_ref().map(|connection| connection.devices()[0]);
    let cpu = Device::cpu().unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (architecture, dtype, cache, tolerance) in [
        (Architecture::Llama, DType::F32, DType::F32, 1e-5),
        (Architecture::Llama, DType::F16, DType::F16, 3e-3),
        (Architecture::Llama, DType::Q8_0, DType::Q8_0, 2e-2),
        (Architecture::Qwen2, DType::F16, DType::F16, 3e-3),
        (Architecture::Qwen3, DType::F16, DType::F16, 3e-3),
        (Architecture::Gemma3, DType::F16, DType::F16, 3e-3),
    ] {
        let file = made_up(folder.path(), architecture, |recipe| recipe.dtype = dtype);
        let wanted = logits(&mut alone(&file, cache));
        let mixed = (architecture, dtype) == (Architecture::Llama, DType::F32);
        for devices in [remote, [remote[0], cpu]].into_iter().take(1 + usize::from(mixed)) {
            let mut divided = session(load(&file, &devices, &[]).unwrap(), cache);
            let apart = apart(&logits(&mut divided), &wanted);
            assert!(apart < tolerance, "{architecture}, {dtype} on {devices:?}: {apart}");
            assert!(apart > 0.0, "{architecture}: sums of two devices round otherwise, so this is no division");
        }
    }
}

/// Three parts of the heads for one device, and one for the other.
#[test]
fn layers_are_divided_by_parts() {
    let server = ServerProcess::start();
    let connection = rpc::connect(&server.address.to_string()).unwrap();
    let devices = [connection.devices()[0], Device::cpu().unwrap()];
    let folder = tempfile::tempdir().unwrap();
    let file = made_up(folder.path(), Architecture::Llama, |recipe| {
        (recipe.n_head_kv, recipe.dtype) = (4, DType::F32);
    });
    let wanted = logits(&mut alone(&file, DType::F32));
    let mut divided = session(load(&file, &devices, &[3, 1]).unwrap(), DType::F32);
    let apart = apart(&logits(&mut divided), &wanted);
    assert!(apart > 0.0 && apart < 1e-5, "{apart}");
}

/// A session is saved where its cache is divided, and goes on elsewhere after a server is lost.
#[test]
fn a_divided_session_of_a_lost_server_goes_on_elsewhere() {
    let mut servers = [(); 2].map(|()| ServerProcess::start());
    let connections = servers.each_ref().map(|server| rpc::connect(&server.address.to_string()).unwrap());
    let remote = connections.each_ref().map(|connection| connection.devices()[0]);
    let folder = tempfile::tempdir().unwrap();
    let file = made_up(folder.path(), Architecture::Llama, |_| ());
    let mut first = session(load(&file, &remote, &[]).unwrap(), DType::F16);
    let decode = |session: &mut Session, tokens: &[i32]| {
        let mut batch = Batch::new();
        batch.prompt(0, tokens);
        session.decode(&batch)
    };
    let prompt: Vec<_> = (0..30).collect();
    decode(&mut first, &prompt).unwrap();
    let saved = first.save(0).unwrap();
    servers[1].kill();
    let lost = decode(&mut first, &[7]);
    assert!(matches!(lost, Err(Error::Ggml(ggml::Error::RpcLost { .. }))), "{lost:?}");
    assert!(first.save(0).is_err() && first.len(0).unwrap() == prompt.len());
    let mut second = alone(&file, DType::F16);
    second.restore(0, &saved).unwrap();
    decode(&mut second, &[7]).unwrap();
    let mut whole = alone(&file, DType::F16);
    decode(&mut whole, &prompt).unwrap();
    decode(&mut whole, &[7]).unwrap();
    let [got, wanted] = [&second, &whole].map(|session| vec![session.logits(0).unwrap().to_vec()]);
    let apart = apart(&got, &wanted);
    assert!(apart < 3e-3, "{apart}");
}

#[test]
fn what_can_not_be_divided_is_refused() {
    let server = ServerProcess::start();
    let connection = rpc::connect(&server.address.to_string()).unwrap();
    let remote = connection.devices()[0];
    let folder = tempfile::tempdir().unwrap();
    for &architecture in Architecture::ALL {
        let file = made_up(folder.path(), architecture, |_| ());
        let model = load(&file, &[remote, remote], &[]);
        let refused = matches!(model, Err(Error::Options { name: "split_mode", .. }));
        assert_eq!(refused, !DIVIDED.contains(&architecture), "{architecture}: {:?}", model.err());
    }
    let file = made_up(folder.path(), Architecture::Llama, |_| ());
    for (devices, split) in [(vec![remote; 3], &[][..]), (vec![remote; 2], &[100, 1])] {
        let refused = load(&file, &devices, split);
        assert!(matches!(refused, Err(Error::Options { name: "split_mode", .. })), "{split:?}: {refused:?}");
    }
    assert!(
        load(&file, &[remote], &[]).is_ok() && load(&file, &[remote; 2], &[0, 1]).is_ok(),
        "a single device has all"
    );
    let mut divided = session(load(&file, &[remote, remote], &[]).unwrap(), DType::F16);
    logits(&mut divided);
    let error = divided.shift(0, 4, 10).unwrap_err().to_string();
    assert!(error.contains("divided among devices"), "{error}");
}
