//! `stoke schedule`.

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use comfy_table::{Cell, Table};
use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::client::{Client, pages, segment};
use crate::submit::input;
use crate::submit::options::{self, JobOptions};
use crate::{Global, output};

/// Run jobs on a cron schedule
#[derive(Args)]
pub(crate) struct ScheduleArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Create(Box<CreateArgs>),
    /// List schedules
    List {
        /// Maximum number of schedules
        #[arg(long, short, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
    },
    /// Show a schedule: its next run and its job
    Get {
        /// Schedule id
        id: String,
    },
    /// Pause a schedule
    Pause {
        /// Schedule id
        id: String,
    },
    /// Resume a paused schedule
    Resume {
        /// Schedule id
        id: String,
    },
    /// Delete a schedule (its jobs are kept)
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
    endpoint: String,
    /// Cron expression: minute, hour, day of month, month, day of week; an optional sixth field in front is the second
    #[arg(long, value_name = "EXPR")]
    cron: String,
    /// IANA time zone, e.g. Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE")]
    time_zone: Option<String>,
    /// What to do about runs that were missed, e.g. while the API was down [default: run_once]
    #[arg(long, value_enum)]
    missed: Option<Missed>,
    /// Delay in seconds after which a run counts as missed [default: 60]
    #[arg(long, value_name = "SECONDS")]
    grace_s: Option<u64>,
    /// Name of the schedule
    #[arg(long)]
    name: Option<String>,
    /// Create the schedule paused
    #[arg(long)]
    paused: bool,
    /// Input as JSON, @FILE, or - for standard input [default: {}]
    #[arg(long, short)]
    input: Option<String>,
    #[command(flatten)]
    options: JobOptions,
}

#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Missed {
    /// Skip missed runs
    Skip,
    /// Run once for all missed runs
    RunOnce,
    /// Run every missed run
    RunAll,
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
            output::print_table(&table(&schedules), "no schedules; create one with `stoke schedule create`")
        }
        Verb::Get { id } => {
            let found = client.get(&path(&id, "")).await?;
            if global.json { output::json(&found) } else { show(&found) }
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
    let made = client.once(Method::POST, "/v1/schedules", Some(&body(args)?)).await?;
    if global.json {
        return output::json(&made);
    }
    output::line(made["id"].as_str().context("the API's response has no schedule id")?)?;
    output::note(output::dim(next(&made)));
    Ok(())
}

fn body(args: &CreateArgs) -> Result<Value> {
    let mut job = options::endpoint(&args.endpoint)?;
    job.extend(args.options.members()?);
    job.insert("input".to_owned(), input::read(args.input.as_deref())?);
    let missed = args.missed.and_then(|missed| Some(missed.to_possible_value()?.get_name().to_owned()));
    let given = [
        ("cron", Some(args.cron.as_str().into())),
        ("name", args.name.as_deref().map(Value::from)),
        ("time_zone", args.time_zone.as_deref().map(Value::from)),
        ("missed", missed.map(Value::from)),
        ("grace_s", args.grace_s.map(Value::from)),
        ("paused", args.paused.then_some(Value::Bool(true))),
        ("job", Some(job.into())),
    ];
    let members: Map<String, Value> =
        given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    Ok(members.into())
}

async fn turn(global: &Global, client: &Client, id: &str, verb: &str) -> Result<()> {
    let (_, schedule) = client.post(&path(id, verb), None).await?;
    if global.json {
        return output::json(&schedule);
    }
    output::line(format_args!("schedule {id}: {}", next(&schedule)))
}

/// The next run, as text.
fn next(schedule: &Value) -> String {
    match (schedule["paused"] == true, schedule["next_at"].as_str()) {
        (true, _) => "paused".to_owned(),
        (false, Some(at)) => format!("next run {} ({at})", output::when(&schedule["next_at"])),
        (false, None) => "no further runs".to_owned(),
    }
}

fn state(schedule: &Value) -> &'static str {
    match (schedule["paused"] == true, schedule["last_error"].is_null()) {
        (true, _) => "paused",
        (false, true) => "ok",
        // The last run could not be submitted; the next run is still tried.
        (false, false) => "failed",
    }
}

fn table(schedules: &[Value]) -> Table {
    let mut table =
        output::table(["schedule", "name", "endpoint", "cron", "time zone", "state", "next", "last", "runs"]);
    for schedule in schedules {
        table.add_row([
            Cell::new(output::cell(&schedule["id"])),
            Cell::new(output::cell(&schedule["name"])),
            Cell::new(output::cell(&schedule["job"]["endpoint"])),
            Cell::new(output::cell(&schedule["cron"])),
            Cell::new(output::cell(&schedule["time_zone"])),
            output::state_cell(state(schedule)),
            Cell::new(output::when(&schedule["next_at"])),
            Cell::new(output::ago(&schedule["last_at"])),
            Cell::new(output::cell(&schedule["ticks"])),
        ]);
    }
    table
}

fn show(schedule: &Value) -> Result<()> {
    output::line(facts(schedule).trim_fmt())?;
    output::line("")?;
    output::json(&schedule["job"])
}

fn facts(schedule: &Value) -> Table {
    let mut facts = output::table(["schedule", schedule["id"].as_str().unwrap_or_default()]);
    facts.add_row([Cell::new("state"), output::state_cell(state(schedule))]);
    for name in ["name", "cron", "time_zone", "missed", "grace_s", "ticks"] {
        facts.add_row([name.replace('_', " "), output::cell(&schedule[name])]);
    }
    facts.add_row(["next", &output::when(&schedule["next_at"])]);
    facts.add_row(["last", &output::ago(&schedule["last_at"])]);
    for name in ["last_job_id", "last_error"] {
        if !schedule[name].is_null() {
            facts.add_row([name.trim_end_matches("_id").replace('_', " "), output::cell(&schedule[name])]);
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
            "--grace-s",
            "30",
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
        assert_eq!(body(&args).unwrap(), expected);
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
        let shown = format!("{}\n{}", table(std::slice::from_ref(&schedule)).trim_fmt(), facts(&schedule).trim_fmt());
        for part in ["sch_1", "echo", "failed", "unknown_endpoint", "last job"] {
            assert!(shown.contains(part), "{part}:\n{shown}");
        }
        schedule["paused"] = true.into();
        assert_eq!(next(&schedule), "paused");
    }
}
