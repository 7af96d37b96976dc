//! Data sets and results, without computations.

use ggml::opt::{Dataset, OptResult, Rng};
use ggml::prelude::*;
use half::{bf16, f16};

/// `n` datapoints of two elements, both equal to the datapoint's number, with the negated number as label.
fn numbered(n: usize) -> Dataset {
    let data: Vec<_> = (0..n).flat_map(|i| [i as f32; 2]).collect();
    Dataset::new(2, data).unwrap().with_labels(1, (0..n).map(|i| -(i as f32)).collect::<Vec<_>>()).unwrap()
}

/// The numbers of the datapoints in the current order, read in batches.
fn order(dataset: &Dataset, batch: usize) -> Vec<usize> {
    let (mut data, mut labels) = (vec![0.0; 2 * batch], vec![0.0; batch]);
    let batches = (0..dataset.ndata() / batch).flat_map(|i| {
        dataset.get_batch_host(i, &mut data, &mut labels).unwrap();
        assert!(data.chunks_exact(2).zip(&labels).all(|(d, &l)| d == [-l; 2]), "labels follow data");
        labels.iter().map(|&l| -l as usize).collect::<Vec<_>>()
    });
    batches.collect()
}

fn parameter<T: std::fmt::Debug>(result: ggml::Result<T>) -> &'static str {
    match result {
        Err(Error::Param { name, .. }) => name,
        other => panic!("{other:?}"),
    }
}

#[test]
fn dataset_shuffle_permutes_the_data() {
    let mut dataset = numbered(12);
    assert_eq!((dataset.ndata(), dataset.ne_datapoint(), dataset.ne_label()), (12, 2, 1));
    assert_eq!(order(&dataset, 4), (0..12).collect::<Vec<_>>());
    dataset.shuffle(&mut Rng::new(7), 12).unwrap();
    let first = order(&dataset, 4);
    assert_ne!(first, (0..12).collect::<Vec<_>>());
    let mut sorted = first.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..12).collect::<Vec<_>>());
    assert_eq!(order(&dataset, 3), first, "whatever the batch");
    // The same seed gives the same order, another seed another order.
    let with = |seed| {
        let mut dataset = numbered(12);
        dataset.shuffle(&mut Rng::new(seed), 12).unwrap();
        order(&dataset, 1)
    };
    assert_eq!(with(7), first);
    assert_ne!(with(8), first);
    // The rest keeps its place.
    dataset.shuffle(&mut Rng::new(3), 6).unwrap();
    let second = order(&dataset, 1);
    assert_eq!(second[6..], first[6..]);
    assert_ne!(second[..6], first[..6]);
    dataset.shuffle(&mut Rng::new(3), 0).unwrap();
    assert_eq!(order(&dataset, 1), second);
}

/// The numbers are those of `SplitMix64`'s reference, so that orders are reproducible.
#[test]
fn rng_equals_splitmix64() {
    let mut rng = Rng::new(1_234_567);
    let numbers: Vec<_> = (0..5).map(|_| rng.next_u64()).collect();
    let published = [
        6_457_827_717_110_365_317,
        3_203_168_211_198_807_973,
        9_817_491_932_198_370_423,
        4_593_380_528_125_082_431,
        16_408_922_859_458_223_821,
    ];
    assert_eq!(numbers, published);
    // All orders of three are about equally frequent.
    let mut seen = std::collections::HashMap::new();
    for _ in 0..6000 {
        let mut items = [0, 1, 2];
        rng.shuffle(&mut items);
        *seen.entry(items).or_insert(0) += 1;
    }
    assert!(seen.len() == 6 && seen.values().all(|n| (850..1150).contains(n)), "{seen:?}");
}

#[test]
fn dataset_shuffle_keeps_shards_together() {
    let mut dataset = numbered(12).with_shards(3).unwrap();
    dataset.shuffle(&mut Rng::new(1), 12).unwrap();
    let order = order(&dataset, 6);
    assert!(order.chunks_exact(3).all(|s| s[0] % 3 == 0 && s[1] == s[0] + 1 && s[2] == s[0] + 2), "{order:?}");
    assert_ne!(order, (0..12).collect::<Vec<_>>());
    assert_eq!(parameter(dataset.shuffle(&mut Rng::new(1), 4)), "idata");
    let (mut data, mut labels) = ([0.0; 8], [0.0; 4]);
    assert_eq!(parameter(dataset.get_batch_host(0, &mut data, &mut labels)), "data_batch");
}

#[test]
fn dataset_refuses_unsuitable_data() {
    assert_eq!(parameter(Dataset::new(0, [1.0_f32])), "ne_datapoint");
    assert_eq!(parameter(Dataset::new(3, Vec::<f32>::new())), "data");
    assert_eq!(parameter(Dataset::new(3, [0.0_f32; 4])), "data");
    let new = || Dataset::new(2, [0.0_f32; 6]).unwrap();
    assert_eq!(parameter(new().with_labels(0, [])), "ne_label");
    assert_eq!(parameter(new().with_labels(2, [0.0; 5])), "labels");
    assert_eq!(parameter(new().with_labels(usize::MAX, [0.0; 5])), "labels");
    assert_eq!(parameter(new().with_shards(0)), "ndata_shard");
    assert_eq!(parameter(new().with_shards(2)), "ndata_shard");
    assert_eq!(parameter(new().shuffle(&mut Rng::new(1), 4)), "idata");
}

#[test]
fn get_batch_host_refuses_batches_out_of_range() {
    let dataset = numbered(5);
    let get = |ibatch, data: usize, labels: usize| {
        parameter(dataset.get_batch_host(ibatch, &mut vec![0.0; data], &mut vec![0.0; labels]))
    };
    assert_eq!(get(0, 0, 0), "data_batch");
    assert_eq!(get(0, 3, 1), "data_batch");
    assert_eq!(get(0, 4, 1), "labels_batch");
    assert_eq!(get(0, 4, 0), "labels_batch");
    assert_eq!(get(2, 4, 2), "ibatch");
    assert_eq!(get(0, 12, 6), "ibatch");
    assert_eq!(get(usize::MAX, 4, 2), "ibatch");
    assert_eq!(get(usize::MAX / 2 + 1, 4, 2), "ibatch");
}

#[test]
fn get_batch_host_refuses_data_that_are_not_finite() {
    let read = |dataset: &Dataset| dataset.get_batch_host(1, &mut [0.0; 4], &mut [0.0; 2]);
    let mut dataset = numbered(4);
    read(&dataset).unwrap();
    dataset.data_mut()[0] = f32::NAN;
    read(&dataset).unwrap(); // not in that batch
    for data in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        dataset.data_mut()[7] = data;
        assert_eq!(parameter(read(&dataset)), "data_batch");
        let text = read(&dataset).unwrap_err().to_string();
        assert!(text.contains("element 1 of datapoint 3"), "{text}");
    }
    for label in [f32::NAN, f32::INFINITY] {
        let mut dataset = numbered(4);
        dataset.labels_mut()[3] = label;
        assert_eq!(parameter(read(&dataset)), "labels_batch");
        let text = read(&dataset).unwrap_err().to_string();
        assert!(text.contains("element 0 of datapoint 3"), "{text}");
    }
    for bad in [f64::NAN, f64::INFINITY] {
        let data = Dataset::new(1, [0.0, bad]).unwrap();
        assert_eq!(parameter(data.get_batch_host(0, &mut [0.0; 2], &mut [])), "data_batch");
        let data = Dataset::new(1, [f16::ZERO, f16::from_f64(bad)]).unwrap();
        assert_eq!(parameter(data.get_batch_host(0, &mut [f16::ZERO; 2], &mut [])), "data_batch");
        let data = Dataset::new(1, [bf16::ZERO, bf16::from_f64(bad)]).unwrap();
        assert_eq!(parameter(data.get_batch_host(0, &mut [bf16::ZERO; 2], &mut [])), "data_batch");
    }
    // Integers are always finite.
    let numbers = Dataset::new(1, [-1_i32; 2]).unwrap();
    numbers.get_batch_host(0, &mut [0; 2], &mut []).unwrap();
}

#[test]
fn opt_result_is_empty_at_first() {
    let result = OptResult::new();
    assert_eq!((result.ndata(), result.nbatches(), result.ncorrect()), (0, 0, None));
    assert!(result.loss().is_none() && result.accuracy().is_none() && result.pred().is_empty());
}
