//! Schemas of tenants: programs that the API runs on every input. None may delay other tenants, or take the memory that
//! they need.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use stokehold_tests::process;
use tokio::time::{sleep, timeout};

use crate::attacks;
use crate::report::{Outcome, Promise, Report};
use crate::stage::{self, Stage, Who};

const SURFACE: &str = "schemas";

/// Beyond this a request counts as hanging; on an otherwise idle machine every refusal or check takes well under a
/// second.
const LIMIT: Duration = Duration::from_secs(30);

/// Maximum growth of the API's memory by all schemas and inputs together, MiB.
const MEMORY_MIB: u64 = 700;

/// A schema, and inputs for it. All are JSON text, because some nest deeper than a parser allows.
#[derive(Deserialize)]
struct Hostile {
    name: String,
    schema: String,
    inputs: Vec<String>,
}

struct Target {
    stage: Stage,
    schemas: Vec<Hostile>,
}

pub(crate) async fn run(report: &mut Report) {
    let stage = Stage::start(Who::Root, &["--workers", "0"], &[]);
    let (depth, width) = (40.to_string(), stage::size(2_000, 5_000).to_string());
    let schemas = serde_json::from_value(stage::python("schemas/make.py", &[&depth, &width])).unwrap();
    let target = Target { stage, schemas };
    attacks!(
        report,
        SURFACE,
        "-",
        Promise::Holds,
        &target,
        [keeps_nobody_waiting, keeps_nobody_waiting_at_once, takes_no_memory]
    );
}

/// The request is text: the schema nests deeper than a JSON value here may.
fn deploying(name: &str, schema: &str) -> String {
    let body = stage::version(name, json!({"input_schema": "SCHEMA"})).to_string();
    body.replacen("\"SCHEMA\"", schema, 1)
}

impl Target {
    /// Sends a request. Returns its status, or `None` if it hangs.
    async fn sent(&self, path: &str, body: String) -> Option<u16> {
        let request = self.stage.api.request("POST", path).header("content-type", "application/json").body(body);
        let answer = timeout(LIMIT, request.send()).await.ok()?;
        Some(answer.map_or(0, |answer| answer.status().as_u16()))
    }

    /// Whether others are served.
    async fn serves(&self) -> bool {
        matches!(timeout(LIMIT, self.stage.api.request("GET", "/healthz").send()).await, Ok(Ok(answer)) if answer.status().is_success())
    }
}

/// Each schema is refused or deployed, each input refused or accepted, all without a server error, and the API
/// continues.
async fn keeps_nobody_waiting(target: &Target) -> Outcome {
    let _ = stage::deploy(&target.stage.api, &stage::version("warm-up", json!({}))).await;
    let mut outcome = Outcome::default();
    for (number, hostile) in target.schemas.iter().enumerate() {
        let endpoint = format!("schema-{number}");
        let name = &hostile.name;
        let deployed = target.sent("/v1/endpoints", deploying(&endpoint, &hostile.schema)).await;
        outcome.open_if(!deployed.is_some_and(|status| (200..500).contains(&status)), || {
            format!("{name}: deploy: {deployed:?}")
        });
        if deployed.is_none_or(|status| status >= 300) {
            continue;
        }
        for (which, input) in hostile.inputs.iter().enumerate() {
            let body = format!("{{\"endpoint\": \"{endpoint}\", \"input\": {input}}}");
            let submitted = target.sent("/v1/jobs", body).await;
            let is_answered = submitted.is_some_and(|status| (200..500).contains(&status));
            outcome.open_if(!is_answered, || format!("{name}: input {which}: {submitted:?}"));
        }
    }
    outcome.open_if(!target.serves().await, || "the API does not answer after it".to_owned());
    outcome
}

/// Many requests at once, as in an attempt to stop the API; another client checks its health meanwhile.
async fn keeps_nobody_waiting_at_once(target: &Target) -> Outcome {
    let costly: Vec<usize> =
        (0..target.schemas.len()).filter(|n| target.schemas[*n].name.starts_with("doubled")).collect();
    let bodies = costly.iter().flat_map(|n| {
        let inputs = &target.schemas[*n].inputs;
        inputs.iter().map(move |input| format!("{{\"endpoint\": \"schema-{n}\", \"input\": {input}}}"))
    });
    let mut outcome = Outcome::default();
    let all = futures::future::join_all(bodies.map(|body| target.sent("/v1/jobs", body)));
    let (answers, lives) = tokio::join!(all, async {
        let mut lives = Vec::new();
        for _ in 0..20 {
            lives.push(target.serves().await);
            // Spread over the duration of the attack.
            sleep(Duration::from_millis(50)).await;
        }
        lives
    });
    for answer in answers {
        outcome.open_if(!answer.is_some_and(|status| (200..500).contains(&status)), || format!("{answer:?}"));
    }
    for lives in lives {
        outcome.open_if(!lives, || "the API did not answer another client".to_owned());
    }
    outcome
}

async fn takes_no_memory(target: &Target) -> Outcome {
    let mut outcome = Outcome::default();
    let pids = target.stage.stack.children("stoke api");
    // `stoke dev` runs the API in a separate process or in its own.
    let pids = if pids.is_empty() { vec![target.stage.stack.pid()] } else { pids };
    for pid in pids {
        let peak = process::peak_mib(pid);
        outcome.open_if(peak > MEMORY_MIB, || format!("the API took {peak} MiB"));
    }
    outcome
}
