//! `stoke guard`: runs a program that is killed when its parent exits.
//!
//! `stoke dev` starts its children through this command. The parent-death signal survives `exec`, so it works for any
//! program, and a `stoke dev` that is killed with SIGKILL leaves nothing running.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;
use nix::unistd::getppid;

/// Run a program that is killed when its parent exits
#[derive(Args)]
pub(crate) struct GuardArgs {
    /// Process id of the parent
    parent: i32,
    /// Program and its arguments
    #[arg(trailing_var_arg = true, required = true, allow_hyphen_values = true)]
    program: Vec<String>,
}

pub(crate) fn run(args: &GuardArgs) -> Result<()> {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)
        .context("cannot tie this process to its parent")?;
    // The parent may have exited before the call above.
    anyhow::ensure!(getppid().as_raw() == args.parent, "the parent process has exited");
    let (program, rest) = args.program.split_first().context("no program given")?;
    Err(Command::new(program).args(rest).exec()).with_context(|| format!("cannot run {program}"))
}
