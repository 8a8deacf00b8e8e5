//! `stoke get`.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use comfy_table::Cell;

use crate::client::{Client, segment};
use crate::job::{self, Job};
use crate::{Global, output, submit, wait};

/// Show a job: its state, attempts, timing and result
#[derive(Args)]
pub(crate) struct GetArgs {
    /// The job's id
    id: String,
    /// Wait until it has ended and print only its result
    #[arg(long, short)]
    wait: bool,
    /// Save the files that the result names in this folder
    #[arg(long, short, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

pub(crate) async fn run(global: &Global, args: GetArgs) -> Result<()> {
    let client = Client::connect(global)?;
    if args.wait || args.out.is_some() {
        let ended = wait::until_ended(&client, &args.id, None).await?;
        return submit::show_ended(&client, &ended, args.out.as_deref(), global.json).await;
    }
    let found = client.get(&format!("/v1/jobs/{}", segment(&args.id))).await?;
    if global.json {
        return output::json(&found);
    }
    let job = Job::decode(&found)?;
    show(&job)?;
    if job.state == "succeeded" {
        output::line("")?;
        output::json(&job::result(&client, &job).await?)?;
    }
    Ok(())
}

fn show(job: &Job) -> Result<()> {
    let mut facts = output::table(["job", &job.id]);
    facts.add_row([Cell::new("state"), output::state_cell(&job.state)]);
    facts.add_row(["endpoint", &job.endpoint()]);
    facts.add_row(["created", &output::ago(&job.created_at)]);
    if job.has_ended() {
        facts.add_row(["ended", &output::ago(&job.ended_at)]);
    } else if let Some(progress) = &job.progress {
        facts.add_row(["progress", &format!("{:.0} % {}", progress.fraction * 100.0, progress.message)]);
    }
    if let Some(url) = &job.result_url {
        facts.add_row(["result", url]);
    }
    output::line(facts.trim_fmt())?;
    if job.attempts.is_empty() {
        return Ok(());
    }
    let mut attempts =
        output::table(["attempt", "state", "worker", "started", "queued", "env", "boot", "load", "run", "upload"]);
    for attempt in &job.attempts {
        let timing = attempt.timing;
        let mut row = vec![
            Cell::new(attempt.attempt),
            output::state_cell(&attempt.state),
            Cell::new(&attempt.worker_id),
            Cell::new(output::ago(&attempt.started_at)),
        ];
        let parts = [timing.queued_ms, timing.env_ms, timing.boot_ms, timing.load_ms, timing.run_ms, timing.upload_ms];
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
