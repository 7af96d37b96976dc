//! The program, run on small files.

use std::fs;

use clap::Parser as _;
use ggml::DType;
use ggml::gguf::Reader;

use crate::Cli;

/// A file with a matrix, a vector of bytes and a text, as the format's description has it.
fn file() -> Vec<u8> {
    let header = r#"{"__metadata__":{"format":"pt"},"model.layer.0.up":{"dtype":"F16","shape":[3,2],"data_offsets":[0,12]},"model.ids":{"dtype":"U8","shape":[2],"data_offsets":[12,14]}}"#;
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(1..15_u8);
    file
}

#[test]
fn safetensors_become_gguf() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.safetensors"), folder.path().join("out.gguf"));
    fs::write(&input, file()).unwrap();
    let run = |arguments: &[&str]| {
        let files = [input.to_str().unwrap(), output.to_str().unwrap()];
        let cli = Cli::try_parse_from(["safetensors_to_gguf"].iter().chain(&files).chain(arguments)).unwrap();
        let mut out = Vec::new();
        crate::run(&cli, &mut out).map_err(|e| format!("{e:#}"))?;
        Ok::<_, String>(String::from_utf8(out).unwrap())
    };

    let e = run(&[]).unwrap_err();
    assert!(e.contains("in.safetensors") && e.contains("`model.ids`: ggml has no type U8"), "{e}");
    assert!(!output.exists());

    let said =
        run(&["--skip", "ids", "--rename", "model.=", "--rename", "layer.=blk.", "--architecture", "example"]).unwrap();
    assert!(said.starts_with("safetensors_to_gguf: tensors=1 bytes=12 file="), "{said}");
    let mut reader = Reader::open(&output).unwrap();
    let t = reader.tensor("blk.0.up").unwrap();
    assert_eq!((t.dtype(), t.shape().ne()), (DType::F16, [2, 3, 1, 1]));
    assert_eq!(reader.read("blk.0.up").unwrap(), (1..13_u8).collect::<Vec<_>>());
    let text = |key| reader.metadata(key).and_then(|value| value.as_str());
    assert_eq!((text("general.architecture"), text("format")), (Some("example"), Some("pt")));

    assert!(run(&["--skip", "ids"]).unwrap_err().contains("--force"));
    run(&["--skip", "ids", "--force"]).unwrap();
    fs::write(&input, []).unwrap();
    assert!(run(&["--force"]).unwrap_err().contains("empty"));
    assert!(Cli::try_parse_from(["safetensors_to_gguf", "a", "b", "--rename", "=x"]).is_err());
}
