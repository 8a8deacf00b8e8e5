//! The effect on a second tenant while the first floods the API: the p99 of its submits without and with the flood, in
//! one run.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use crate::api::Api;
use crate::report::{Outcome, Promise, Report};
use crate::stage::{self, Stage, Who};

/// The argument that makes this program the flood's client, and the variable with its token.
pub(crate) const CLIENT: &str = "flood-client";
const TOKEN: &str = "STOKE_FLOOD_TOKEN";

/// Maximum ratio of the victim's p99.
const RATIO_MAX: f64 = 2.0;

/// Slices without and with the flood alternate, so that other load of the machine affects both.
const ROUNDS: usize = 7;

const RATE_PER_S: u32 = 50;
const REQUESTS: u32 = 250;

/// Connections that send requests of one kind, each one after the other.
const CONNECTIONS: usize = 4;

/// Number of requests after which the flood has started.
const UNDER_WAY: usize = 50;

/// Timeout of a request; none takes that long unless it has failed.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) async fn run(report: &mut Report) {
    if !stage::is_full() {
        report.skip("tenants", "beside a flood", "it takes minutes: `make hostile-tests` measures it");
        return;
    }
    let stage = Stage::start(Who::Root, &["--workers", "0", "--durability", "standard"], &[]);
    let token = stage.tenant_token("attacker", &["admin"]).await;
    let (victim, attacker) = (stage.tenant("victim", &["admin"]).await, stage.as_token(&token));
    for api in [&victim, &attacker] {
        let (status, answer) = stage::deploy(api, &stage::version("plain", json!({}))).await;
        assert_eq!(status, 201, "{answer}");
    }
    // 2^40 steps, if they were all taken.
    let mut deep = serde_json::Map::new();
    for n in 0..40 {
        let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
        deep.insert(format!("d{n}"), json!({"anyOf": [next, next]}));
    }
    deep.insert("d40".to_owned(), json!({"type": "integer"}));
    let costly = stage::version("costly", json!({"input_schema": {"$ref": "#/$defs/d0", "$defs": deep}}));
    let (status, answer) = stage::deploy(&attacker, &costly).await;
    assert_eq!(status, 201, "{answer}");

    let (mut ratios, mut failed, mut sent) = (Vec::new(), 0, 0);
    let _ = slice(&victim).await;
    for round in 1..=ROUNDS {
        let calm = slice(&victim).await;
        let flood = Flood::start(&stage.api.url, &token);
        let attacked = slice(&victim).await;
        sent += flood.end();
        failed += attacked.failed;
        let ratio = attacked.p99_ms / calm.p99_ms;
        println!(
            "tenants beside a flood: round {round}: p99 {:.1} ms calm, {:.1} ms attacked: {ratio:.2} times",
            calm.p99_ms, attacked.p99_ms
        );
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ratios.len() / 2];
    println!(
        "tenants beside a flood: {sent} hostile requests; the median of {ROUNDS} rounds is {median:.2} times the calm p99"
    );
    let mut outcome = Outcome::counted(sent, Vec::new());
    outcome.open_if(median > RATIO_MAX, || format!("{median:.2} times the calm p99, in rounds {ratios:.2?}"));
    outcome.open_if(failed > 0, || format!("{failed} of the victim's requests failed"));
    report.note("tenants", "beside a flood", Promise::Holds, "keeps_nobody_waiting", &outcome);
}

struct Slice {
    p99_ms: f64,
    failed: usize,
}

/// A constant rate of submits; each latency is measured from the time at which its request was due.
async fn slice(api: &Api) -> Slice {
    let start = Instant::now() + Duration::from_millis(10);
    let all = (0..REQUESTS).map(|n| async move {
        let due = start + Duration::from_secs(1) * n / RATE_PER_S;
        sleep_until(due).await;
        let request = api.request("POST", "/v1/jobs").json(&json!({"endpoint": "plain", "input": {"n": n}})).send();
        let is_done = matches!(timeout(PATIENCE, request).await, Ok(Ok(answer)) if answer.status().is_success());
        (due.elapsed().as_secs_f64() * 1e3, is_done)
    });
    let seen = futures::future::join_all(all).await;
    let mut ms: Vec<f64> = seen.iter().map(|(ms, _)| *ms).collect();
    ms.sort_by(f64::total_cmp);
    Slice { p99_ms: ms[ms.len() * 99 / 100], failed: seen.iter().filter(|(_, is_done)| !is_done).count() }
}

/// All attacks of one tenant on the others at once, until it is ended: a separate process, which takes processor time
/// from the API too.
struct Flood {
    child: Child,
    ends: ChildStdin,
    said: BufReader<ChildStdout>,
}

impl Flood {
    /// Starts the flood. Returns once it has started sending.
    fn start(url: &str, token: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([CLIENT, url])
            .env(TOKEN, token)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (ends, said) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut flood = Self { child, ends, said: BufReader::new(said) };
        flood.said.read_line(&mut String::new()).unwrap();
        flood
    }

    /// Ends the flood. Returns its number of requests.
    fn end(mut self) -> usize {
        drop(self.ends);
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        assert!(self.child.wait().unwrap().success());
        line.trim().parse().unwrap()
    }
}

/// The flood's process: reports when it has started, and its number of requests once its standard input has ended.
pub(crate) async fn client(url: &str) -> ExitCode {
    let (sent, token) = (Arc::new(AtomicUsize::new(0)), std::env::var(TOKEN).unwrap());
    let (http, under_way) = (reqwest::Client::new(), Arc::new(Notify::new()));
    for (method, path, body) in requests() {
        for _ in 0..CONNECTIONS {
            let (http, sent, token, under_way) = (http.clone(), sent.clone(), token.clone(), under_way.clone());
            let url = format!("{url}{path}");
            tokio::spawn(async move {
                loop {
                    let request = http.request(method.parse().unwrap(), &url).bearer_auth(&token);
                    let request = match body {
                        Some(body) => request.header("content-type", "application/json").body(body),
                        None => request,
                    };
                    if sent.fetch_add(1, Ordering::Relaxed) + 1 == UNDER_WAY {
                        under_way.notify_one();
                    }
                    // Holds a stream for a moment, and closes it.
                    let _ = timeout(Duration::from_millis(500), async { request.send().await?.bytes().await }).await;
                }
            });
        }
    }
    under_way.notified().await;
    println!("under way");
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await.unwrap().unwrap();
    println!("{}", sent.load(Ordering::Relaxed));
    ExitCode::SUCCESS
}

/// Each kind of request with its optional body, which lives as long as the process.
fn requests() -> Vec<(&'static str, &'static str, Option<&'static str>)> {
    let large = "x".repeat(60_000);
    let jobs: Vec<Value> = (0..200).map(|n| json!({"endpoint": "plain", "input": n})).collect();
    let patterns = vec![json!({"pattern": r"[\w\W]{300}x"}); 100];
    let requests = [
        ("POST", "/v1/jobs", json!({"endpoint": "costly", "input": {"a": 1}})),
        ("POST", "/v1/jobs", json!({"endpoint": "plain", "input": large})),
        ("POST", "/v1/jobs/bulk", json!({"jobs": jobs})),
        ("POST", "/v1/jobs/cancel", json!({"filter": {"endpoint": "plain"}, "limit": 1000})),
        ("GET", "/v1/jobs?limit=100&metadata.x=y", Value::Null),
        ("GET", "/v1/dead-letters?limit=100", Value::Null),
        ("GET", "/v1/costs?by=job", Value::Null),
        ("GET", "/v1/live?topics=jobs,batches,costs", Value::Null),
        ("POST", "/v1/endpoints", stage::version("costly", json!({"input_schema": {"allOf": patterns}}))),
        (
            "POST",
            "/v1/endpoints",
            stage::version("large", json!({"input_schema": {"description": "x".repeat(200_000)}})),
        ),
        ("DELETE", "/v1/endpoints/large?force=true", Value::Null),
        ("POST", "/v1/schedules", json!({"cron": "* * * * *", "job": {"endpoint": "plain", "input": 1}})),
        ("POST", "/v1/schedules", json!({"cron": "0 0 1 1 *", "job": {"endpoint": "plain", "input": large}})),
        ("POST", "/v1/batches?endpoint=plain", json!({"input": 1})),
    ];
    let written = |body: Value| (!body.is_null()).then(|| &*body.to_string().leak());
    requests.into_iter().map(|(method, path, body)| (method, path, written(body))).collect()
}
