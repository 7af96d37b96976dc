//! Sampling and streaming allocate nothing once warm. Alone in its program, which counts its allocations.
#![cfg(test)]

use ggml::gguf::{Reader, Writer};
use ggml_llm::text::{Sampler, SamplerOptions, TokenStream, Tokenizer};
use testkit::counted::{self, Counted};

#[global_allocator]
static ALLOCATOR: Counted = Counted;

#[test]
fn samples_and_streams_allocate_nothing_once_warm() {
    let mut random = fastrand::Rng::with_seed(1);
    let logits: Vec<f32> = (0..5000).map(|_| random.f32() * 9.0).collect();
    let history: Vec<i32> = (0..100).collect();
    let o = SamplerOptions::new().with_temperature(0.8).with_repeat_penalty(1.1);
    let mut samplers = [o, o.with_top_k(40).with_min_p(0.05), o.with_top_p(0.95), o.with_temperature(0.0)]
        .map(|options| Sampler::new(options).unwrap());
    for sampler in &mut samplers {
        sampler.sample(&logits, &history).unwrap();
    }

    let mut file = Writer::new();
    file.set("tokenizer.ggml.model", "gpt2").unwrap();
    file.set("tokenizer.ggml.tokens", ["hello", "Ã", "©", "Ġ"].map(str::to_owned).to_vec()).unwrap();
    file.set("tokenizer.ggml.merges", Vec::<String>::new()).unwrap();
    let tokenizer = Tokenizer::from_gguf(&Reader::from_bytes(file.to_bytes().unwrap()).unwrap()).unwrap();
    let mut stream = TokenStream::new(&tokenizer);
    let tokens = [0, 1, 2, 3, 1, 0];
    for id in tokens {
        stream.push(id).unwrap();
    }

    let before = counted::allocations();
    for _ in 0..20 {
        for sampler in &mut samplers {
            sampler.sample(&logits, &history).unwrap();
        }
        for id in tokens {
            stream.push(id).unwrap();
        }
    }
    assert_eq!(counted::allocations() - before, 0);
}
