//! Limits of one tenant in Redis and in permanent storage: other tenants are still served, and versions can be deleted.

use serde_json::{Value, json};
use stokehold_tests::redis_server::RedisServer;

use crate::api::Api;
use crate::attacks;
use crate::report::{Outcome, Promise, Report};
use crate::stage::{self, Stage, Who};

const SURFACE: &str = "shares";

struct Target {
    _stage: Stage,
    victim: Api,
    attacker: Api,
    _redis: RedisServer,
    _dir: tempfile::TempDir,
}

/// Runs each attack on its own stack, because each fills it.
macro_rules! attacks_alone {
    ($report:expr, [$($attack:ident),+ $(,)?]) => {
        $( attacks!($report, SURFACE, "-", Promise::Holds, &Target::start().await, [$attack]); )+
    };
}

pub(crate) async fn run(report: &mut Report) {
    attacks_alone!(
        report,
        [
            fills_redis_with_jobs,
            fills_redis_with_schedules,
            fills_redis_with_keys_and_notes,
            opens_all_batches,
            fills_redis_with_versions
        ]
    );
}

impl Target {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let redis = RedisServer::start(dir.path(), &["--maxmemory", "100mb", "--appendfsync", "always"]);
        let stage = Stage::start(Who::Root, &["--workers", "0", "--redis", &redis.url()], &[]);
        let (victim, attacker) = (stage.tenant("victim", &["admin"]).await, stage.tenant("attacker", &["admin"]).await);
        for api in [&victim, &attacker] {
            let (status, answer) = stage::deploy(api, &stage::version("plain", json!({}))).await;
            assert_eq!(status, 201, "{answer}");
        }
        Self { _stage: stage, victim, attacker, _redis: redis, _dir: dir }
    }

    /// Why the victim's work is refused; `None` if it is not.
    async fn victim_is_refused(&self) -> Option<String> {
        let answer = self
            .victim
            .request("POST", "/v1/jobs")
            .json(&json!({"endpoint": "plain", "input": "x".repeat(1000)}))
            .send()
            .await
            .unwrap();
        if answer.status().as_u16() == 202 {
            return None;
        }
        Some(format!("{} {}", answer.status(), answer.text().await.unwrap_or_default()))
    }

    /// Repeats a request until it is refused or `most` is reached, and checks the victim meanwhile.
    async fn floods(&self, outcome: &mut Outcome, path: &str, most: usize, make: impl Fn(usize) -> Value) {
        let mut refused = 0;
        for n in 0..most {
            let answer = self.attacker.request("POST", path).json(&make(n)).send().await.unwrap();
            let status = answer.status().as_u16();
            // A 5xx affects all tenants; a tenant at its limit gets a 4xx.
            outcome.open_if(status >= 500, || format!("{path} {n}: {status}"));
            refused += usize::from((400..500).contains(&status));
            if n % 50 == 0 {
                let refused = self.victim_is_refused().await;
                outcome.tried(refused.map(|why| format!("after {n} of {path} the victim is refused: {why}")));
            }
            if refused > 20 {
                break;
            }
        }
        let refused = self.victim_is_refused().await;
        outcome.tried(refused.map(|why| format!("after {path} the victim is refused: {why}")));
    }

    async fn cancels(&self) {
        for _ in 0..5 {
            let _ = self
                .attacker
                .request("POST", "/v1/jobs/cancel")
                .json(&json!({"filter": {}, "limit": 1000}))
                .send()
                .await;
        }
    }
}

async fn fills_redis_with_jobs(target: &Target) -> Outcome {
    let mut outcome = Outcome::default();
    let input = "x".repeat(60_000);
    target.floods(&mut outcome, "/v1/jobs", 2_500, |_| json!({"endpoint": "plain", "input": input})).await;
    let bulk: Vec<Value> = (0..100).map(|_| json!({"endpoint": "plain", "input": input})).collect();
    target.floods(&mut outcome, "/v1/jobs/bulk", 40, |_| json!({"jobs": bulk})).await;
    target.cancels().await;
    target
        .floods(
            &mut outcome,
            "/v1/jobs",
            500,
            |_| json!({"endpoint": "plain", "input": input, "run_after": "2100-01-01T00:00:00Z"}),
        )
        .await;
    target.cancels().await;
    outcome
}

async fn fills_redis_with_keys_and_notes(target: &Target) -> Outcome {
    let mut outcome = Outcome::default();
    let most = stage::size(500, 5_000);
    let note = "n".repeat(500);
    let keyed =
        |n: usize| json!({"endpoint": "plain", "input": n, "idempotency_key": format!("{n}-{}", "k".repeat(200))});
    target.floods(&mut outcome, "/v1/jobs", most, keyed).await;
    let noted = |n: usize| json!({"endpoint": "plain", "input": n, "metadata": {"note": note}, "webhook": "https://example.com/x"});
    target.floods(&mut outcome, "/v1/jobs", most, noted).await;
    target.cancels().await;
    outcome
}

async fn fills_redis_with_schedules(target: &Target) -> Outcome {
    let mut outcome = Outcome::default();
    let schedule = |n: usize| {
        let input = format!("{n}{}", "x".repeat(50_000));
        json!({"cron": "0 0 1 1 *", "job": {"endpoint": "plain", "input": input}})
    };
    target.floods(&mut outcome, "/v1/schedules", stage::size(2_000, 10_000), schedule).await;
    outcome
}

/// The queue of batches is shared by all tenants as well.
async fn opens_all_batches(target: &Target) -> Outcome {
    let mut outcome = Outcome::default();
    let opens = |api: &Api| {
        let request = api.request("POST", "/v1/batches?endpoint=plain").header("content-type", "application/jsonl");
        request.body("{\"input\": 1}\n").send()
    };
    let mut opened = 0;
    for _ in 0..stage::size(100, 1_200) {
        let status = opens(&target.attacker).await.unwrap().status();
        outcome.open_if(status.is_server_error(), || format!("{status} after {opened} batches"));
        opened += usize::from(status.is_success());
    }
    outcome.open_if(opened == 0 || opened > 1_000, || format!("{opened} batches are open"));
    let answer = opens(&target.victim).await.unwrap();
    let status = answer.status();
    outcome.tried((!status.is_success()).then(|| format!("the victim's batch is answered {status}")));
    outcome
}

/// The number of versions is limited, and deleting versions frees their memory.
async fn fills_redis_with_versions(target: &Target) -> Outcome {
    let mut outcome = Outcome::default();
    let small = |n: usize| stage::version("small", json!({"input_schema": {"description": n.to_string()}}));
    target.floods(&mut outcome, "/v1/endpoints", 300, small).await;
    let versions = target.attacker.get("/v1/endpoints/small/versions").await;
    let kept = versions["versions"].as_array().map_or(0, Vec::len);
    outcome.tried((!(1..=200).contains(&kept)).then(|| format!("{kept} versions of an endpoint are kept")));

    let many: String = "x".repeat(200_000);
    let large = |n: usize| {
        let schema = json!({"input_schema": {"description": format!("{n}{many}")}});
        stage::version(&format!("many-{}", n / 150), schema)
    };
    target.floods(&mut outcome, "/v1/endpoints", stage::size(600, 3_000), large).await;
    for endpoint in target.attacker.get("/v1/endpoints").await["endpoints"].as_array().unwrap() {
        let path = format!("/v1/endpoints/{}?force=true", endpoint["name"].as_str().unwrap());
        let deleted = target.attacker.request("DELETE", &path).send().await.unwrap().status();
        outcome.tried((!deleted.is_success()).then(|| format!("an endpoint cannot be deleted: {deleted}")));
    }
    let again = target.attacker.request("POST", "/v1/endpoints").json(&large(0)).send().await.unwrap();
    let (status, body) = (again.status(), again.text().await.unwrap());
    // The package was deleted with the last version that named it: a deploy uploads it again.
    let is_accepted = status == 201 || body.contains("package_missing");
    outcome.tried((!is_accepted).then(|| format!("what was deleted is not given back: {status} {body}")));
    outcome
}
