//! The command line.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Parser;
use demos::digits::{data, model};
use demos::threads;

const MORE: &str = "\
Devices:
  The layers of the network are assigned to the devices in turn, so ggml's scheduler splits the graph and copies tensors
  between devices. A device named twice gets twice as many layers. The CPU is always used: the scheduler falls back to it.
  RPC0 is a server that this program starts on the loopback interface; while it runs, all programs of this machine can use
  it. The default is the CPU with the best GPU, or with RPC0 if there is no GPU.

Examples:
  sched_demo                              classify the test images
  sched_demo --devices RPC0,CPU           use these two devices
  sched_demo --devices CPU                use one device: one split, no copies
  sched_demo --svg graph.svg --batch 1    draw the splits of one image's graph

Exit status:
  0  the test images were classified; the last line of standard output is the summary
  1  a device, a file or a computation failed, or ggml's logits differ from the plain Rust forward pass; see standard
     error
  2  the command line is invalid

RUST_LOG=ggml=debug shows ggml's log.";

/// Classifies handwritten digits with a small network that ggml's scheduler splits over two devices.
#[derive(Debug, Parser)]
#[command(name = "sched_demo", after_help = MORE, max_term_width = 120)]
pub(crate) struct Cli {
    /// Devices to which layers are assigned, in turn
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub(crate) devices: Option<Vec<String>>,

    /// The network's weights
    #[arg(long, value_name = "FILE", default_value = model::DEFAULT_PATH, hide_default_value = true)]
    #[arg(help = "The network's weights [default: examples/data/digits.gguf of this repository]")]
    pub(crate) model: PathBuf,

    /// The images
    #[arg(long, value_name = "FILE", default_value = data::DEFAULT_PATH, hide_default_value = true)]
    #[arg(help = "The images [default: examples/data/digits.csv.gz of this repository]")]
    pub(crate) data: PathBuf,

    /// Draw the graph of the first batch, coloured by device
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,

    /// Replace an existing file
    #[arg(long)]
    pub(crate) force: bool,

    /// Images per batch; the last batch may be smaller
    #[arg(long, value_name = "N", default_value = "60")]
    pub(crate) batch: NonZeroUsize,

    /// Threads of each CPU device; one is enough for this small network
    #[arg(long, value_name = "N", default_value = "1", value_parser = threads)]
    pub(crate) threads: NonZeroUsize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;
    use clap::error::ErrorKind;

    fn parse(arguments: &[&str]) -> Result<Cli, ErrorKind> {
        let arguments = ["sched_demo"].iter().chain(arguments);
        Cli::try_parse_from(arguments).map_err(|error| error.kind())
    }

    #[test]
    fn cli_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn default_paths_do_not_depend_on_the_working_directory() {
        let cli = parse(&[]).unwrap();
        assert!(cli.model.is_absolute() && cli.model.is_file());
        assert!(cli.data.is_absolute() && cli.data.exists());
        assert_eq!((cli.batch.get(), cli.threads.get(), cli.devices, cli.svg), (60, 1, None, None));
    }

    #[test]
    fn devices_are_separated_by_commas() {
        let cli = parse(&["--devices", "Vulkan0,CPU"]).unwrap();
        assert_eq!(cli.devices.unwrap(), ["Vulkan0", "CPU"]);
    }

    #[test]
    fn cli_refuses_numbers_out_of_range() {
        for wrong in [["--batch", "0"], ["--batch", "-1"], ["--threads", "0"], ["--threads", "513"], ["--batch", "x"]] {
            let kind = parse(&wrong).unwrap_err();
            let expected = [ErrorKind::ValueValidation, ErrorKind::InvalidValue, ErrorKind::UnknownArgument];
            assert!(expected.contains(&kind), "{wrong:?} gave {kind:?}");
        }
    }

    #[test]
    fn help_names_options_examples_and_exit_statuses() {
        let help = Cli::command().render_help().to_string();
        for part in
            ["--devices", "--model", "--data", "--svg", "--force", "--batch", "--threads", "Examples:", "Exit status:"]
        {
            assert!(help.contains(part), "{part} is missing in:\n{help}");
        }
        assert!(!help.contains(env!("CARGO_MANIFEST_DIR")), "a path of this machine is in:\n{help}");
    }
}
