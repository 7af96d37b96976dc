//! Runs that go well, and wrong command lines.

use std::fs;

use roxmltree::Document;

use crate::demo::{run, run_unread, scratch};

/// More than a network that has learnt nothing gets right, and what the example promises.
const ACCURACY: f64 = 0.95;
const TOLERANCE: f64 = 1e-3;

#[cfg(feature = "rpc")]
#[test]
fn the_graph_is_split_over_two_devices() {
    let svg = scratch("split.svg");
    let run = run(["--svg".as_ref(), svg.as_os_str()]);
    let summary = run.summary();
    assert!(summary.accuracy >= ACCURACY, "{summary:?}");
    assert!(summary.max_abs_diff > 0.0 && summary.max_abs_diff <= TOLERANCE, "{summary:?}");
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

#[cfg(feature = "rpc")]
#[test]
fn devices_take_turns_as_they_are_named() {
    let run = run(["--devices", "cpu,rpc0"]);
    assert_eq!(run.summary().devices, ["CPU", "RPC0"]);
    assert!(run.summary().splits >= 2);
    assert_eq!(run.splits()[0][1], "CPU");
    let row = |device| run.stdout.lines().find(|line| line.trim_start().starts_with(&format!("{device} "))).unwrap();
    assert!(row("CPU").ends_with("conv1, fc1"), "{}", run.stdout);
    assert!(row("RPC0").ends_with("conv2, fc2"), "{}", run.stdout);
}

#[cfg(feature = "rpc")]
#[test]
fn all_on_the_server_is_one_split_that_gets_the_images() {
    let run = run(["--devices", "RPC0"]);
    let summary = run.summary();
    assert!(summary.accuracy >= ACCURACY && summary.max_abs_diff <= TOLERANCE, "{summary:?}");
    assert_eq!((summary.splits, summary.copies), (1, 1));
    assert_eq!(run.splits()[0][3], "images");
}

#[test]
fn one_device_is_one_split_however_often_it_is_named() {
    for devices in ["CPU", "CPU,CPU"] {
        let summary = run(["--devices", devices]).summary();
        assert!(summary.accuracy >= ACCURACY && summary.max_abs_diff <= TOLERANCE, "{summary:?}");
        assert_eq!((summary.splits, summary.copies), (1, 0));
        assert_eq!(summary.devices, ["CPU"]);
    }
}

#[test]
fn every_image_is_classified_whatever_the_batch() {
    let all = run(["--devices", "CPU", "--batch", "360"]);
    for batch in ["7", "359", "100000"] {
        let some = run(["--devices", "CPU", "--batch", batch, "--threads", "2"]);
        assert!(some.stdout.contains("of 360 images"), "{}", some.stdout);
        assert!((some.summary().accuracy - all.summary().accuracy).abs() < 1e-9, "{batch}: {}", some.stdout);
    }
}

#[test]
fn nothing_is_wrong_when_nobody_reads_on() {
    let run = run_unread();
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""));
}

#[test]
fn help_is_for_users() {
    let run = run(["--help"]);
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""));
    for part in ["Usage: sched_demo", "--devices <A,B>", "--model <FILE>", "--svg <FILE>", "Examples:", "Exit status:"]
    {
        assert!(run.stdout.contains(part), "{part} is missing in\n{}", run.stdout);
    }
}

#[test]
fn unknown_devices_are_errors_that_name_those_there_are() {
    for (devices, unknown) in [("CUDA7", "CUDA7"), ("CPU,nonsense", "nonsense"), ("CPU,", ""), ("CPU0", "CPU0")] {
        let run = run(["--devices", devices]);
        let message = run.error();
        assert!(message.starts_with(&format!("there is no device `{unknown}`; --devices takes CPU")), "{message}");
        assert_eq!(message.contains("RPC0"), cfg!(feature = "rpc"), "{message}");
        assert_eq!(run.stdout, "");
    }
}

#[test]
fn more_devices_than_layers_are_refused() {
    let run = run(["--devices", "CPU,CPU,CPU,CPU,CPU"]);
    assert!(run.error().contains("5 devices"), "{run:?}");
}

#[test]
fn a_wrong_command_line_has_a_status_of_its_own() {
    for arguments in [&["--batch", "0"][..], &["--threads", "0"], &["--threads", "513"], &["--nonsense"], &["digit"]] {
        let run = run(arguments);
        assert_eq!(run.status, Some(2), "{arguments:?}: {run:?}");
        assert!(run.stderr.starts_with("error: "), "{arguments:?}: {run:?}");
    }
}
