//! A batch of OpenAI's official client on a rented machine, while the engine, the worker and a replica of the API are
//! killed; and a batch whose budget stops it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use stokehold_tests::stack::Stack;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::time::{Instant, sleep};

use crate::api::{self, Api};
use crate::batches::kill_9;
use crate::openai::{engine, python};
use crate::renting::until;

const LINES: u64 = 2_000;
/// Length of each answer, tokens.
const TOKENS: u64 = 4;
const LEASE_S: u64 = 8;
const PATIENCE: Duration = Duration::from_secs(600);

/// What the client saw of a batch.
#[derive(Debug, Deserialize)]
struct Seen {
    status: String,
    counts: Value,
    /// Time from the start of the first attempt to the end of the last one.
    ran_s: Option<f64>,
    usage: Option<Value>,
    output: Vec<String>,
    /// Custom id and code.
    errors: Vec<(String, String)>,
    prompt_tokens: u64,
    completion_tokens: u64,
}

/// A client that runs, and the batch that it has created.
struct Client {
    process: tokio::process::Child,
    stdout: BufReader<tokio::process::ChildStdout>,
    batch: String,
}

impl Client {
    /// Creates a batch through the replica at `url`, and follows it through the stack's own API.
    async fn start(stack: &Stack, url: &str, lines: u64, budget_usd: &str, tokens: u64) -> Self {
        let mut command = Command::new(python());
        command.arg(api::handler("../openai_batch.py")).args([&lines.to_string(), budget_usd, &tokens.to_string()]);
        command.env("OPENAI_BASE_URL", format!("{url}/openai/v1")).env("OPENAI_API_KEY", &stack.token);
        command.env("LASTING_URL", &stack.url).stdout(Stdio::piped());
        let mut process = tokio::process::Command::from(command).kill_on_drop(true).spawn().unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let mut batch = String::new();
        stdout.read_line(&mut batch).await.unwrap();
        assert!(batch.starts_with("batch_"), "{batch}\n{}", stack.log_tail());
        Self { process, stdout, batch: batch.trim().to_owned() }
    }

    async fn seen(mut self) -> Seen {
        let mut text = String::new();
        tokio::time::timeout(PATIENCE, self.stdout.read_to_string(&mut text)).await.expect("the batch ends").unwrap();
        assert!(self.process.wait().await.unwrap().success(), "{text}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

/// What the provider has charged so far, by its own ledger.
async fn charged_usd(stack: &Stack) -> f64 {
    let state: Value = reqwest::get(format!("{}/_fake/state", stack.fake_vast())).await.unwrap().json().await.unwrap();
    state["spent_usd"].as_f64().unwrap()
}

/// Waits until this many lines of the batch have ended.
async fn ended(api: &Api, stack: &Stack, batch: &str, lines: u64) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let counts = api.get(&format!("/v1/batches/{batch}")).await["counts"].take();
        if counts["succeeded"].as_u64().unwrap() >= lines {
            return;
        }
        assert!(Instant::now() < deadline, "{counts}\n{}", stack.log_tail());
        sleep(Duration::from_millis(50)).await;
    }
}

/// Kills the process of the stack whose command line contains `part`.
fn kill_one(stack: &Stack, part: &str) {
    let pids = stack.children(part);
    assert!(pids.iter().any(|pid| kill_9(Some(*pid))), "no {part} to kill: {pids:?}\n{}", stack.log_tail());
}

/// A stack that rents at most one machine, with the engine as the endpoint `chat`.
fn rented_engine(dir: &Path) -> Stack {
    let stack = api::start_with(
        dir,
        &["--fake-vast", "--workers", "0..1"],
        &[("STOKE_LEASE_MS", &(LEASE_S * 1_000).to_string())],
    );
    let folder = engine(dir, "chat", "vram_gib = 6\nopenai = \"chat\"\nmax_attempts = 20", "");
    let _ = stack.stoke_ok(&["deploy", &folder]);
    stack
}

/// Returns the price of the machine, millionths of a dollar per hour.
async fn check_every_line_once_under_kills(api: &Api, stack: &Stack) -> u64 {
    let replica = stack.start_replica(&[]);
    let client = Client::start(stack, &replica.url, LINES, "5", TOKENS).await;
    let batch = client.batch.clone();
    ended(api, stack, &batch, LINES / 5).await;
    let machines = api.get("/v1/fleet").await["machines"].take();
    let per_hour = machines[0]["usd_micros_per_hour"].as_u64().unwrap_or_else(|| panic!("no machine runs: {machines}"));
    kill_one(stack, "server.py");
    ended(api, stack, &batch, LINES * 2 / 5).await;
    drop(replica);
    ended(api, stack, &batch, LINES * 3 / 5).await;
    kill_one(stack, "stoke worker");

    let seen = client.seen().await;
    assert_eq!(seen.status, "completed", "{seen:?}\n{}", stack.log_tail());
    assert_eq!(seen.counts, json!({"total": LINES, "completed": LINES, "failed": 0}));
    let once: BTreeSet<&String> = seen.output.iter().collect();
    assert_eq!((seen.output.len() as u64, once.len() as u64), (LINES, LINES), "each line once");
    assert_eq!(seen.completion_tokens, LINES * TOKENS);
    let usage = seen.usage.expect("an engine counts tokens");
    let counted = (&usage["input_tokens"], &usage["output_tokens"]);
    assert_eq!(counted, (&json!(seen.prompt_tokens), &json!(seen.completion_tokens)), "the sum of the lines");
    let rows = api.get("/v1/costs?by=batch").await["rows"].take();
    let row = rows.as_array().unwrap().iter().find(|row| row["batch_id"] == batch.as_str());
    let row = row.unwrap_or_else(|| panic!("no cost of {batch}: {rows}"));
    assert_eq!(row["usage"]["completion_tokens"], json!(LINES * TOKENS), "{row}");
    per_hour
}

/// Endless answers on one machine, with a budget that is spent after seconds. The machine may be the one of before, or a
/// new one of the same offer.
async fn check_a_budget_stops_within_a_lease(api: &Api, stack: &Stack, per_hour: u64) {
    let budget = per_hour * 4 / 3_600;
    let client = Client::start(stack, &stack.url, 40, &format!("{:.6}", budget as f64 / 1e6), 60_000).await;
    let batch = client.batch.clone();
    let seen = client.seen().await;
    assert_eq!((seen.status.as_str(), seen.output.len()), ("cancelled", 0), "{seen:?}\n{}", stack.log_tail());
    assert_eq!(seen.errors.len(), 40, "{seen:?}");
    assert!(seen.errors.iter().all(|(_, code)| code == "budget_reached"), "{seen:?}");
    let view = api.get(&format!("/v1/batches/{batch}")).await;
    assert_eq!(view["stop_reason"], "budget", "{view}");

    let cost = per_hour as f64 * seen.ran_s.unwrap() / 3_600.0;
    let most = budget + per_hour * LEASE_S / 3_600;
    assert!(cost <= most as f64, "{cost} of at most {most} millionths of a dollar");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_the_official_client_survives_kills_and_costs_what_the_machines_charge() {
    let dir = tempfile::tempdir().unwrap();
    let stack = rented_engine(dir.path());
    let api = Api::of(&stack);
    let per_hour = check_every_line_once_under_kills(&api, &stack).await;
    check_a_budget_stops_within_a_lease(&api, &stack, per_hour).await;

    let is_idle = async || (api.get("/v1/fleet").await["machines"] == json!([])).then_some(());
    until("machines stay", &stack, is_idle).await;
    let charged = charged_usd(&stack).await;
    let costs = until("the charges are not final", &stack, async || {
        let costs = api.get("/v1/costs?by=batch").await;
        (costs["total"]["is_estimate"] == json!(false)).then_some(costs)
    })
    .await;
    let total = costs["total"]["total_usd_micros"].as_f64().unwrap() / 1e6;
    assert!((total - charged).abs() < charged / 100.0, "{total} is not {charged}: {costs}");
    let rows: u64 = costs["rows"].as_array().unwrap().iter().map(|row| row["total_usd_micros"].as_u64().unwrap()).sum();
    assert_eq!(Some(rows), costs["total"]["total_usd_micros"].as_u64(), "the batches cost all of it");
}
