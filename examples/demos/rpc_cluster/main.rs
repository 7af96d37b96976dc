//! Splits a network over two RPC servers and the CPU, compares the results with the CPU's, kills one of the servers, and
//! continues on the remaining devices.
//!
//! ```text
//! cargo run --release --example rpc_cluster
//! cargo run --release --example rpc_cluster -- --help
//! ```

mod cli;
mod cluster;
mod model;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser as _;
use demos::servers::{self, ServerProcess};
use ggml::rpc::{Connection, Traffic};
use ggml::{Device, Error, Run};

use cli::Cli;
use cluster::{Cluster, Outcome, Placement};
use model::Model;

/// The arguments of a server process. In tests, a server is a test that is run by its name.
const SERVER: &[&str] = if cfg!(test) { &["--exact", "tests::server_process", "--nocapture"] } else { &[] };

/// The maximum difference of a logit from the CPU's result.
const TOLERANCE: f32 = 1e-4;

fn main() -> ExitCode {
    demos::print(|out| if servers::is_one() { servers::serve() } else { demo(&Cli::parse(), out) })
}

fn demo(cli: &Cli, out: &mut impl Write) -> Result<()> {
    let (mode, size, steps) = (cli.mode(), cli.size(), cli.steps.get());
    let model = Model { size, seed: cli.seed };
    let local = Placement::local(size.layers)?;
    let local = Cluster::new(model, local, cli.threads)?.run(steps, |_| Ok(()), |_| Ok(()))?;

    let mut servers = start(cli)?;
    let connections = servers.iter().map(ServerProcess::connect).collect::<Result<Vec<_>>>()?;
    let devices: Vec<Device> = connections.iter().flat_map(Connection::devices).copied().collect();
    let placement = Placement::new(mode, &devices, size.layers)?;
    let mut cluster = Cluster::new(model, placement, cli.threads)?;
    let mut first = Traffic::default();
    let whole = cluster.run(
        steps,
        |run| splits(out, run),
        |step| {
            // The first step also sends the graphs.
            if step == 1 {
                first = traffic(&connections);
            }
            Ok(())
        },
    )?;
    let max_abs_diff = whole.max_abs_diff(&local);
    figures(out, cli, &local, &whole)?;
    let last = traffic(&connections);
    if let Some(timed) = (steps as u64).checked_sub(1).filter(|n| *n > 0) {
        let each = |first: u64, last: u64| last.saturating_sub(first) / timed;
        writeln!(
            out,
            "a step sends {} bytes to the servers and reads {}, in {} requests",
            each(first.sent, last.sent),
            each(first.received, last.received),
            each(first.requests, last.requests)
        )?;
    }

    let middle = steps / 2;
    let lost = cluster.run(
        steps,
        |_| Ok(()),
        |step| {
            if step == middle
                && let Some(server) = servers.last_mut()
            {
                server.kill()?;
            }
            Ok(())
        },
    );
    drop(cluster);
    let lost = match lost {
        Err(error) => error.downcast::<Error>().context("the run failed for another reason than a lost server")?,
        Ok(_) => bail!("a server was killed, and the run went on as if it were there"),
    };
    ensure!(matches!(lost, Error::RpcLost { .. }), "the run failed for another reason than a lost server: {lost}");
    writeln!(out, "a server was killed before step {middle}; the error: {lost}")?;

    let there = connections.iter().filter(|connection| connection.check().is_ok());
    let devices: Vec<Device> = there.flat_map(Connection::devices).copied().collect();
    let placement = Placement::new(mode, &devices, size.layers)?;
    let survivors = Cluster::new(model, placement, cli.threads)?.run(steps, |run| splits(out, run), |_| Ok(()))?;
    let survivors_diff = survivors.max_abs_diff(&local);
    writeln!(
        out,
        "rpc_cluster: mode={} max_abs_diff={max_abs_diff:e} servers={} lost=\"{lost}\" survivors={} \
         survivors_diff={survivors_diff:e}",
        mode.name(),
        connections.len(),
        devices.len(),
    )?;
    out.flush()?;
    for diff in [max_abs_diff, survivors_diff] {
        ensure!(diff <= TOLERANCE, "logits differ from the CPU's by up to {diff:.1e}, more than {TOLERANCE:.0e}");
    }
    Ok(())
}

/// Starts two servers.
fn start(cli: &Cli) -> Result<[ServerProcess; 2]> {
    #[cfg(feature = "rpc-tls")]
    if cli.tls {
        let both = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        // The servers have read the files when they listen.
        let folder = tempfile::tempdir()?;
        servers::write_tls(folder.path(), &both.cert.pem(), &both.signing_key.serialize_pem())?;
        let start = || ServerProcess::start_with_tls(cli.threads, SERVER, folder.path());
        return Ok([start()?, start()?]);
    }
    let start = || ServerProcess::start(cli.threads, SERVER);
    Ok([start()?, start()?])
}

/// Prints the splits of the graph.
fn splits(out: &mut impl Write, run: &Run<'_, '_>) -> Result<()> {
    for split in run.splits()? {
        let copies: Vec<_> = split.inputs.iter().map(|i| format!("{} ({} bytes)", i.tensor.name(), i.bytes)).collect();
        writeln!(
            out,
            "  {:8} {:3} operations, copied to it: {}",
            split.backend.device().name(),
            split.nodes.len(),
            if copies.is_empty() { "nothing".to_owned() } else { copies.join(", ") }
        )?;
    }
    Ok(())
}

fn figures(out: &mut impl Write, cli: &Cli, local: &Outcome, cluster: &Outcome) -> Result<()> {
    let tokens = cli.tokens.get();
    writeln!(
        out,
        "{:.0} tokens/s on the CPU alone, {:.0} on the cluster, {} at a step, with {} threads in each process",
        local.tokens_per_second(tokens),
        cluster.tokens_per_second(tokens),
        tokens,
        cli.threads
    )?;
    Ok(())
}

/// The total traffic with all servers.
fn traffic(connections: &[Connection]) -> Traffic {
    connections.iter().filter_map(Connection::traffic).fold(Traffic::default(), |mut sum, traffic| {
        sum.requests += traffic.requests;
        sum.sent += traffic.sent;
        sum.received += traffic.received;
        sum
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The server process of the other tests; does nothing if run as an ordinary test.
    #[test]
    fn server_process() {
        if servers::is_one() {
            servers::serve().unwrap();
        }
    }

    /// What the demo prints, in which one of two servers is lost, and the lines of its splits.
    fn printed(mode: &str, arguments: &[&str]) -> (String, Vec<String>) {
        let mut out = Vec::new();
        let sizes = ["--width", "64", "--tokens", "3"];
        let cli = Cli::try_parse_from([&["rpc_cluster"], arguments, &sizes].concat()).unwrap();
        demo(&cli, &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        let last = out.lines().next_back().unwrap();
        assert!(last.starts_with(&format!("rpc_cluster: mode={mode} max_abs_diff=")), "{out}");
        assert!(last.contains(" servers=2 lost=\"") && last.contains(" survivors=1 "), "{out}");
        let splits = out.lines().filter(|line| line.contains("copied to it")).map(str::to_owned).collect();
        (out, splits)
    }

    #[test]
    fn cluster_equals_the_cpu_and_survives_a_lost_server() {
        let (out, splits) = printed("layers", &["--layers", "4", "--steps", "6"]);
        // Two servers and the CPU; then one server and the CPU. A layer's output is copied from one to the next.
        assert_eq!(splits.len(), 5, "{out}");
        assert_eq!(splits.iter().filter(|line| line.contains(".out (768 bytes)")).count(), 3, "{out}");
        assert!(out.contains("tokens/s on the CPU alone") && out.contains("in 6 requests"), "{out}");
    }

    #[cfg(feature = "rpc-tls")]
    #[test]
    fn cluster_by_tls_equals_the_cpu_and_survives_a_lost_server() {
        let (out, splits) = printed("layers", &["--tls", "--layers", "2", "--steps", "2"]);
        assert_eq!(splits.len(), 5, "{out}");
    }

    #[test]
    fn tensor_parallel_run_equals_the_cpu() {
        let (out, splits) = printed("tensor-parallel", &["--tensor-parallel", "--layers", "3", "--steps", "4"]);
        // One split over both servers; then one on the remaining server.
        assert_eq!(splits.len(), 2, "{out}");
        assert!(splits[0].contains("Meta(RPC"), "{out}");
    }
}
