//! `serve`: another program, which has the web stack.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context as _, Result};

#[derive(Debug, clap::Args)]
pub(crate) struct ServeArguments {
    /// The other program's: `ggml-llm serve --help`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Becomes `ggml-llm-serve`, which lies beside this program.
pub(crate) fn run(arguments: &ServeArguments) -> Result<()> {
    let own = std::env::current_exe()?;
    let program = own.with_file_name(format!("ggml-llm-serve{}", std::env::consts::EXE_SUFFIX));
    let mut command = Command::new(&program);
    command.args(&arguments.arguments);
    let missing = || format!("{}: build it with `cargo build --release -p ggml-llm-serve`", program.display());
    #[cfg(unix)]
    return Err(std::os::unix::process::CommandExt::exec(&mut command)).with_context(missing);
    #[cfg(not(unix))]
    {
        let status = command.status().with_context(missing)?;
        anyhow::ensure!(status.success(), "{}: {status}", program.display());
        Ok(())
    }
}
