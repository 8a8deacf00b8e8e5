//! A worker that takes more than it can run: leases beyond its slots, endpoints that it has no job of, fences of other
//! workers. Also a worker that was evicted.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::api::Api;
use crate::attacks;
use crate::report::{Outcome, Promise, Report};
use crate::stage::{self, CANARY, Stage, Who};
use crate::worker::Liar;

const SURFACE: &str = "takes";

const JOBS: usize = 400;

/// Maximum number of jobs that a worker is leased ahead of its slots.
const AHEAD: usize = 110;

struct Target {
    stage: Stage,
    victim: Api,
}

pub(crate) async fn run(report: &mut Report) {
    let stage = Stage::start(Who::Root, &["--workers", "0"], &[]);
    let victim = stage.tenant("victim", &["admin"]).await;
    let spec = json!({"demands": {"min_trust": "community"}, "env": {"CANARY": CANARY}});
    for name in ["queued", "private"] {
        let (status, answer) = stage::deploy(&victim, &stage::version(name, spec.clone())).await;
        assert_eq!(status, 201, "{answer}");
    }
    let target = Target { stage, victim };
    attacks!(
        report,
        SURFACE,
        "-",
        Promise::Holds,
        &target,
        [reads_endpoints_without_a_job, shows_the_fence_of_another, takes_all_jobs, goes_on_when_evicted]
    );
}

/// Reads the package and the variables of an endpoint that it has no job of.
async fn reads_endpoints_without_a_job(target: &Target) -> Outcome {
    let liar = Liar::join(&target.stage, "community", json!({})).await;
    let mut outcome = Outcome::default();
    for endpoint in ["private", "queued"] {
        for version in [0, 1, 2, u32::MAX] {
            let (status, said) = liar.get(&format!("endpoints/victim/{endpoint}/{version}")).await;
            outcome.open_if(status < 300 || said.contains(CANARY), || {
                format!("{endpoint} {version}: {status} {said:.200}")
            });
        }
    }
    // With a job of another endpoint of the same tenant.
    target.victim.submit("queued", json!({})).await;
    let leases = liar.lease(json!({"want": 1})).await;
    assert_eq!(leases.len(), 1, "it may run these");
    let (status, _) = liar.get("endpoints/victim/queued/1").await;
    assert_eq!(status, 200, "the endpoint of its own job");
    let (status, said) = liar.get("endpoints/victim/private/1").await;
    outcome.open_if(status < 300 || said.contains(CANARY), || format!("with a job of another: {status} {said:.200}"));
    let held = json!({"job_id": leases[0]["job_id"], "fence": leases[0]["fence"]});
    let (_, answer) = liar.post("release", &json!({"leases": [held]})).await;
    assert_eq!(answer["released"][0], "ok", "{answer}");
    let (status, said) = liar.get("endpoints/victim/queued/1").await;
    outcome.open_if(status < 300 || said.contains(CANARY), || format!("after it was given back: {status} {said:.200}"));
    outcome
}

/// Uses a valid fence that belongs to another worker.
async fn shows_the_fence_of_another(target: &Target) -> Outcome {
    let honest = Liar::join(&target.stage, "owned", json!({})).await;
    let liar = Liar::join(&target.stage, "community", json!({})).await;
    let mut outcome = Outcome::default();
    for _ in 0..stage::size(3, 20) {
        let job = target.victim.submit("queued", json!({})).await;
        let leases = honest.lease(json!({"want": 1})).await;
        let lease = &leases[0];
        let id = lease["job_id"].as_str().unwrap().to_owned();
        let of = |more: Value| {
            let mut all = json!({"job_id": id, "fence": lease["fence"]});
            all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            all
        };
        let file = json!({"name": "output.json", "size_bytes": 2, "sha256": "0".repeat(64), "content_type": "application/json"});
        let model = json!({"tenant": "victim", "endpoint": "queued", "version": 1});
        for (verb, body) in [
            ("extend", json!({"leases": [of(json!({}))], "status": {"loaded": [], "running": 0, "gpus": []}})),
            ("events", json!({"events": [of(json!({"event": "log", "stream": "stdout", "text": "forged"}))]})),
            ("uploads", of(json!({"files": [file]}))),
            ("secrets", json!({"model": model, "lease": of(json!({}))})),
            ("finish", json!({"finish": [of(json!({"outcome": "succeeded", "result": "forged"}))]})),
            (
                "finish",
                json!({"finish": [of(json!({"outcome": "failed", "error": {"code": "rejected", "message": "forged"}}))]}),
            ),
            ("release", json!({"leases": [of(json!({}))]})),
            (
                "lease",
                json!({"want": 0, "reach_gib": 0, "wait_ms": 0, "finish": [of(json!({"outcome": "succeeded", "result": "forged"}))]}),
            ),
        ] {
            let (status, answer) = liar.post(verb, &body).await;
            let said = answer.to_string();
            let is_open = said.contains("\"ok\"")
                || said.contains("\"held\"")
                || said.contains("\"url\"")
                || (verb == "secrets" && status < 300);
            outcome.open_if(is_open, || format!("{verb}: {said}"));
        }
        let now = target.victim.get(&format!("/v1/jobs/{id}")).await;
        outcome.open_if(now["state"] != "running" || now.to_string().contains("forged"), || now.to_string());
        let (_, ended) =
            honest.post("finish", &json!({"finish": [of(json!({"outcome": "succeeded", "result": job}))]})).await;
        assert_eq!(ended["finished"][0], "ok", "who holds it may end it: {ended}");
    }
    outcome
}

/// Leases again and again, and extends everything that it gets.
async fn takes_all_jobs(target: &Target) -> Outcome {
    target.victim.submit_many("queued", (0..JOBS).map(|n| json!(n))).await;
    let mut outcome = Outcome::default();
    for slots in [1_u32, 2, 1_000] {
        let liar =
            Liar::join(&target.stage, "community", json!({"slots": slots, "name": format!("slots-{slots}")})).await;
        let mut held: Vec<Value> = Vec::new();
        for _ in 0..12 {
            let warm =
                json!([{"tenant": "victim", "endpoint": "queued", "version": 1, "takes": u32::MAX, "card_gib": 0}]);
            let leases = liar.lease(json!({"want": 100, "warm": warm})).await;
            held.extend(leases.iter().map(|lease| json!({"job_id": lease["job_id"], "fence": lease["fence"]})));
            let _ =
                liar.post("extend", &json!({"leases": held, "status": {"loaded": [], "running": 0, "gpus": []}})).await;
        }
        // The slots of an operator's own machine count as reported, up to this number.
        let most = slots.min(512) as usize + AHEAD;
        let distinct: BTreeSet<String> =
            held.iter().map(|lease| lease["job_id"].as_str().unwrap().to_owned()).collect();
        outcome.open_if(distinct.len() > most, || format!("a worker of {slots} slots holds {} jobs", distinct.len()));
        for some in held.chunks(100) {
            let _ = liar.post("release", &json!({"leases": some})).await;
        }
    }
    outcome
}

/// Makes every call of an evicted worker, with its token and with its join token.
async fn goes_on_when_evicted(target: &Target) -> Outcome {
    let join = target.stage.token(&json!({"name": "lost", "roles": ["worker"], "trust": "community"})).await;
    let liar = Liar::try_join(&target.stage, &join, json!({"name": "lost-host"})).await.unwrap();
    target.victim.submit("queued", json!({})).await;
    let leases = liar.lease(json!({"want": 1})).await;
    assert_eq!(leases.len(), 1);
    let evicted = target
        .stage
        .api
        .request("POST", &format!("/v1/workers/{}/evict", liar.id))
        .json(&json!({}))
        .send()
        .await
        .unwrap();
    let mut outcome = Outcome::default();
    outcome.open_if(!evicted.status().is_success(), || format!("it cannot be evicted: {}", evicted.status()));
    // Replicas know within five seconds.
    sleep(Duration::from_secs(6)).await;
    let held = json!({"job_id": leases[0]["job_id"], "fence": leases[0]["fence"]});
    for (verb, body) in [
        ("lease", json!({"want": 10, "reach_gib": 0, "wait_ms": 0})),
        ("extend", json!({"leases": [held], "status": {"loaded": [], "running": 0, "gpus": []}})),
        ("release", json!({"leases": [held]})),
        ("events", json!({"events": []})),
        ("secrets", json!({"model": {"tenant": "victim", "endpoint": "queued", "version": 1}, "lease": held})),
    ] {
        let (status, answer) = liar.post(verb, &body).await;
        outcome.open_if(status < 400, || format!("{verb}: {status} {answer}"));
    }
    let again = Liar::try_join(&target.stage, &join, json!({"name": "lost-host"})).await;
    outcome.open_if(again.is_ok(), || "it joined again".to_owned());
    let now = target.victim.get(&format!("/v1/jobs/{}", leases[0]["job_id"].as_str().unwrap())).await;
    outcome.open_if(now["state"] == "running", || format!("its job is still its own: {now}"));
    outcome
}
