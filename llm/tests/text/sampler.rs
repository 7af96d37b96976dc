//! Samplers beside plain definitions.

use ggml_llm::text::{Sampler, SamplerOptions, TextError};

fn sampler(options: SamplerOptions) -> Sampler {
    Sampler::new(options).unwrap()
}

/// What may be drawn, and how likely each is: each definition word by word, in full and in f64.
fn definition(logits: &[f32], history: &[i32], options: &SamplerOptions) -> Vec<f64> {
    let mut logits: Vec<f64> = logits.iter().map(|&x| x.into()).collect();
    let recent = &history[history.len().saturating_sub(options.penalty_last)..];
    for (id, logit) in logits.iter_mut().enumerate() {
        let count = recent.iter().filter(|&&token| token as usize == id).count();
        if count > 0 {
            let penalty = f64::from(options.repeat_penalty);
            *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
            *logit -= count as f64 * f64::from(options.frequency_penalty);
            *logit -= f64::from(options.presence_penalty);
        }
    }
    let softmax = |logits: &[f64]| {
        let best = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = logits.iter().map(|x| (x - best).exp()).collect();
        let sum: f64 = weights.iter().sum();
        weights.into_iter().map(|w| w / sum).collect::<Vec<f64>>()
    };
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
    if options.top_k > 0 {
        order.truncate(options.top_k);
    }
    let remaining = |order: &[usize]| order.iter().map(|&id| logits[id]).collect::<Vec<_>>();
    let probabilities = softmax(&remaining(&order));
    if options.top_p < 1.0 {
        let (mut sum, mut n) = (0.0, 0);
        while sum < f64::from(options.top_p) {
            sum += probabilities[n];
            n += 1;
        }
        order.truncate(n);
    }
    let probabilities = softmax(&remaining(&order));
    let likely = probabilities.iter().filter(|&&p| p >= f64::from(options.min_p) * probabilities[0]).count();
    order.truncate(likely);
    let warm: Vec<f64> = remaining(&order).iter().map(|x| x / f64::from(options.temperature)).collect();
    let mut result = vec![0.0; logits.len()];
    for (&id, probability) in order.iter().zip(softmax(&warm)) {
        result[id] = probability;
    }
    result
}

/// Compares the frequencies of many draws with the definition.
fn distribution(logits: &[f32], history: &[i32], options: SamplerOptions) {
    let expected = definition(logits, history, &options);
    let mut sampler = sampler(options);
    let n = 20_000_u32;
    let mut counts = vec![0_u32; logits.len()];
    for _ in 0..n {
        counts[sampler.sample(logits, history).unwrap() as usize] += 1;
    }
    for (id, (&count, &p)) in counts.iter().zip(&expected).enumerate() {
        // Five standard deviations: of tens of thousands of such numbers, none is further away by chance.
        let away = (f64::from(count) - f64::from(n) * p).abs();
        let far = 5.0 * (f64::from(n) * p * (1.0 - p)).sqrt() + 1e-3;
        assert!(away <= far, "token {id} was drawn {count} times of {n}, expected {p}: {options:?}");
        assert!(p > 0.0 || count == 0, "token {id} is excluded");
    }
}

fn logits(n: usize, spread: f32, seed: u64) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..n).map(|_| (random.f32() - 0.5) * spread).collect()
}

#[test]
fn draws_are_distributed_as_defined() {
    let o = SamplerOptions::new().with_temperature(1.0).with_seed(1);
    let logits = logits(20, 8.0, 3);
    let history = [3, 3, 5, 7, 7, 7, 11, 0, 19];
    for (i, options) in [
        o,
        o.with_temperature(0.5),
        o.with_temperature(2.5),
        o.with_top_k(1),
        o.with_top_k(4),
        o.with_top_k(99),
        o.with_top_p(0.5),
        o.with_top_p(0.95).with_temperature(1.7),
        o.with_top_p(1e-6),
        o.with_min_p(0.2),
        o.with_min_p(1.0),
        o.with_repeat_penalty(1.4),
        o.with_repeat_penalty(0.8),
        o.with_frequency_penalty(0.7),
        o.with_presence_penalty(1.5).with_penalty_last(3),
        o.with_repeat_penalty(1.2).with_frequency_penalty(-0.3).with_presence_penalty(0.2),
        o.with_top_k(12).with_top_p(0.9).with_min_p(0.05).with_temperature(0.8).with_repeat_penalty(1.1),
    ]
    .into_iter()
    .enumerate()
    {
        distribution(&logits, &history, options.with_seed(i as u64));
    }
}

#[test]
fn large_vocabularies_are_cut_as_defined() {
    // More tokens than are sorted at once.
    for (seed, p) in [(1, 0.3), (2, 0.9), (3, 0.999)] {
        let logits = logits(3000, 3.0, seed);
        let options = SamplerOptions::new().with_temperature(1.0).with_top_p(p).with_seed(seed);
        let expected = definition(&logits, &[], &options);
        let mut sampler = sampler(options);
        for _ in 0..3000 {
            let id = sampler.sample(&logits, &[]).unwrap();
            assert!(expected[id as usize] > 0.0, "token {id} is not among the {p} most likely");
        }
    }
}

#[test]
fn greedy_takes_the_first_of_the_most_likely() {
    let mut greedy = sampler(SamplerOptions::new());
    assert_eq!(greedy.sample(&[1.0, 3.0, -2.0, 3.0], &[]).unwrap(), 1);
    assert_eq!(greedy.sample(&[-0.0, 0.0], &[]).unwrap(), 0);
    assert_eq!(greedy.sample(&[f32::NEG_INFINITY, -1e30], &[]).unwrap(), 1);
    let mut penalized = sampler(SamplerOptions::new().with_presence_penalty(1.0));
    assert_eq!(penalized.sample(&[1.0, 1.5, 0.0], &[1]).unwrap(), 0);
    assert_eq!(penalized.sample(&[1.0, 1.5, 0.0], &[]).unwrap(), 1, "the last history is forgotten");
}

#[test]
fn seeds_repeat_the_tokens() {
    let logits = logits(500, 4.0, 9);
    let draw = |seed| {
        let mut sampler = sampler(SamplerOptions::new().with_temperature(1.0).with_top_k(100).with_seed(seed));
        (0..50).map(|_| sampler.sample(&logits, &[]).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
}

#[test]
fn logits_without_a_choice_are_refused() {
    let mut sampler = sampler(SamplerOptions::new().with_temperature(1.0));
    let said = |result: Result<i32, TextError>| result.unwrap_err().to_string();
    assert_eq!(said(sampler.sample(&[0.0, f32::NAN], &[])), "no token can be chosen: the logit of token 1 is NaN");
    assert_eq!(said(sampler.sample(&[f32::INFINITY], &[])), "no token can be chosen: the logit of token 0 is inf");
    assert_eq!(
        said(sampler.sample(&[f32::NEG_INFINITY; 3], &[])),
        "no token can be chosen: of 3 tokens, each is excluded"
    );
    assert_eq!(said(sampler.sample(&[], &[])), "no token can be chosen: of 0 tokens, each is excluded");
    assert_eq!(sampler.sample(&[0.0, f32::NEG_INFINITY], &[]).unwrap(), 0, "the sampler still works");
}

#[test]
fn history_must_be_of_the_vocabulary() {
    let mut with = sampler(SamplerOptions::new().with_repeat_penalty(1.1).with_penalty_last(2));
    for id in [-1, 2, i32::MAX, i32::MIN] {
        assert!(matches!(with.sample(&[0.0, 1.0], &[id]), Err(TextError::NoSuchToken { vocab_size: 2, .. })));
        assert_eq!(with.sample(&[0.0, 1.0], &[id, 0, 0]).unwrap(), 1, "too long ago");
    }
    assert_eq!(sampler(SamplerOptions::new()).sample(&[0.0, 1.0], &[9]).unwrap(), 1, "nothing looks at it");
}

#[test]
fn extreme_logits_and_options_choose_a_token() {
    let extreme = [f32::MAX, f32::MIN, 0.0, f32::MIN_POSITIVE, -0.0, f32::NEG_INFINITY];
    let o = SamplerOptions::new().with_temperature(1e-30);
    for options in [
        o,
        o.with_temperature(f32::MAX),
        o.with_repeat_penalty(f32::MIN_POSITIVE),
        o.with_repeat_penalty(f32::MAX).with_frequency_penalty(f32::MAX),
        o.with_frequency_penalty(f32::MIN)
            .with_presence_penalty(f32::MIN)
            .with_top_p(0.1)
            .with_min_p(0.1)
            .with_top_k(2),
    ] {
        let mut sampler = sampler(options);
        for _ in 0..20 {
            let id = sampler.sample(&extreme, &[0, 0, 0, 1, 2, 3, 4, 5]).unwrap();
            assert!((0..5).contains(&id), "{options:?} drew {id}");
        }
    }
}

#[test]
fn options_out_of_range_are_refused() {
    let o = SamplerOptions::new();
    for (options, said) in [
        (o.with_temperature(-1.0), "`temperature` is -1, but must be 0 or a positive number"),
        (o.with_temperature(f32::NAN), "`temperature` is NaN"),
        (o.with_temperature(f32::INFINITY), "`temperature` is inf"),
        (o.with_top_p(0.0), "`top_p` is 0, but must be above 0 and at most 1"),
        (o.with_top_p(1.5), "`top_p` is 1.5"),
        (o.with_min_p(-0.1), "`min_p` is -0.1, but must be from 0 to 1"),
        (o.with_repeat_penalty(0.0), "`repeat_penalty` is 0, but must be a positive number"),
        (o.with_frequency_penalty(f32::NAN), "`frequency_penalty` is NaN"),
        (o.with_presence_penalty(f32::INFINITY), "`presence_penalty` is inf"),
    ] {
        let error = Sampler::new(options).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}
