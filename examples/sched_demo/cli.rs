//! The command line.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Parser;

use crate::digits;
use crate::support::threads;

/// The model that `digits_train` wrote.
const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/digits.gguf");

const MORE: &str = "\
Devices:
  The layers of the network are dealt out to the devices in turn, so that ggml's scheduler has to split the graph and to
  copy tensors between them. A device that is named twice gets twice as many layers. The CPU always takes part, named or
  not: the scheduler falls back on it. RPC0 is a server that this program starts by itself, on the loopback interface; it
  needs no second machine, but trusts all programs of this one while it runs. Without --devices: the best GPU if there is
  one, else RPC0, and the CPU.

Examples:
  sched_demo                              classify the test images
  sched_demo --devices RPC0,CPU           on these two devices
  sched_demo --devices CPU                on one device: a single split, nothing is copied
  sched_demo --svg graph.svg --batch 1    draw how one image's graph was split

Exit status:
  0  the test images were classified; the last line on standard output sums it up
  1  a device, a file or a computation failed, or ggml's logits are not those of the plain Rust forward pass; standard
     error says which, and what to do
  2  the command line was wrong

RUST_LOG=ggml=debug shows what ggml itself reports.";

/// Classifies handwritten digits with a small network that ggml's scheduler spreads over two devices.
#[derive(Debug, Parser)]
#[command(name = "sched_demo", after_help = MORE, max_term_width = 120)]
pub(crate) struct Cli {
    /// Devices that hold the layers' weights, in turn
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub(crate) devices: Option<Vec<String>>,

    /// The network's weights
    #[arg(long, value_name = "FILE", default_value = MODEL, hide_default_value = true)]
    #[arg(help = "The network's weights [default: examples/data/digits.gguf of this repository]")]
    pub(crate) model: PathBuf,

    /// The images
    #[arg(long, value_name = "FILE", default_value = digits::data::DEFAULT_PATH, hide_default_value = true)]
    #[arg(help = "The images [default: examples/data/digits.csv.gz of this repository]")]
    pub(crate) data: PathBuf,

    /// Draw the graph of the first batch, coloured by device
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,

    /// Replace a file that is there
    #[arg(long)]
    pub(crate) force: bool,

    /// Images that are classified at once; the last ones may be fewer
    #[arg(long, value_name = "N", default_value = "60")]
    pub(crate) batch: NonZeroUsize,

    /// Threads of each CPU device; one is enough for so small a network
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
        assert!(cli.model.is_absolute() && cli.model.ends_with("examples/data/digits.gguf"));
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
