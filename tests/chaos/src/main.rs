//! `chaos`: runs the product under faults and checks the result; checks the history of a kept run; serves the store of
//! a run.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand, ValueEnum};
use stokehold_chaos::plan::{Faults, IN_TIME_ANYWHERE, Plan, gate_a, gate_b, mutant_faults, upgrade};
use stokehold_chaos::{gates, report, run};

#[derive(Parser)]
#[command(name = "chaos", about = "Proof that no job is lost and none is done twice")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run the system under faults, and check the journals of its witnesses
    Run(RunArgs),
    /// Gate B: several seeds, each beside the same load without faults
    Nightly(NightlyArgs),
    /// Gate E: every planted bug must be caught; STOKE_BIN names a `stoke` that was built with them
    Mutants {
        /// Names of the bugs [default: all]
        names: Vec<String>,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Check the history of a kept run
    Replay {
        /// Directory of the run
        dir: PathBuf,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Serve the object store of a run
    #[command(hide = true)]
    Store {
        #[arg(long)]
        dir: PathBuf,
        #[arg(long)]
        port: u16,
    },
}

#[derive(clap::Args)]
struct RunArgs {
    /// Seed of all random choices [default: a new one]
    #[arg(long)]
    seed: Option<u64>,
    /// Number of jobs, including lines of batches
    #[arg(long, default_value_t = 10_000)]
    jobs: u64,
    /// Duration of the load, in seconds
    #[arg(long, default_value_t = 75)]
    seconds: u64,
    /// Take longer on a machine that cannot keep up with the load
    #[arg(long)]
    paced: bool,
    /// Set of faults
    #[arg(long, value_enum, default_value_t = Gate::A)]
    faults: Gate,
    /// A `stoke` of an earlier release: every process starts with it, and is rolled to STOKE_BIN's release, back, and
    /// forward again
    #[arg(long, value_name = "FILE")]
    before: Option<PathBuf>,
    /// Directory for all files [default: a temporary directory, kept only if something is broken]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct NightlyArgs {
    /// Number of seeds
    #[arg(long, default_value_t = 5)]
    seeds: u64,
    /// First seed [default: a new one]
    #[arg(long)]
    from: Option<u64>,
    /// Number of jobs per seed
    #[arg(long, default_value_t = 100_000)]
    jobs: u64,
    /// Duration of each load, in seconds
    #[arg(long, default_value_t = 240)]
    seconds: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Gate {
    None,
    A,
    B,
    Mutants,
    Upgrade,
}

impl Gate {
    fn faults(self) -> Faults {
        match self {
            Self::None => Faults::new(),
            Self::A => gate_a(),
            Self::B => gate_b(),
            Self::Mutants => mutant_faults(),
            Self::Upgrade => upgrade(run::APIS, run::WORKERS),
        }
    }
}

/// Prints the error as one line at the end of the log, without a backtrace.
#[tokio::main(worker_threads = 2)]
#[expect(clippy::print_stderr, reason = "the verdict")]
async fn main() -> ExitCode {
    match obey(Cli::parse().verb).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("chaos: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn obey(verb: Verb) -> Result<()> {
    match verb {
        Verb::Run(args) => single(args).await,
        Verb::Nightly(args) => gates::nightly(args.seeds, args.from, args.jobs, args.seconds).await,
        Verb::Mutants { names, seed } => gates::mutants(&names, seed).await,
        Verb::Replay { dir, json } => show(&run::judge(&dir)?, json),
        Verb::Store { dir, port } => store(dir, port).await,
    }
}

async fn single(args: RunArgs) -> Result<()> {
    let plan = Plan {
        seed: args.seed.unwrap_or_else(rand::random),
        jobs: args.jobs,
        duration: Duration::from_secs(args.seconds),
        faults: args.faults.faults(),
        in_time_percent: IN_TIME_ANYWHERE,
        is_paced: args.paced,
        before: args.before,
    };
    let report = run::in_dir(&plan, args.dir).await?;
    show(&report, args.json)
}

#[expect(clippy::print_stdout, reason = "the report is what this program is for")]
fn show(report: &run::Report, json: bool) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(report)?);
    } else {
        print!("{}", report::text(report, None));
        if let Some(dir) = &report.kept {
            println!("kept in {dir}: `chaos replay {dir}` judges it again", dir = dir.display());
        }
    }
    ensure!(report.holds(), "broken: {}", report.broken().join(", "));
    ensure!(report.unexercised().is_empty(), "void, not exercised: {}", report.unexercised().join(", "));
    Ok(())
}

async fn store(dir: PathBuf, port: u16) -> Result<()> {
    let secret = |name: &str| std::env::var(name).with_context(|| format!("{name} is not set"));
    let config = stokehold_objects::store::StoreConfig {
        dir,
        access_key_id: secret("CHAOS_S3_ACCESS_KEY_ID")?,
        secret_access_key: secret("CHAOS_S3_SECRET_ACCESS_KEY")?.into(),
    };
    let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port))).await?;
    stokehold_objects::store::serve(listener, config, std::future::pending()).await?;
    Ok(())
}
