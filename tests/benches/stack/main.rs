//! `make bench`: the stack, other job queues and a raw Redis-streams loop, measured in one run.
//!
//! Every system has a separate new Redis, equally durable, and is driven in the same way: by a client program with a
//! line protocol, and workers that the harness pauses, kills, and whose CPU time it counts. `lab/peers/README.md`
//! describes how to add one. Results are medians of several rounds. Nothing here asserts a time: the machine is shared,
//! and only ratios within one run are meaningful.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark prints and may stop at any error"
)]

mod chart;
mod crash;
mod depth;
mod docs;
mod gates;
mod measure;
mod options;
mod peers;
mod profile;
mod program;
mod protocol;
mod raw;
mod round;
mod run;
mod stokehold;
mod system;
mod table;
mod width;

use anyhow::Context as _;

use crate::options::Options;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let role = std::env::args().nth(1).unwrap_or_default();
    match role.as_str() {
        "stokehold-client" => stokehold::client().await,
        "raw-client" => raw::client().await,
        "raw-worker" => raw::worker().await,
        "profile" => profile().await,
        "docs" => {
            let json = std::env::var("BENCH_JSON").ok().filter(|path| !path.is_empty());
            docs::write(std::path::Path::new(&json.context("BENCH_JSON names the run to write from")?))
        }
        _ => bench().await,
    }
}

async fn bench() -> anyhow::Result<()> {
    let specs = peers::all()?;
    let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    let options = Options::from_env(&names)?;
    let run = run::measure(&specs, &options).await;
    table::print(&run);
    if let Some(path) = &options.json {
        std::fs::write(path, serde_json::to_string_pretty(&run)?)?;
        eprintln!("written to {}", path.display());
    }
    Ok(())
}

async fn profile() -> anyhow::Result<()> {
    let specs = peers::all()?;
    let ours = specs.iter().find(|spec| matches!(spec.kind, peers::Kind::Stokehold));
    profile::record(ours.context("it is always there")?).await
}
