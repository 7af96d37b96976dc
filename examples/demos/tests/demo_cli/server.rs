//! Runs over two devices, one of which is the RPC server.

use std::fs;

use roxmltree::Document;

use crate::demo::{run, scratch};

#[test]
fn sched_demo_splits_the_graph_over_two_devices() {
    let svg = scratch("split.svg");
    let run = run(["--svg".as_ref(), svg.as_os_str(), "--force".as_ref()]);
    let summary = run.summary();
    summary.assert_good();
    assert!(summary.splits >= 2 && summary.copies >= 1, "{summary:?}");
    assert_eq!(summary.devices.len(), 2);
    assert_eq!(summary.devices[1], "CPU");

    let splits = run.splits();
    assert_eq!(splits.len(), summary.splits, "{splits:?}");
    let numbers: Vec<_> = splits.iter().map(|row| row[0].parse::<usize>().unwrap()).collect();
    assert_eq!(numbers, (0..splits.len()).collect::<Vec<_>>());
    for pair in splits.windows(2) {
        assert_ne!(pair[0][1], pair[1][1], "neighbouring splits are on one device: {splits:?}");
    }
    let nodes: usize = splits.iter().map(|row| row[2].parse::<usize>().unwrap()).sum();

    let text = fs::read_to_string(&svg).unwrap();
    let document = Document::parse(&text).unwrap();
    let count = |class| document.descendants().filter(|node| node.attribute("class") == Some(class)).count();
    // All operations, the eight tensors of the model, and the images.
    assert_eq!(count("node"), nodes + 9);
    assert_eq!(count("copied"), summary.copies);
}

#[test]
fn sched_demo_assigns_devices_in_the_given_order() {
    let run = run(["--devices", "cpu,rpc0"]);
    assert_eq!(run.summary().devices, ["CPU", "RPC0"]);
    assert!(run.summary().splits >= 2);
    assert_eq!(run.splits()[0][1], "CPU");
    let row = |device| run.stdout.lines().find(|line| line.trim_start().starts_with(&format!("{device} "))).unwrap();
    assert!(row("CPU").ends_with("conv1, fc1"), "{}", run.stdout);
    assert!(row("RPC0").ends_with("conv2, fc2"), "{}", run.stdout);
}

#[test]
fn sched_demo_on_the_server_alone_is_one_split() {
    let run = run(["--devices", "RPC0"]);
    let summary = run.summary();
    summary.assert_good();
    assert_eq!((summary.splits, summary.copies), (1, 1));
    assert_eq!(run.splits()[0][3], "images");
}
