//! `stoke autoscaler plan`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use comfy_table::Cell;
use stokehold_autoscaler::config;
use stokehold_autoscaler::history;
use stokehold_autoscaler::live::{Autoscaler, Round};
use stokehold_planner::observation::Observation;
use stokehold_queue::Shards;

use super::{From, providers};
use crate::{Global, output};

/// Print what the autoscaler would do now and why, without doing it
#[derive(Args)]
#[command(
    after_help = "Examples:\n  stoke autoscaler plan --config /etc/stokehold/autoscaler.toml\n  stoke autoscaler plan --from rounds.jsonl --json"
)]
pub(super) struct PlanArgs {
    #[command(flatten)]
    from: From,
    /// Plan the last round of a recording made with `stoke autoscaler run --record`, after learning from the earlier
    /// rounds
    #[arg(long = "from", value_name = "FILE")]
    recorded: Option<PathBuf>,
    /// Print every setting with its default, then exit
    #[arg(long)]
    print_config: bool,
}

pub(super) async fn run(global: &Global, args: PlanArgs) -> Result<()> {
    let PlanArgs { from, recorded, print_config } = args;
    if print_config {
        return output::line(config::DEFAULT.trim_end());
    }
    let config = from.load()?;
    let round = match recorded {
        Some(path) => {
            let history = history::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let seen = history.rounds.into_iter().map(|round| round.seen).collect();
            Round::decided_of(seen, &config.settings.policy).context("the recording is empty")?
        }
        None => {
            let providers = providers(&config).await?;
            let queue = Shards::connect(config.redis.clone()).await.context("cannot reach Redis")?;
            Autoscaler::new(queue, providers, config.settings, None).plan().await?
        }
    };
    if global.json {
        return output::json(&round);
    }
    show(&round)
}

fn show(round: &Round) -> Result<()> {
    for unreachable in &round.unreachable {
        output::note(format_args!("cannot reach {unreachable}"));
    }
    let Observation { endpoints, machines, offers, .. } = &round.seen;
    let mut work = output::table(["endpoint", "needs", "waiting", "oldest", "running", "arrived"]);
    let is_busy = |of: &&stokehold_planner::Endpoint| of.running > 0 || of.work.iter().any(|work| work.waiting > 0);
    for of in endpoints.iter().filter(is_busy) {
        let waiting: Vec<String> = of.work.iter().map(|work| work.waiting.to_string()).collect();
        let oldest = of.work.iter().map(|work| work.oldest_s).fold(0.0, f64::max);
        work.add_row([
            of.name.to_string(),
            if of.vram.gib() > 0.0 { format!("{} GiB", of.vram.gib()) } else { "CPU".to_owned() },
            waiting.join(" "),
            seconds(oldest),
            of.running.to_string(),
            of.work.iter().map(|work| work.arrived).sum::<u64>().to_string(),
        ]);
    }
    output::print_table(&work, "no jobs are waiting or running")?;
    let mut table = output::table(["machine", "provider", "kind", "phase", "for", "running", "idle", "$/h"]);
    for machine in machines {
        let idle = machine.idle_since_s.map(|since_s| seconds(round.seen.at_s - since_s));
        let phase = serde_json::to_value(machine.phase)?;
        table.add_row([
            Cell::new(&machine.id),
            Cell::new(&machine.provider),
            Cell::new(&machine.kind),
            output::state_cell(phase.as_str().unwrap_or_default()),
            Cell::new(seconds(round.seen.at_s - machine.since_s)),
            Cell::new(machine.running),
            Cell::new(idle.unwrap_or_else(|| "-".to_owned())),
            Cell::new(format!("{:.3}", machine.usd_per_hour)),
        ]);
    }
    output::print_table(&table, "no machines")?;
    output::note(format_args!("{} offers", offers.len()));
    for step in &round.plan.steps {
        output::line(format_args!("{}: {}", step.action, step.reason))?;
    }
    for withheld in &round.plan.withheld {
        output::line(format_args!("withheld: {withheld}"))?;
    }
    if round.plan.steps.is_empty() {
        output::line("nothing to do")?;
    }
    Ok(())
}

fn seconds(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "never negative, and rounded")]
    let ms = (seconds.max(0.0) * 1e3) as u64;
    output::millis(ms)
}
