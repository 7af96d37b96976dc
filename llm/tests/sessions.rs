//! Sessions of made-up models: batches, sequences, and what they remember.

#![cfg(test)]

use std::sync::Arc;

use ggml::DType;
use ggml::gguf::{Reader, Writer};
use ggml_llm::made_up::Recipe;
use ggml_llm::{Architecture, Batch, Error, Model, ModelOptions, Session, SessionOptions};

/// How far logits may be apart where sums are added up in another order, or products are computed by another kernel.
const TOLERANCE: f32 = 2e-2;

fn model(architecture: Architecture) -> Arc<Model> {
    load(&Recipe::new(architecture))
}

fn load(recipe: &Recipe) -> Arc<Model> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.gguf");
    recipe.write(&file).unwrap();
    Model::load(&file, &ModelOptions::default()).unwrap()
}

fn session(model: &Arc<Model>, change: impl FnOnce(&mut SessionOptions)) -> Session {
    let mut options = SessionOptions::default();
    (options.n_ctx, options.threads) = (256, 1);
    change(&mut options);
    Session::new(Arc::clone(model), &options).unwrap()
}

fn tokens(seed: u64, n: usize) -> Vec<i32> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..n).map(|_| rng.i32(0..320)).collect()
}

/// The logits after these tokens.
fn decode(session: &mut Session, sequence: usize, tokens: &[i32]) -> Vec<f32> {
    let mut batch = Batch::new();
    batch.prompt(sequence, tokens);
    session.decode(&batch).unwrap();
    session.logits(0).unwrap().to_vec()
}

#[track_caller]
fn assert_near(a: &[f32], b: &[f32]) {
    assert_eq!(a.len(), b.len());
    let apart = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(apart < TOLERANCE, "{apart}");
}

/// Logits of other tokens are not near, or the comparisons would show nothing.
#[test]
fn logits_depend_on_all_tokens() {
    for &architecture in Architecture::ALL {
        let model = model(architecture);
        let text = tokens(1, 20);
        let mut other = text.clone();
        other[0] = (other[0] + 1) % 320;
        let [a, b] = [&text, &other].map(|t| decode(&mut session(&model, |_| ()), 0, t));
        let apart = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(apart > TOLERANCE, "{architecture}: {apart}");
    }
}

#[test]
fn a_prompt_is_the_same_in_parts_of_any_size() {
    for &architecture in Architecture::ALL {
        let model = model(architecture);
        let text = tokens(2, 50);
        let whole = decode(&mut session(&model, |_| ()), 0, &text);
        assert_near(&whole, &decode(&mut session(&model, |o| o.n_batch = 7), 0, &text));
        let mut single = session(&model, |_| ());
        let steps: Vec<_> = text.iter().map(|&t| decode(&mut single, 0, &[t])).collect();
        assert_near(&whole, steps.last().unwrap());
        assert_eq!(single.len(0).unwrap(), 50);
    }
}

/// The layer that is left out where no logits are wanted may be the only one with its mask.
#[test]
fn a_prompt_of_a_model_with_few_layers_is_the_same_in_parts() {
    for &architecture in Architecture::ALL {
        for n_layer in [1, 2] {
            let mut recipe = Recipe::new(architecture);
            recipe.n_layer = n_layer;
            let (model, text) = (load(&recipe), tokens(2, 20));
            let whole = decode(&mut session(&model, |_| ()), 0, &text);
            assert_near(&whole, &decode(&mut session(&model, |o| o.n_batch = 7), 0, &text));
        }
    }
}

#[test]
fn sequences_of_a_batch_do_not_see_each_other() {
    for &architecture in Architecture::ALL {
        let model = model(architecture);
        let texts = [tokens(3, 30), tokens(4, 3), tokens(5, 17)];
        let alone: Vec<_> = texts.iter().map(|t| decode(&mut session(&model, |_| ()), 0, t)).collect();
        let mut together = session(&model, |o| (o.n_seq, o.n_batch) = (3, 16));
        let mut batch = Batch::new();
        // In turns, so that their tokens are mixed.
        for i in 0..30 {
            for (sequence, text) in texts.iter().enumerate().filter(|(_, t)| i < t.len()) {
                batch.push(sequence, text[i], i + 1 == text.len());
            }
        }
        together.decode(&batch).unwrap();
        // Outputs come in the order of the batch: the shortest sequence ends first.
        for (output, sequence) in [1, 2, 0].into_iter().enumerate() {
            assert_near(together.logits(output).unwrap(), &alone[sequence]);
        }
        assert_eq!(together.logits(3), None);
    }
}

/// A graph reads no cells before those of its sequences.
#[test]
fn a_sequence_behind_a_long_one_is_the_same() {
    for &architecture in Architecture::ALL {
        let model = model(architecture);
        let texts = [tokens(8, 300), tokens(9, 21)];
        let next = |session: &mut Session, sequence| decode(session, sequence, &[7]);
        let alone = texts.each_ref().map(|text| {
            let mut session = session(&model, |o| o.n_ctx = 512);
            [decode(&mut session, 0, text), next(&mut session, 0)]
        });
        let mut both = session(&model, |o| (o.n_seq, o.n_ctx) = (2, 512));
        for (sequence, text) in texts.iter().enumerate() {
            assert_near(&alone[sequence][0], &decode(&mut both, sequence, text));
        }
        assert_near(&alone[1][1], &next(&mut both, 1));
        assert_near(&alone[0][1], &next(&mut both, 0));
        let mut batch = Batch::new();
        (0..2).for_each(|sequence| batch.push(sequence, 7, true));
        both.decode(&batch).unwrap();
        assert_eq!(both.len(1).unwrap(), 23);
    }
}

#[test]
fn a_truncated_sequence_continues_as_if_the_rest_had_not_been() {
    let model = model(Architecture::Gemma3);
    let text = tokens(6, 40);
    let mut session = session(&model, |_| ());
    let first = decode(&mut session, 0, &text);
    session.truncate(0, 25).unwrap();
    decode(&mut session, 0, &tokens(7, 9));
    session.truncate(0, 25).unwrap();
    assert_eq!(session.len(0).unwrap(), 25);
    assert_near(&decode(&mut session, 0, &text[25..]), &first);
}

#[test]
fn a_shared_beginning_is_computed_once() {
    for architecture in [Architecture::Llama, Architecture::Mamba2] {
        let model = model(architecture);
        let (begin, ends) = (tokens(8, 20), [tokens(9, 5), tokens(10, 6)]);
        let mut shared = session(&model, |o| o.n_seq = 2);
        decode(&mut shared, 0, &begin);
        shared.share(0, 1, 20).unwrap();
        for (sequence, end) in ends.iter().enumerate() {
            let whole = [&*begin, end].concat();
            assert_near(&decode(&mut shared, sequence, end), &decode(&mut session(&model, |_| ()), 0, &whole));
        }
        assert!(matches!(shared.share(0, 1, 1), Err(Error::Sequence { sequence: 1, .. })), "not empty");
    }
}

#[test]
fn a_restored_sequence_gives_the_same_bits() {
    for architecture in [Architecture::Gemma3, Architecture::Mamba2] {
        let model = model(architecture);
        let mut first = session(&model, |o| o.n_seq = 2);
        decode(&mut first, 1, &tokens(11, 5)); // so that cells are not the first ones
        decode(&mut first, 0, &tokens(12, 30));
        let saved = first.save(0).unwrap();
        let mut second = session(&model, |_| ());
        second.restore(0, &saved).unwrap();
        assert_eq!(second.save(0).unwrap(), saved);
        let next = tokens(13, 1);
        assert_near(&decode(&mut second, 0, &next), &decode(&mut first, 0, &next));
        let again = second.restore(0, &saved);
        assert!(matches!(again, Err(Error::Sequence { .. })), "{again:?}");
        // Damaged or of another model: an error, and the sequence stays empty.
        second.truncate(0, 0).unwrap();
        for bytes in (0..saved.len()).step_by(saved.len() / 97 + 1).map(|n| &saved[..n]) {
            let restored = second.restore(0, bytes);
            assert!(matches!(restored, Err(Error::Saved(_))), "{restored:?}");
        }
        let longer = [&*saved, &[0; 4]].concat();
        assert!(matches!(second.restore(0, &longer), Err(Error::Saved(_))));
        assert!(matches!(session(&self::model(Architecture::Llama), |_| ()).restore(0, &saved), Err(Error::Saved(_))));
        // The same file with another cache, and another file of the same shapes.
        let mut options = Recipe::new(architecture);
        options.seed = 2;
        let mut others = vec![session(&load(&options), |_| ())];
        if architecture == Architecture::Gemma3 {
            others.push(session(&model, |o| o.cache = DType::Q8_0));
        }
        for mut other in others {
            let restored = other.restore(0, &saved);
            assert!(matches!(&restored, Err(Error::Saved(why)) if why.contains("belongs to another")), "{restored:?}");
        }
        second.restore(0, &saved).unwrap();
    }
}

/// A sixth of Phi-4-mini: as many heads for each of keys, the same heads, of which three quarters are rotated, and as many
/// factors.
#[test]
fn a_model_of_the_shape_of_phi_4_mini_computes() {
    let mut recipe = Recipe::new(Architecture::Phi3);
    recipe.optional.extend(["rope_factors_long.weight", "rope_factors_short.weight"].map(String::from));
    recipe.optional.retain(|name| name != "output.weight"); // its embeddings are tied
    recipe.dtype = DType::Q8_0;
    (recipe.n_layer, recipe.n_embd, recipe.n_ff, recipe.n_head, recipe.n_head_kv) = (2, 768, 1024, 6, 2);
    recipe.metadata = vec![
        ("rope.dimension_count".into(), 96_u32.into()),
        ("rope.scaling.attn_factor".into(), 1.190_238_1_f32.into()),
        ("rope.scaling.original_context_length".into(), 300_u32.into()),
        ("attention.sliding_window".into(), 262_144_u32.into()),
    ];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.gguf");
    recipe.write(&file).unwrap();
    // The same with these 48 factors, or with none.
    let with = |factors: Option<f32>| {
        let reader = Reader::from_bytes(std::fs::read(&file).unwrap()).unwrap();
        let mut writer = Writer::new();
        writer.set_kv(&reader).unwrap();
        for t in reader.tensors() {
            let data = reader.data(t.name()).unwrap();
            match (t.name().starts_with("rope_factors"), factors) {
                (true, None) => {}
                (true, Some(factor)) => {
                    assert_eq!((t.shape(), data.len()), ([48].into(), 192));
                    let data = factor.to_le_bytes().repeat(48);
                    writer.tensor(t.name(), t.dtype(), t.shape(), &data).unwrap();
                }
                (false, _) => drop(writer.tensor(t.name(), t.dtype(), t.shape(), data).unwrap()),
            }
        }
        let path = folder.path().join("changed.gguf");
        writer.write(&path).unwrap();
        Model::load(&path, &ModelOptions::default()).unwrap()
    };
    let text = tokens(31, 40);
    let logits = |model: &Arc<Model>, n_ctx| decode(&mut session(model, |o| o.n_ctx = n_ctx), 0, &text);
    let model = Model::load(&file, &ModelOptions::default()).unwrap();
    let [short, long] = [256, 512].map(|n_ctx| logits(&model, n_ctx));
    assert!(short.iter().chain(&long).all(|x| x.is_finite()));
    let apart = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(apart(&short, &long) > 1e-3, "a longer context has other factors");
    // Factors of 1 are none; others, of all 48 pairs, are as a division of all positions.
    let none = logits(&with(None), 256);
    assert_eq!(logits(&with(Some(1.0)), 256), none);
    assert!(apart(&logits(&with(Some(4.0)), 256), &none) > 1e-3);
    // A shift rotates as many elements.
    let model = with(Some(4.0));
    let mut shifted = session(&model, |_| ());
    decode(&mut shifted, 0, &text);
    shifted.shift(0, 0, 1).unwrap();
    decode(&mut shifted, 0, &tokens(32, 1));
    // What was saved with the short factors is of no use with the long ones.
    let model = Model::load(&file, &ModelOptions::default()).unwrap();
    let mut first = session(&model, |o| o.n_ctx = 256);
    decode(&mut first, 0, &text);
    let saved = first.save(0).unwrap();
    assert!(session(&model, |o| o.n_ctx = 512).restore(0, &saved).is_err());
    session(&model, |o| o.n_ctx = 256).restore(0, &saved).unwrap();
}

/// With `YaRN` the rotation has a factor, which keys in the cache have already.
#[test]
fn a_shift_by_nothing_changes_nothing() {
    for architecture in [Architecture::GptOss, Architecture::Llama] {
        for cache in [DType::F16, DType::Q8_0] {
            let mut session = session(&model(architecture), |o| o.cache = cache);
            decode(&mut session, 0, &tokens(14, 20));
            let before = session.save(0).unwrap();
            session.shift(0, 4, 0).unwrap();
            assert!(session.save(0).unwrap() == before, "{architecture}, {}", cache.name());
        }
    }
}

#[test]
fn a_shifted_context_has_room_again() {
    let model = model(Architecture::Llama);
    let mut session = session(&model, |_| ());
    decode(&mut session, 0, &tokens(15, 250));
    let full = session.decode(&{
        let mut batch = Batch::new();
        batch.prompt(0, &tokens(16, 7));
        batch
    });
    assert!(matches!(full, Err(Error::Full { free: 6, size: 256, needed: 7 })), "{full:?}");
    assert_eq!((session.len(0).unwrap(), session.logits(0)), (250, None));
    session.shift(0, 4, 100).unwrap();
    assert_eq!(session.len(0).unwrap(), 150);
    decode(&mut session, 0, &tokens(16, 7));
    assert_eq!(session.len(0).unwrap(), 157);
    assert!(matches!(session.shift(0, 100, 58), Err(Error::Sequence { .. })), "more than there are");
}

/// A model with one layer: a token's key depends on the token and its position alone, so a shift gives what the remaining
/// tokens would have given.
#[test]
fn a_shifted_context_of_one_layer_is_that_of_the_remaining_tokens() {
    for cache in [DType::F16, DType::Q8_0] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("model.gguf");
        let mut recipe = Recipe::new(Architecture::Qwen3);
        recipe.n_layer = 1;
        recipe.write(&file).unwrap();
        let model = Model::load(&file, &ModelOptions::default()).unwrap();
        let text = tokens(17, 60);
        let mut shifted = session(&model, |o| o.cache = cache);
        decode(&mut shifted, 0, &text[..59]);
        shifted.shift(0, 5, 30).unwrap();
        let rest = [&text[..5], &text[35..]].concat();
        let wanted = decode(&mut session(&model, |_| ()), 0, &rest);
        assert_near(&decode(&mut shifted, 0, &text[59..]), &wanted);
    }
}

#[test]
fn batches_that_cannot_be_computed_are_refused() {
    let model = model(Architecture::Mamba2);
    let mut session = session(&model, |o| o.n_seq = 2);
    let mut batch = Batch::new();
    assert!(matches!(session.decode(&batch), Err(Error::Batch(_))), "empty");
    for token in [-1, 320, i32::MAX, i32::MIN] {
        batch.clear();
        batch.prompt(0, &[1, token]);
        let refused = session.decode(&batch);
        assert!(matches!(&refused, Err(Error::Batch(why)) if why.contains(&token.to_string())), "{refused:?}");
    }
    batch.clear();
    batch.prompt(2, &[1]);
    assert!(matches!(session.decode(&batch), Err(Error::Sequence { sequence: 2, .. })));
    assert_eq!(session.len(0).unwrap(), 0);
    decode(&mut session, 0, &[1, 2, 3]);
    for refused in [session.truncate(0, 2), session.share(0, 1, 2), session.shift(0, 0, 1), session.truncate(9, 0)] {
        assert!(matches!(refused, Err(Error::Sequence { .. })), "{refused:?}");
    }
    session.truncate(0, 0).unwrap();
    let fresh = decode(&mut self::session(&model, |_| ()), 0, &[5, 6]);
    assert_near(&decode(&mut session, 0, &[5, 6]), &fresh);
}

#[test]
fn sizes_without_sense_are_refused() {
    let model = model(Architecture::Llama);
    let refused = |change: fn(&mut SessionOptions)| {
        let mut options = SessionOptions::default();
        change(&mut options);
        let error = Session::new(Arc::clone(&model), &options).unwrap_err();
        assert!(matches!(error, Error::Options { .. }), "{error}");
    };
    refused(|o| o.n_seq = 0);
    refused(|o| o.n_seq = 65);
    refused(|o| o.n_batch = 0);
    refused(|o| o.n_ctx = usize::MAX);
}

#[test]
fn quantised_keys_and_values_are_near() {
    let model = model(Architecture::Llama);
    let text = tokens(18, 40);
    let exact = decode(&mut session(&model, |_| ()), 0, &text);
    let near = decode(&mut session(&model, |o| o.cache = DType::Q8_0), 0, &text);
    let apart = exact.iter().zip(&near).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(apart > 0.0 && apart < 0.2, "{apart}");
}

/// Prompts, steps and several sequences, by this project's kernels and by ggml's.
#[test]
fn logits_of_both_kernels_are_near() {
    for &architecture in Architecture::ALL {
        for dtype in [DType::F16, DType::Q8_0, DType::Q4_0, DType::Q4_K] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("model.gguf");
            let mut recipe = Recipe::new(architecture);
            recipe.dtype = dtype;
            recipe.write(&file).unwrap();
            let [a, b] = [true, false].map(|kernels| {
                let mut options = ModelOptions::default();
                options.kernels = kernels;
                let model = Model::load(&file, &options).unwrap();
                let mut session = session(&model, |o| o.n_seq = 3);
                let mut all = decode(&mut session, 0, &tokens(21, 30));
                all.extend(decode(&mut session, 0, &tokens(22, 1)));
                let mut batch = Batch::new();
                (0..3).for_each(|sequence| batch.push(sequence, 7, true));
                session.decode(&batch).unwrap();
                (0..3).for_each(|i| all.extend_from_slice(session.logits(i).unwrap()));
                all
            });
            let norm = |x: &[f32]| x.iter().map(|x| x * x).sum::<f32>().sqrt();
            let apart: Vec<_> = a.iter().zip(&b).map(|(a, b)| a - b).collect();
            let share = norm(&apart) / norm(&b);
            // ggml rounds activations to f16, or to bytes with a scale in f16, for q4_K one scale for 256 of them. With AVX2,
            // steps for q8_0 are about as large as these.
            let allowed = match dtype {
                DType::F16 => 2e-3,
                DType::Q8_0 if kernels::describe().starts_with("AVX2") => 8e-2,
                _ => 6e-2,
            };
            assert!(share < allowed, "{architecture} {dtype}: {share}");
            let own = kernels::multiplies(dtype, [256, 512, 1, 1]);
            assert!(share > 0.0 || !own, "{architecture} {dtype}: ggml's kernels computed both");
        }
    }
}
