//! Becoming another program that does not outlive the one that started it.
//!
//! `stoke dev` starts its children through this: the signal at the parent's death is a property of the process that survives
//! `exec`, so that any program can be given it, and a `stoke dev` that was killed with -9 leaves nothing running.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;
use nix::unistd::getppid;

/// Run a program that ends with its parent
#[derive(Args)]
pub(crate) struct GuardArgs {
    /// The process that must be the parent
    parent: i32,
    /// What to run
    #[arg(trailing_var_arg = true, required = true, allow_hyphen_values = true)]
    program: Vec<String>,
}

pub(crate) fn run(args: &GuardArgs) -> Result<()> {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)
        .context("cannot tie this process to its parent")?;
    // It may have died before the line above.
    anyhow::ensure!(getppid().as_raw() == args.parent, "the parent is gone");
    let (program, rest) = args.program.split_first().context("no program given")?;
    Err(Command::new(program).args(rest).exec()).with_context(|| format!("cannot run {program}"))
}
