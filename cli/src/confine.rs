//! `stoke confine`: applies a sandbox policy to itself, then executes a runner. Used by workers.

use anyhow::Result;
use clap::Args;

/// Apply a sandbox policy, then run a program
#[derive(Args)]
pub(crate) struct ConfineArgs {
    /// Sandbox policy as JSON
    policy: String,
    /// Program and its arguments
    #[arg(trailing_var_arg = true, required = true, allow_hyphen_values = true)]
    program: Vec<String>,
}

pub(crate) fn run(args: &ConfineArgs) -> Result<()> {
    stokehold_worker::sandbox::confine(&args.policy, &args.program).map(drop)
}
