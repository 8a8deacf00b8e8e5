//! `make hostile`: the latency of a healthy client while others misbehave.
//!
//! Slices without and with an attack alternate. The result of an attack is the median of a healthy client's p99s during
//! it, divided by the median of those without. `--json` prints one document.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark prints and may stop at any error"
)]

mod attacks;
mod healthy;

use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};
use stokehold_tests::stack::{Stack, StackOptions};

use crate::attacks::{Attack, Attackers, Kind, Target};
use crate::healthy::Healthy;

const ROUNDS: usize = 5;

/// Maximum ratio of a healthy client's p99 under attack.
const RATIO_MAX: f64 = 2.0;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rounds = arguments.iter().find_map(|one| one.strip_prefix("--rounds=")?.parse().ok()).unwrap_or(ROUNDS);
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;

    let dir = tempfile::tempdir()?;
    // Without workers, the measurement depends only on the API.
    let args = ["--workers", "0", "--durability", "standard"].map(str::to_owned).to_vec();
    let stack = Stack::start(&dir.path().join("stack"), &StackOptions { args, env: vec![] });
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../sdk/examples/echo");
    let _ = stack.stoke_ok(&["deploy", examples]);
    let healthy = Healthy::new(&stack).await?;
    let target = Target {
        address: stack.url.trim_start_matches("http://").parse()?,
        token: stack.token.clone(),
        job: healthy.job(),
    };
    healthy.slice().await?;

    let mut report = Vec::new();
    for attack in attacks() {
        let (mut calm, mut attacked, mut failed) = (Vec::new(), Vec::new(), 0);
        for round in 1..=rounds {
            eprintln!("{}: round {round} of {rounds}", attack.name);
            calm.push(healthy.slice().await?.p99_ms);
            let attackers = Attackers::start(&attack, &target);
            attackers.settle().await;
            let slice = healthy.slice().await?;
            attacked.push(slice.p99_ms);
            failed += slice.failed;
            attackers.stop().await;
        }
        report.push(Figures { attack: attack.name, calm_ms: median(calm), attacked_ms: median(attacked), failed });
    }
    if arguments.iter().any(|one| one == "--json") {
        println!("{}", serde_json::to_string_pretty(&report.iter().map(Figures::json).collect::<Vec<_>>())?);
    } else {
        println!(
            "{:<52} {:>10} {:>10} {:>7} {:>7}",
            "a healthy client's p99", "calm, ms", "under, ms", "ratio", "failed"
        );
        for Figures { attack, calm_ms, attacked_ms, failed } in &report {
            println!("{attack:<52} {calm_ms:>10.2} {attacked_ms:>10.2} {:>7.2} {failed:>7}", attacked_ms / calm_ms);
        }
    }
    let over: Vec<&str> =
        report.iter().filter(|of| of.ratio() > RATIO_MAX || of.failed > 0).map(|of| of.attack).collect();
    anyhow::ensure!(
        over.is_empty(),
        "over {RATIO_MAX} times the calm p99, or with failed requests: {}",
        over.join("; ")
    );
    Ok(())
}

fn attacks() -> Vec<Attack> {
    let (idle, heads, bodies, unread) =
        ((Kind::Idle, 10_000), (Kind::SlowHead, 1_000), (Kind::SlowBody, 500), (Kind::Unread, 200));
    let attack = |name, kinds: &[(Kind, usize)]| Attack { name, kinds: kinds.to_vec() };
    vec![
        attack("10,000 idle sockets", &[idle]),
        attack("1,000 slow heads", &[heads]),
        attack("500 slow bodies", &[bodies]),
        attack("200 that never read", &[unread]),
        attack("all of them", &[idle, heads, bodies, unread]),
    ]
}

struct Figures {
    attack: &'static str,
    calm_ms: f64,
    attacked_ms: f64,
    failed: usize,
}

impl Figures {
    fn ratio(&self) -> f64 {
        self.attacked_ms / self.calm_ms
    }

    fn json(&self) -> Value {
        json!({
            "attack": self.attack, "calm_p99_ms": self.calm_ms, "attacked_p99_ms": self.attacked_ms, "ratio": self.ratio(),
            "failed": self.failed,
        })
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Timeout of both sides.
const PATIENCE: Duration = Duration::from_secs(30);
