//! `make bench`: what the stack does, beside a raw Redis-streams loop in the same minute on the same Redis.
//!
//! Figures are medians of several rounds. `BENCH_JSON=path` also writes them as JSON. Nothing here asserts a time: the machine is
//! shared, and only ratios within one run mean anything.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark prints and may stop at any error"
)]

mod api;
mod measure;
mod raw;
mod report;

use std::collections::BTreeMap;

use stokehold_tests::redis_server::RedisServer;
use stokehold_tests::stack::{Stack, StackOptions};

use crate::measure::Figures;

/// What `stoke dev` gives its own Redis, so that both systems have the same one.
const REDIS_SETTINGS: [&str; 4] = ["--hash-max-listpack-value", "1024", "--stream-node-max-entries", "16"];

const ROUNDS: usize = 3;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let redis_dir = dir.path().join("bench-redis");
    std::fs::create_dir(&redis_dir)?;
    let redis = RedisServer::start(&redis_dir, &REDIS_SETTINGS);
    let options = StackOptions { args: vec!["--redis".into(), redis.url()], env: vec![] };
    let stack = Stack::start(&dir.path().join("stack"), &options);
    api::deploy_noop(&stack, dir.path())?;

    let mut rounds: BTreeMap<&str, Vec<Figures>> = BTreeMap::new();
    for round in 1..=ROUNDS {
        eprintln!("round {round} of {ROUNDS}: raw");
        rounds.entry("raw").or_default().push(raw::measure(&redis).await?);
        eprintln!("round {round} of {ROUNDS}: stokehold");
        rounds.entry("stokehold").or_default().push(api::measure(&stack, &redis).await?);
    }
    let systems: BTreeMap<&str, Figures> =
        rounds.into_iter().map(|(name, rounds)| (name, Figures::medians(rounds))).collect();
    report::print(&systems);
    if let Ok(path) = std::env::var("BENCH_JSON")
        && !path.is_empty()
    {
        std::fs::write(&path, serde_json::to_string_pretty(&report::json(&systems))?)?;
        eprintln!("written to {path}");
    }
    Ok(())
}
