//! `stoke get`.

mod trace;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use comfy_table::Cell;
use stokehold_client::models::{Job, JobState, Timing};

use crate::client::{Client, decode, segment};
use crate::{Global, duration, output, result, submit, tokens, wait, waiting};

/// Show a job: its state, attempts, timing and result
#[derive(Args)]
#[command(after_help = "Examples:
  stoke get 0192f0c1a2b37cde8f00112233445500
  stoke get 0192f0c1a2b37cde8f00112233445500 --wait --out pictures/
  stoke get 0192f0c1a2b37cde8f00112233445500 --trace --json")]
pub(crate) struct GetArgs {
    /// Job id
    id: String,
    /// Wait until the job ends and print only its result
    #[arg(long, short)]
    wait: bool,
    /// Stop waiting after this time with status 4, e.g. 90s or 5m; the job keeps running [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, requires = "wait")]
    wait_timeout: Option<Duration>,
    /// Show a trace of the job's time; with --json, in OpenTelemetry format (OTLP/JSON)
    #[arg(long, short, conflicts_with_all = ["wait", "out"])]
    trace: bool,
    /// Save the files of the result to this folder
    #[arg(long, short, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

pub(crate) async fn run(global: &Global, args: GetArgs) -> Result<()> {
    let client = Client::connect(global)?;
    if args.trace {
        return trace::show(&client, &args.id, global.json).await;
    }
    if args.wait || args.out.is_some() {
        let ended = wait::until_ended(&client, &args.id, args.wait_timeout).await?;
        return submit::show_ended(&client, &ended, args.out.as_deref(), global.json).await;
    }
    let found = client.get(&format!("/v1/jobs/{}", segment(&args.id))).await?;
    if global.json {
        return output::json(&found);
    }
    let job: Job = decode(&found)?;
    show(&job)?;
    if job.state == JobState::Succeeded {
        output::line("")?;
        output::json(&result::fetch(&client, &job).await?)?;
    }
    Ok(())
}

fn show(job: &Job) -> Result<()> {
    output::line(facts(job).trim_fmt())?;
    if !job.steps.is_empty() {
        output::line("")?;
        output::line(steps(job).trim_fmt())?;
    }
    if job.attempts.is_empty() {
        return Ok(());
    }
    let mut attempts = output::table([
        "attempt", "state", "worker", "started", "queued", "env", "weights", "boot", "load", "warm-up", "wait",
        "inputs", "run", "upload",
    ]);
    for attempt in &job.attempts {
        let mut row = vec![
            Cell::new(attempt.attempt),
            output::state_cell(attempt.state.as_str()),
            Cell::new(&attempt.worker_id),
            Cell::new(output::ago(attempt.started_at.as_str())),
        ];
        let Timing { queued_ms, env_ms, weights_ms, boot_ms, load_ms, warmup_ms, .. } = attempt.timing;
        let Timing { worker_wait_ms, inputs_ms, run_ms, upload_ms, .. } = attempt.timing;
        let before = [queued_ms, env_ms, weights_ms, boot_ms, load_ms, warmup_ms];
        let after = [worker_wait_ms.unwrap_or_default(), inputs_ms.unwrap_or_default(), run_ms, upload_ms];
        let parts = before.into_iter().chain(after);
        row.extend(parts.map(|ms| Cell::new(output::millis(ms))));
        attempts.add_row(row);
    }
    output::line("")?;
    output::line(attempts.trim_fmt())?;
    for attempt in job.attempts.iter().filter(|attempt| attempt.error.is_some()) {
        if let Some(error) = &attempt.error {
            output::line(format_args!("\nattempt {}: {error}", attempt.attempt))?;
        }
    }
    Ok(())
}

fn facts(job: &Job) -> output::Table {
    let mut facts = output::table(["job", &job.id]);
    facts.add_row([Cell::new("state"), output::state_cell(job.state.as_str())]);
    facts.add_row(["endpoint", &job.endpoint_version()]);
    facts.add_row(["created", &output::ago(job.created_at.as_str())]);
    if job.state.has_ended() {
        facts.add_row(["ended", &output::ago(job.ended_at.as_deref())]);
    } else if let Some(progress) = &job.progress {
        facts.add_row(["progress", &format!("{:.0} % {}", progress.fraction * 100.0, progress.message)]);
    }
    if let Some(deadline_at) = job.deadline_at.as_deref().filter(|_| !job.state.has_ended()) {
        facts.add_row(["deadline", &output::when(deadline_at)]);
    }
    let batch = job.batch_id.as_ref().map(|batch| match job.line {
        Some(line) => format!("{batch}, line {line}"),
        None => batch.clone(),
    });
    let after: Vec<String> = job.depends_on.iter().map(|on| format!("{} ({})", on.job, on.on)).collect();
    let cost = job.cost_usd_micros.map(|micros| {
        let per_tokens = tokens::price(job.usage, micros).map_or(String::new(), |price| format!(", {price}"));
        format!("${:.6}{per_tokens}", micros as f64 / 1e6)
    });
    let given = [
        ("waiting", waiting::text(job)),
        (
            "out of memory",
            Some(job.oom_events).filter(|times| *times > 0).map(|times| output::counted(times.into(), "time")),
        ),
        ("batch", batch),
        ("retry of", job.retry_of.clone()),
        ("schedule", job.schedule_id.clone()),
        ("after", Some(after.join(", ")).filter(|after| !after.is_empty())),
        ("concurrency", job.concurrency_key.clone()),
        ("webhook", job.webhook.clone()),
        ("tokens", job.usage.map(tokens::counts)),
        ("cost", cost),
        ("result", job.result_url.clone()),
    ];
    for (name, value) in given {
        if let Some(value) = value {
            facts.add_row([name, &value]);
        }
    }
    facts
}

fn steps(job: &Job) -> output::Table {
    let mut table =
        output::table(["step", "stage", "endpoint", "job", "state", "decision", "run", "reason"]).wrapping(&["reason"]);
    for step in &job.steps {
        table.add_row([
            Cell::new(output::text(step.name.as_str())),
            Cell::new(&step.stage),
            Cell::new(&step.endpoint),
            Cell::new(step.job_id.as_deref().unwrap_or("-")),
            output::state_cell(step.state.as_ref().map_or("-", JobState::as_str)),
            step.decision.as_deref().map_or(Cell::new("-"), output::state_cell),
            Cell::new(step.timing.map_or("-".to_owned(), |timing| output::millis(timing.run_ms))),
            Cell::new(step.reason.as_deref().unwrap_or("-")),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_job_shows_where_it_comes_from_and_its_steps() {
        let whole = json!({
            "id": "02", "endpoint": "echo", "version": 1, "state": "failed", "batch_id": "batch_1", "line": 7, "retry_of": "01",
            "depends_on": [{"job": "00", "on": "completion"}], "cost_usd_micros": 1_250_000,
            "usage": {"prompt_tokens": 2_000_000, "cached_tokens": 1_500_000, "completion_tokens": 500_000},
            "steps": [{"name": null, "stage": "before", "endpoint": "guard", "job_id": "03", "state": "succeeded", "decision": "reject",
                "reason": "too rude", "scores": {}, "timing": {"run_ms": 12}, "cost_usd_micros": null}],
            "waiting": {"reason": "busy", "message": "every slot is busy", "estimate_s": 30},
        });
        let job: Job = decode(&whole).unwrap();
        let shown = format!("{}\n{}", facts(&job).trim_fmt(), steps(&job).trim_fmt());
        for part in [
            "batch_1, line 7",
            "01",
            "00 (completion)",
            "$1.250000, $0.50 per 1M tokens",
            "2,000,000 prompt (1,500,000 cached), 500,000 completion",
            "guard",
            "reject",
            "too rude",
            "12 ms",
            "every slot is busy, about 30 s",
        ] {
            assert!(shown.contains(part), "{part}:\n{shown}");
        }
    }
}
