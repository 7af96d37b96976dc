use std::{env, path::Path};

fn main() {
    println!("cargo::rerun-if-env-changed=WHISPER_CPP");
    let whisper = env::var("WHISPER_CPP").expect("WHISPER_CPP: the folder of whisper.cpp");
    let whisper = Path::new(&whisper);
    // Cargo sets it, as ggml-sys is a dependency in Cargo.toml.
    let ggml = env::var("DEP_GGML_INCLUDE").expect("ggml-sys tells where its headers are");
    let build = |cpp: bool| {
        let mut build = cc::Build::new();
        // An abort of ggml may be an exception, which must pass these functions.
        build.cpp(cpp).include(&ggml).flag_if_supported("-fexceptions").warnings(false);
        build
    };
    build(false).file("src/sum.c").compile("sum");
    build(true)
        .std("c++17")
        .include(whisper.join("include"))
        .define("WHISPER_VERSION", "\"registry\"")
        .file(whisper.join("src/whisper.cpp"))
        .compile("whisper");
}
