//! The examples for newcomers, whose figures are those that plain Rust computes.

use ggml::{Device, Registry};

use crate::demo::lines_of;

/// The numbers of a list such as `... [1.0, 2.5]`, the last one of a line.
#[track_caller]
fn list(line: &str) -> Vec<f64> {
    let inside = line.rsplit_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(inside, _)| inside);
    let inside = inside.unwrap_or_else(|| panic!("no list in `{line}`"));
    inside.split(", ").map(|number| number.parse().unwrap_or_else(|_| panic!("`{number}` in `{line}`"))).collect()
}

/// Holds printed numbers, of four digits, against computed ones.
#[track_caller]
fn close(line: &str, want: &[f64]) {
    let got = list(line);
    assert_eq!(got.len(), want.len(), "{line}");
    assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() < 2e-4), "{line}, but plain Rust computes {want:?}");
}

fn soft_max(x: &[f64]) -> Vec<f64> {
    let sum: f64 = x.iter().map(|x| x.exp()).sum();
    x.iter().map(|x| x.exp() / sum).collect()
}

/// A matrix, row by row, times a vector.
fn times(matrix: &[f64], x: &[f64]) -> Vec<f64> {
    matrix.chunks(x.len()).map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum()).collect()
}

#[test]
fn hello_adds() {
    let lines = lines_of("hello");
    assert_eq!(lines.len(), 1, "{lines:?}");
    close(&lines[0], &[11.0, 22.0, 33.0]);
}

#[test]
fn mlp_equals_plain_rust() {
    let lines = lines_of("mlp");
    let rows = [[1.0, 0.5, 0.25, 0.0], [0.0, 2.0, 0.0, 1.0]];
    assert_eq!(lines.len(), rows.len(), "{lines:?}");
    let weights = |n: u32| (0..n).map(|i| f64::from(i * 7 % 11) / 10.0 - 0.5).collect::<Vec<_>>();
    for (line, row) in lines.iter().zip(rows) {
        let mut x = row.to_vec();
        for (from, to) in [(4, 8), (8, 3)] {
            let positive: Vec<_> = x.iter().map(|x: &f64| x.max(0.0)).collect();
            let product = times(&weights(from * to), &positive);
            x = product.iter().zip(weights(to)).map(|(x, b)| x + b).collect();
        }
        close(line, &soft_max(&x));
    }
}

#[test]
fn kv_cache_equals_plain_rust_and_plans_once() {
    const WIDTH: u32 = 4;
    let numbers =
        |seed: u32, n: u32| -> Vec<f64> { (0..n).map(|i| f64::from((i * 7 + seed * 3) % 11) / 5.0 - 1.0).collect() };
    let lines = lines_of("kv_cache");
    let (last, steps) = lines.split_last().unwrap();
    assert_eq!((last.as_str(), steps.len()), ("plans=1", 8), "{lines:?}");
    let matrices = numbers(3, 3 * WIDTH * WIDTH);
    let matrices: Vec<_> = matrices.chunks(16).collect();
    let tokens: Vec<_> = (0..8).map(|i| numbers(i, WIDTH)).collect();
    for (i, line) in steps.iter().enumerate() {
        let q = times(matrices[0], &tokens[i]);
        let seen = &tokens[..=i];
        let scores: Vec<f64> = seen.iter().flat_map(|t| times(&q, &times(matrices[1], t))).map(|s| s / 2.0).collect();
        let mut y = vec![0.0; 4];
        for (p, t) in soft_max(&scores).iter().zip(seen) {
            y.iter_mut().zip(times(matrices[2], t)).for_each(|(y, v)| *y += p * v);
        }
        close(line, &y);
    }
}

#[test]
fn custom_op_equals_softsign() {
    let lines = lines_of("custom_op");
    let [values, sums, filled] = &lines[..] else { panic!("{lines:?}") };
    let want = [-3.0_f64, -1.0, 0.0, 1.0, 3.0, 0.5, 9.0, -0.25].map(|x| x / (1.0 + x.abs()));
    close(values, &want);
    close(sums, &want.chunks(4).map(|row| row.iter().sum()).collect::<Vec<_>>());
    assert_eq!(filled, "rows filled by the closure: 2");
}

#[test]
fn devices_lists_every_device_and_computes() {
    Registry::load_all().unwrap();
    let lines = lines_of("devices");
    let products: Vec<_> = lines.iter().filter(|line| line.contains("] x [")).collect();
    // The program is built without the features of this test, so that it may have fewer devices: the CPU at least.
    let devices = Device::all().unwrap();
    let told = |d: &&Device| lines.iter().any(|line| line.starts_with(&format!("{d} (")));
    assert_eq!(products.len(), devices.iter().filter(told).count(), "{lines:?}");
    assert!(told(&&Device::cpu().unwrap()), "{lines:?}");
    for line in products {
        close(line, &[321.0, 654.0]);
    }
    assert!(lines.iter().any(|line| line.starts_with("the best one: ")), "{lines:?}");
}
