//! Runs without a server, and wrong command lines.

use crate::demo::{run, run_unread};

#[test]
fn one_device_gives_one_split() {
    for devices in ["CPU", "CPU,CPU"] {
        let run = run(["--devices", devices]);
        let summary = run.summary();
        summary.assert_good();
        assert_eq!((summary.splits, summary.copies), (1, 0));
        assert_eq!(run.splits().len(), 1);
        assert_eq!(summary.devices, ["CPU"]);
    }
}

#[test]
fn every_image_is_classified_for_any_batch_size() {
    let all = run(["--devices", "CPU", "--batch", "360"]);
    for batch in ["7", "359", "100000"] {
        let some = run(["--devices", "CPU", "--batch", batch, "--threads", "2"]);
        assert!(some.stdout.contains("of 360 images"), "{}", some.stdout);
        assert!((some.summary().accuracy - all.summary().accuracy).abs() < 1e-9, "{batch}: {}", some.stdout);
    }
}

#[test]
fn closed_stdout_is_no_error() {
    let run = run_unread();
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""));
}

#[test]
fn help_documents_usage() {
    let run = run(["--help"]);
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""));
    for part in [
        "Usage: sched_demo",
        "--devices <A,B>",
        "--model <FILE>",
        "--svg <FILE>",
        "--force",
        "Examples:",
        "Exit status:",
    ] {
        assert!(run.stdout.contains(part), "{part} is missing in\n{}", run.stdout);
    }
}

#[test]
fn unknown_device_error_lists_the_devices() {
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
fn command_line_errors_exit_with_status_2() {
    for arguments in [&["--batch", "0"][..], &["--threads", "0"], &["--threads", "513"], &["--nonsense"], &["digit"]] {
        let run = run(arguments);
        assert_eq!(run.status, Some(2), "{arguments:?}: {run:?}");
        assert!(run.stderr.starts_with("error: "), "{arguments:?}: {run:?}");
    }
}
