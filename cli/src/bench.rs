//! `stoke bench`: load tests of a running stack.

mod arrivals;
mod demo;
mod load;
mod report;
mod requests;
mod tally;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::Global;

/// Measure the performance of a running stack
#[derive(Args)]
#[command(after_help = "Examples:\n  stoke bench load --rate 200 --duration 60s")]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Load(load::LoadArgs),
}

pub(crate) async fn run(global: &Global, args: BenchArgs) -> Result<()> {
    match args.verb {
        Verb::Load(args) if args.demo => Box::pin(demo::run(global, args)).await,
        Verb::Load(args) => Box::pin(load::run(global, args)).await,
    }
}
