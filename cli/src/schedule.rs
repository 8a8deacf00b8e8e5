//! `stoke schedule`.

use anyhow::Result;
use clap::{Args, Subcommand};
use comfy_table::Cell;
use reqwest::Method;
use serde_json::{Value, json};
use stokehold_client::models::{Schedule, ScheduleRequest, SubmitRequest};

use crate::client::{Client, decode, pages, segment};
use crate::submit::flags::{JobFlags, ScheduleFlags};
use crate::submit::input;
use crate::submit::options;
use crate::{Global, completions, output};

/// Run jobs on a cron schedule
#[derive(Args)]
#[command(after_help = "Examples:
  stoke schedule create report --cron '0 6 * * 1-5' --time-zone Europe/Berlin
  stoke schedule list")]
pub(crate) struct ScheduleArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Create(Box<CreateArgs>),
    /// List schedules
    #[command(after_help = "Examples:\n  stoke schedule list")]
    List {
        /// Maximum number of schedules
        #[arg(long, short, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
    },
    /// Show a schedule: its next run and its job
    #[command(after_help = "Examples:\n  stoke schedule get sch_0123456789abcdef")]
    Get {
        /// Schedule id
        id: String,
    },
    /// Pause a schedule
    #[command(after_help = "Examples:\n  stoke schedule pause sch_0123456789abcdef")]
    Pause {
        /// Schedule id
        id: String,
    },
    /// Resume a paused schedule
    #[command(after_help = "Examples:\n  stoke schedule resume sch_0123456789abcdef")]
    Resume {
        /// Schedule id
        id: String,
    },
    /// Delete a schedule (its jobs are kept)
    #[command(after_help = "Examples:\n  stoke schedule delete sch_0123456789abcdef")]
    Delete {
        /// Schedule id
        id: String,
    },
}

/// Create a schedule
#[derive(Args)]
#[command(after_help = "Examples:
  stoke schedule create report --cron '0 6 * * 1-5' --time-zone Europe/Berlin --input @report.json
  stoke schedule create refresh --cron '*/15 * * * *' --missed skip --input '{\"full\": false}'")]
struct CreateArgs {
    /// Endpoint, or one version of it as NAME@VERSION
    #[arg(value_name = "NAME[@VERSION]", add = completions::endpoints())]
    endpoint: String,
    #[command(flatten)]
    schedule: ScheduleFlags,
    /// Input as JSON, @FILE, or - for standard input [default: {}]
    #[arg(long, short, allow_negative_numbers = true)]
    input: Option<String>,
    #[command(flatten)]
    job: JobFlags,
}

pub(crate) async fn run(global: &Global, args: ScheduleArgs) -> Result<()> {
    let client = Client::connect(global)?;
    match args.verb {
        Verb::Create(args) => create(global, &client, &args).await,
        Verb::List { limit } => {
            let schedules = pages::collect(&client, "/v1/schedules", &[], "schedules", limit).await?;
            if global.json {
                return output::json(&json!({"schedules": schedules}));
            }
            output::print_table(&table(&schedules)?, "no schedules; create one with `stoke schedule create`")
        }
        Verb::Get { id } => {
            let found = client.get(&path(&id, "")).await?;
            if global.json { output::json(&found) } else { show(&decode(&found)?) }
        }
        Verb::Pause { id } => turn(global, &client, &id, "/pause").await,
        Verb::Resume { id } => turn(global, &client, &id, "/resume").await,
        Verb::Delete { id } => {
            client.once(Method::DELETE, &path(&id, ""), None).await?;
            if global.json {
                return output::json(&json!({"deleted": id}));
            }
            output::line(format_args!("deleted schedule {id}"))
        }
    }
}

fn path(id: &str, verb: &str) -> String {
    format!("/v1/schedules/{}{verb}", segment(id))
}

async fn create(global: &Global, client: &Client, args: &CreateArgs) -> Result<()> {
    // Not idempotent: a second request would create a second schedule.
    let made = client.once(Method::POST, "/v1/schedules", Some(&serde_json::to_value(request(args)?)?)).await?;
    if global.json {
        return output::json(&made);
    }
    let made: Schedule = decode(&made)?;
    output::line(&made.id)?;
    output::note(output::dim(next(&made)));
    Ok(())
}

fn request(args: &CreateArgs) -> Result<ScheduleRequest> {
    let (endpoint, version) = options::endpoint(&args.endpoint)?;
    let mut job = SubmitRequest { endpoint, version, ..SubmitRequest::default() };
    args.job.set(&mut job)?;
    job.input = input::read(args.input.as_deref())?;
    let mut request = ScheduleRequest { job, ..ScheduleRequest::default() };
    args.schedule.set(&mut request)?;
    Ok(request)
}

async fn turn(global: &Global, client: &Client, id: &str, verb: &str) -> Result<()> {
    let (_, schedule) = client.post(&path(id, verb), None).await?;
    if global.json {
        return output::json(&schedule);
    }
    output::line(format_args!("schedule {id}: {}", next(&decode(&schedule)?)))
}

/// The next run, as text.
fn next(schedule: &Schedule) -> String {
    match (schedule.paused, schedule.next_at.as_deref()) {
        (true, _) => "paused".to_owned(),
        (false, Some(at)) => format!("next run {} ({at})", output::when(at)),
        (false, None) => "no further runs".to_owned(),
    }
}

fn state(schedule: &Schedule) -> &'static str {
    match (schedule.paused, &schedule.last_error) {
        (true, _) => "paused",
        (false, None) => "ok",
        // The last run could not be submitted; the next run is still tried.
        (false, Some(_)) => "failed",
    }
}

fn table(schedules: &[Value]) -> Result<output::Table> {
    let mut table =
        output::table(["schedule", "name", "endpoint", "cron", "time zone", "state", "next", "last", "runs"]);
    for schedule in schedules {
        let schedule: Schedule = decode(schedule)?;
        table.add_row([
            Cell::new(&schedule.id),
            Cell::new(output::text(schedule.name.as_deref())),
            Cell::new(output::text(schedule.job["endpoint"].as_str())),
            Cell::new(output::text(schedule.cron.as_str())),
            Cell::new(output::text(schedule.time_zone.as_str())),
            output::state_cell(state(&schedule)),
            Cell::new(output::when(schedule.next_at.as_deref())),
            Cell::new(output::ago(schedule.last_at.as_deref())),
            Cell::new(schedule.ticks),
        ]);
    }
    Ok(table)
}

fn show(schedule: &Schedule) -> Result<()> {
    output::line(facts(schedule).trim_fmt())?;
    output::line("")?;
    output::json(&schedule.job)
}

fn facts(schedule: &Schedule) -> output::Table {
    let mut facts = output::table(["schedule", &schedule.id]);
    facts.add_row([Cell::new("state"), output::state_cell(state(schedule))]);
    facts.add_row(["name", &output::text(schedule.name.as_deref())]);
    facts.add_row(["cron", &output::text(schedule.cron.as_str())]);
    facts.add_row(["time zone", &output::text(schedule.time_zone.as_str())]);
    facts.add_row(["missed", &output::text(schedule.missed.as_str())]);
    facts.add_row(["grace s", &schedule.grace_s.to_string()]);
    facts.add_row(["ticks", &schedule.ticks.to_string()]);
    facts.add_row(["next", &output::when(schedule.next_at.as_deref())]);
    facts.add_row(["last", &output::ago(schedule.last_at.as_deref())]);
    for (name, value) in [("last job", &schedule.last_job_id), ("last error", &schedule.last_error)] {
        if let Some(value) = value {
            facts.add_row([name, &output::text(value.as_str())]);
        }
    }
    facts
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use clap::Parser;

    use super::*;
    use crate::{Cli, Command, stub};

    #[test]
    fn a_schedule_is_a_clock_and_a_job() {
        let line = [
            "stoke",
            "schedule",
            "create",
            "echo@2",
            "--cron",
            "0 6 * * 1-5",
            "--time-zone",
            "Europe/Berlin",
            "--missed",
            "run_all",
            "--name",
            "mornings",
            "--grace",
            "30s",
            "--paused",
            "--input",
            r#"{"text": "hi"}"#,
            "--priority",
            "batch",
        ];
        let Command::Schedule(ScheduleArgs { verb: Verb::Create(args) }) = Cli::try_parse_from(line).unwrap().command
        else {
            panic!("is one")
        };
        let expected = json!({
            "cron": "0 6 * * 1-5", "time_zone": "Europe/Berlin", "missed": "run_all", "name": "mornings", "grace_s": 30, "paused": true,
            "job": {"endpoint": "echo", "version": 2, "input": {"text": "hi"}, "priority": "batch"},
        });
        assert_eq!(json!(request(&args).unwrap()), expected);
    }

    #[test]
    fn every_verb_parses() {
        for line in ["list", "get sch_1", "pause sch_1", "resume sch_1", "delete sch_1"] {
            assert!(stub::parse(&format!("schedule {line}")).is_ok(), "{line}");
        }
        assert!(stub::parse("schedule create echo").is_err_and(|said| said.contains("--cron")));
    }

    #[test]
    fn a_schedule_shows_when_and_what() {
        let mut schedule = json!({"id": "sch_1", "name": null, "cron": "* * * * *", "time_zone": "UTC", "paused": false, "ticks": 3,
            "next_at": null, "last_at": null, "last_error": "unknown_endpoint", "last_job_id": "01", "job": {"endpoint": "echo"}});
        let shown = format!(
            "{}\n{}",
            table(std::slice::from_ref(&schedule)).unwrap().trim_fmt(),
            facts(&decode(&schedule).unwrap()).trim_fmt()
        );
        for part in ["sch_1", "echo", "failed", "unknown_endpoint", "last job"] {
            assert!(shown.contains(part), "{part}:\n{shown}");
        }
        schedule["paused"] = true.into();
        assert_eq!(next(&decode(&schedule).unwrap()), "paused");
    }
}
