//! `stoke submit`.

pub(crate) mod flags;
pub(crate) mod input;
pub(crate) mod options;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};
use stokehold_client::models::{EndpointVersion, Job, JobState, SubmitRequest, VersionList};
use stokehold_package::missing_module;
use stokehold_queue::now_ms;

use crate::client::{Call, Client, Problem, decode, segment};
use crate::failure::{Failure, usage};
use crate::{Global, completions, duration, output, result, schema, upload, wait};
use flags::{JobFlags, StartFlags};

/// Submit a job (--wait waits for its result)
#[derive(Args)]
#[command(after_help = "Examples:
  stoke submit echo --input '{\"text\": \"hi\"}' --wait
  stoke submit render --input @prompt.json --wait --out pictures/
  stoke submit transcribe --file audio=talk.mp3 --wait")]
pub(crate) struct SubmitArgs {
    /// Endpoint, or one version of it as NAME@VERSION
    #[arg(value_name = "NAME[@VERSION]", add = completions::endpoints())]
    endpoint: String,
    /// Input as JSON, @FILE, or - for standard input [default: {}]
    #[arg(long, short, allow_negative_numbers = true)]
    input: Option<String>,
    /// Upload a file and pass it as the member KEY of the input; may be repeated
    #[arg(long, short, value_name = "KEY=PATH")]
    file: Vec<String>,
    /// Wait until the job ends and print its result
    #[arg(long, short)]
    wait: bool,
    /// Stop waiting after this time with status 4, e.g. 90s or 5m; the job keeps running [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, requires = "wait")]
    wait_timeout: Option<Duration>,
    /// Save the files of the result to this folder
    #[arg(long, short, value_name = "FOLDER", requires = "wait")]
    out: Option<PathBuf>,
    #[command(flatten)]
    start: StartFlags,
    #[command(flatten)]
    job: JobFlags,
    /// Idempotency key: submitting the same job with the same key returns the existing job
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

pub(crate) async fn run(global: &Global, args: SubmitArgs) -> Result<()> {
    let client = Client::connect(global)?;
    let (called_ms, place) = (now_ms().to_string(), traceparent());
    let request = request(&client, &args).await?;
    let body = serde_json::to_value(&request)?;
    // A retried request must not create a second job.
    let key = args.idempotency_key.clone().unwrap_or_else(|| format!("stoke-{:032x}", rand::random::<u128>()));
    let mut headers = vec![("idempotency-key", key.as_str()), ("stokehold-called-ms", called_ms.as_str())];
    headers.extend(place.as_deref().map(|place| ("traceparent", place)));
    let call =
        Call { method: Method::POST, path: "/v1/jobs", body: Some(&body), headers: &headers, hold: Duration::ZERO };
    let (_, accepted) = match client.call(&call).await {
        Ok(accepted) => accepted,
        Err(error) => return Err(with_file_options(&client, &request, error).await),
    };
    let job: Job = decode(&accepted)?;
    if args.wait {
        let ended = wait::until_ended(&client, &job.id, args.wait_timeout).await?;
        return show_ended(&client, &ended, args.out.as_deref(), global.json).await;
    }
    if global.json {
        return output::json(&accepted);
    }
    output::line(&job.id)?;
    output::note(output::dim(format_args!(
        "{} on {}; `stoke get {} --wait` prints its result",
        job.state,
        job.endpoint_version(),
        job.id
    )));
    Ok(())
}

/// Adds the options that pass files to the error about an input without them. Only then is the schema fetched.
async fn with_file_options(client: &Client, request: &SubmitRequest, error: anyhow::Error) -> anyhow::Error {
    let problem = match error.downcast::<Problem>() {
        Ok(problem) if problem.code == "invalid_input" => problem,
        Ok(problem) => return problem.into(),
        Err(error) => return error,
    };
    // Without the schema there is no advice; the error is the same.
    let schema = input_schema(client, &request.endpoint, request.version).await.ok();
    match schema.and_then(|schema| schema::file_advice(&schema, &request.input)) {
        Some(advice) => problem.with_hint(advice).into(),
        None => problem.into(),
    }
}

/// Fetches the schema of the inputs of an endpoint.
async fn input_schema(client: &Client, endpoint: &str, version: Option<u32>) -> Result<Value> {
    let path = format!("/v1/endpoints/{}", segment(endpoint));
    let Some(number) = version else {
        return Ok(decode::<EndpointVersion>(&client.get(&path).await?)?.input_schema);
    };
    let VersionList { versions } = decode(&client.get(&format!("{path}/versions")).await?)?;
    let found = versions.into_iter().find(|version| version.version == number);
    Ok(found.with_context(|| format!("no version {number}"))?.input_schema)
}

/// The trace context of `TRACEPARENT`, which CI systems set. The API ignores invalid values; unprintable ones are not
/// sent.
fn traceparent() -> Option<String> {
    std::env::var("TRACEPARENT").ok().filter(|place| place.bytes().all(|byte| byte.is_ascii_graphic()))
}

/// Prints the result of an ended job, or the whole job with `json`. Fails if the job did not succeed.
pub(crate) async fn show_ended(client: &Client, ended: &Value, out: Option<&Path>, json: bool) -> Result<()> {
    let job: Job = decode(ended)?;
    if job.state != JobState::Succeeded {
        if json {
            output::json(ended)?;
        }
        return failed(&job);
    }
    let value = if json && out.is_none() { Value::Null } else { result::fetch(client, &job).await? };
    // Saved before anything is printed, because the reader may close the pipe.
    if let Some(folder) = out {
        for path in result::save_files(client, &value, folder).await? {
            output::note(format_args!("saved {}", path.display()));
        }
    }
    output::json(if json { ended } else { &value })
}

/// The error of a job that did not succeed.
fn failed(job: &Job) -> Result<()> {
    let hint = job.error.as_ref().and_then(|error| missing_module(&error.class, &error.message));
    match (job.succeeded(), hint) {
        (Err(error), Some(hint)) => Err(Failure::job(error.to_string()).hint(hint).into()),
        (ended, _) => ended,
    }
}

async fn request(client: &Client, args: &SubmitArgs) -> Result<SubmitRequest> {
    let (endpoint, version) = options::endpoint(&args.endpoint)?;
    let mut request = SubmitRequest { endpoint, version, ..SubmitRequest::default() };
    // Invalid options fail before anything is uploaded.
    args.job.set(&mut request)?;
    args.start.set(&mut request)?;
    request.input = input(client, args).await?;
    Ok(request)
}

async fn input(client: &Client, args: &SubmitArgs) -> Result<Value> {
    let mut input = input::read(args.input.as_deref())?;
    for pair in &args.file {
        let (key, path) = options::pair_as(pair, "KEY=PATH").context("--file")?;
        let Some(members) = input.as_object_mut() else {
            usage!("--file requires an input that is a JSON object");
        };
        let id = upload::input_file(client, Path::new(path)).await?;
        members.insert(key.to_owned(), json!({"$file": id}));
    }
    Ok(input)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use axum::http::StatusCode;
    use axum::routing::{get, post};
    use axum::{Json, Router};

    use super::*;
    use crate::{Command, stub};

    #[tokio::test]
    async fn options_become_members() {
        let line = "submit echo@2 --deadline 60s --queue-timeout 5s --retention 90s --concurrency-key user:3 --depends-on 01 \
            --depends-on 02:completion --webhook https://x.test/h --webhook-event job.started --webhook-event job.completed \
            --run-after 2026-11-21T05:50:00Z --priority batch --metadata a=b --timeout 7s --max-attempts 2";
        let Command::Submit(args) = stub::parse(line).unwrap() else { panic!("is a submit") };
        let client = crate::client::connect_to("http://127.0.0.1:1".to_owned(), String::new()).unwrap();
        let expected = json!({
            "endpoint": "echo", "version": 2, "input": {}, "deadline_s": 60, "queue_timeout_s": 5, "retention_s": 90,
            "concurrency_key": "user", "concurrency_max": 3,
            "depends_on": [{"job": "01", "on": "success"}, {"job": "02", "on": "completion"}],
            "webhook": "https://x.test/h", "webhook_events": ["job.started", "job.completed"],
            "run_after": "2026-11-21T05:50:00Z", "priority": "batch", "metadata": {"a": "b"}, "timeout_s": 7, "max_attempts": 2,
        });
        assert_eq!(json!(request(&client, &args).await.unwrap()), expected);
    }

    #[test]
    fn an_input_may_be_a_negative_number() {
        for line in ["submit double --input -5", "submit double -i -2.5", "submit double --input - --wait"] {
            assert!(stub::parse(line).is_ok(), "{line}: {:?}", stub::parse(line).err());
        }
        assert!(stub::parse("submit double --input --wait").is_err());
    }

    #[tokio::test]
    async fn an_input_without_its_file_names_the_option() {
        let problem = json!({"status": 400, "code": "invalid_input", "detail": "\"document\" is a required property"});
        let version = json!({"name": "upper", "version": 3, "input_schema": {"type": "object", "required": ["document"],
            "properties": {"document": {"type": "object", "format": "stokehold-file"}}}});
        let routes = Router::new()
            .route("/v1/jobs", post(move || async move { (StatusCode::BAD_REQUEST, Json(problem)) }))
            .route("/v1/endpoints/upper", get(move || async move { Json(version) }));
        let client = stub::serve(routes).await;
        let refused = client.post("/v1/jobs", Some(&json!({}))).await.unwrap_err();
        let request = SubmitRequest { endpoint: "upper".to_owned(), input: json!({}), ..SubmitRequest::default() };
        let error = with_file_options(&client, &request, refused).await;
        assert_eq!(error.to_string(), "\"document\" is a required property\nPass a file with `--file document=PATH`.");
    }

    #[test]
    fn a_missing_module_names_the_file_of_requirements() {
        let job = json!({"id": "1", "endpoint": "e", "state": "failed",
            "error": {"code": "load_error", "class": "ModuleNotFoundError", "message": "No module named 'numpy'"}});
        let error = failed(&decode(&job).unwrap()).unwrap_err();
        assert!(error.to_string().contains("requirements.txt"), "{error}");
    }

    #[test]
    fn webhook_events_are_checked() {
        assert!(stub::parse("submit echo --webhook-event job.completed").is_err_and(|said| said.contains("--webhook")));
        let said = stub::parse("submit echo --webhook https://x.test --webhook-event job.done").err().unwrap();
        assert!(said.contains("job.started"), "{said}");
    }

    #[test]
    fn every_member_of_a_request_has_a_flag() {
        let document: Value = serde_json::from_str(include_str!("../../api/openapi.json")).unwrap();
        let command = <crate::Cli as clap::CommandFactory>::command();
        for (request, words) in [
            ("SubmitRequest", &["submit"][..]),
            ("BatchRequest", &["batch", "submit"]),
            ("ScheduleRequest", &["schedule", "create"]),
        ] {
            let named = words.iter().fold(&command, |command, word| command.find_subcommand(word).unwrap());
            let flags: Vec<&str> = named.get_arguments().filter_map(clap::Arg::get_long).collect();
            let members = document["components"]["schemas"][request]["properties"].as_object().unwrap();
            for member in members.keys() {
                let flag = member.replace('_', "-");
                // A flag of a list is singular, amounts are given in US dollars, and durations with their unit.
                let forms =
                    [&*flag, flag.trim_end_matches('s'), flag.trim_end_matches("-micros"), flag.trim_end_matches("-s")];
                let has_flag = forms.iter().any(|form| flags.contains(form));
                let is_elsewhere =
                    flags::ELSEWHERE.iter().any(|(of, name, _)| (*of, *name) == (request, member.as_str()));
                assert!(has_flag || is_elsewhere, "{request}: no flag for {member}; run `make openapi`");
            }
        }
    }

    #[test]
    fn flags_have_the_bounds_of_the_api() {
        for wrong in ["--timeout 0s", "--max-attempts 101", "--retention 59s", "--priority urgent"] {
            assert!(stub::parse(&format!("submit echo {wrong}")).is_err(), "{wrong}");
        }
    }
}
