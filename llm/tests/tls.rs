//! Models with layers on a server that asks for certificates.

#![cfg(test)]
#![cfg(feature = "rpc-tls")]

use std::fs;

use clap::Parser as _;
use ggml::rpc::{Server, Tls};
use ggml_llm::made_up::Recipe;
use ggml_llm::place::ModelPlace;
use ggml_llm::{Architecture, Batch};

#[derive(Debug, clap::Parser)]
struct Cli {
    #[command(flatten)]
    place: ModelPlace,
}

fn parse(arguments: &[&str]) -> Result<ModelPlace, clap::Error> {
    Cli::try_parse_from(["test"].iter().chain(arguments)).map(|cli| cli.place)
}

#[test]
fn layers_are_on_servers_that_are_connected_by_tls() {
    let both = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (both.cert.pem(), both.signing_key.serialize_pem());
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("both.pem"), &certificate).unwrap();
    fs::write(path("both.key"), &key).unwrap();
    Recipe::new(Architecture::Llama).write(path("model.gguf")).unwrap();
    let server = Server::builder().threads(1).tls(Tls::new(&certificate, &key, &certificate).unwrap()).start().unwrap();
    let (file, address) = (path("model.gguf"), server.address().to_string());

    let plain = [&file, "--rpc", &address, "--threads", "1", "--ctx", "64"];
    let refused = parse(&plain).unwrap().load().unwrap_err();
    assert!(format!("{refused:#}").contains(&address), "{refused:#}");

    let (pem, secret) = (path("both.pem"), path("both.key"));
    let place = parse(&[&plain[..], &["--rpc-cert", &pem, "--rpc-key", &secret, "--rpc-ca", &pem]].concat()).unwrap();
    let mut session = place.devices.session(place.load().unwrap(), 1).unwrap();
    let mut batch = Batch::new();
    batch.prompt(0, &[1, 2, 3]);
    session.decode(&batch).unwrap();
    assert!(session.logits(0).unwrap().iter().all(|x| x.is_finite()));
    assert!(server.held() > 0 && server.clients().iter().any(|client| client.held > 0));

    let missing = [&plain[..], &["--rpc-cert", &pem, "--rpc-key", "nowhere", "--rpc-ca", &pem]].concat();
    let error = format!("{:#}", parse(&missing).unwrap().load().unwrap_err());
    assert!(error.contains("can't read nowhere"), "{error}");
    for wrong in [&["--rpc-cert", &pem][..], &["--rpc-ca", &pem], &["--rpc-cert", &pem, "--rpc-key", &secret]] {
        assert!(parse(&[&plain[..], wrong].concat()).is_err(), "{wrong:?}");
    }
}
