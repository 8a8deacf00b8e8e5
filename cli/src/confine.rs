//! `stoke confine`: how a worker starts a runner. Shuts itself in, then becomes it.

use anyhow::Result;
use clap::Args;

/// Become a program that may do no more than a policy says
#[derive(Args)]
pub(crate) struct ConfineArgs {
    /// JSON
    policy: String,
    /// What to run
    #[arg(trailing_var_arg = true, required = true, allow_hyphen_values = true)]
    program: Vec<String>,
}

pub(crate) fn run(args: &ConfineArgs) -> Result<()> {
    stokehold_worker::sandbox::confine(&args.policy, &args.program).map(drop)
}
