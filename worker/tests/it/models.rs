//! Several models of one endpoint: each has its own process, as far as slots and memory allow.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use stokehold_protocol::endpoint::EndpointSpec;
use stokehold_protocol::gateway::{LeaseRef, StartPhase};
use tempfile::TempDir;

use crate::stage::{Setup, Stage, pack, result, spec};

/// A worker with two slots, with `meet` deployed; its jobs leave their files in the folder.
async fn stage(gpus: &str, vram_gib: f64) -> (Stage, TempDir) {
    let variables = vec![("STOKE_SLOTS", "2".to_owned()), ("STOKE_FAKE_GPUS", gpus.to_owned())];
    let stage = Stage::with(Setup { variables, ..Setup::default() }).await;
    let place = tempfile::tempdir().unwrap();
    let source = include_str!("handlers/meet.py").replace("@PLACE@", &place.path().to_string_lossy());
    stage.gateway.deploy("meet", pack(&source), EndpointSpec { vram_gib, ..spec("meet") });
    (stage, place)
}

async fn results(stage: &Stage, of: usize) -> Vec<Value> {
    let jobs = ["one", "two"].map(|who| stage.submit_to("meet", json!({"who": who, "of": of})));
    let mut results = Vec::new();
    for job in &jobs {
        results.push(result(&stage.gateway.end(job).await));
    }
    results.sort_by_key(Value::to_string);
    results
}

#[tokio::test(flavor = "multi_thread")]
async fn long_jobs_of_one_endpoint_run_side_by_side() {
    let (stage, _place) = stage("", 0.0).await;
    assert_eq!(results(&stage, 2).await, [json!(" 2"), json!(" 2")]);
    let models = |seen: &crate::gateway::Seen| (seen.status.models.len() == 2).then_some(seen.status.loaded.clone());
    assert_eq!(stage.gateway.until("both", models).await, ["meet@1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_has_a_gpu_where_one_gpu_is_too_small_for_both() {
    let (stage, _place) = stage("24576,24576", 16.0).await;
    assert_eq!(results(&stage, 2).await, [json!("0 2"), json!("1 2")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_there_is_no_room_for_another_they_take_turns() {
    let (stage, place) = stage("24576", 16.0).await;
    let first = stage.submit_to("meet", json!({"who": "one", "of": 2}));
    stage.gateway.until("the first to begin", |_| place.path().join("one").exists().then_some(())).await;
    let second = stage.submit_to("meet", json!({"who": "two", "of": 1}));
    stage.gateway.until("the second to be leased", |seen| (seen.extended.len() == 2).then_some(())).await;
    // The test itself creates the file that the first job waits for.
    std::fs::write(place.path().join("somebody"), "").unwrap();
    let both = [&first, &second].map(|job| stage.gateway.end(job));
    let both = futures::future::join_all(both).await;
    let on: Vec<Value> = both.iter().map(result).collect();
    assert_eq!(on, [json!("0 2"), json!("0 2")], "the same process, and what somebody left");
}

/// A worker with four slots, with `object` of `gather.py` deployed, and 60 jobs of it.
async fn backlog(object: &str) -> (Stage, TempDir, Vec<LeaseRef>) {
    let variables = vec![("STOKE_SLOTS", "4".to_owned())];
    let stage = Stage::with(Setup { variables, ..Setup::default() }).await;
    let place = tempfile::tempdir().unwrap();
    let source = include_str!("handlers/gather.py").replace("@PLACE@", &place.path().to_string_lossy());
    stage.gateway.deploy("backlog", pack(&source), spec(object));
    let jobs = stage.gateway.submit_many("backlog", &json!({}), 60);
    (stage, place, jobs)
}

async fn processes(stage: &Stage, jobs: &[LeaseRef]) -> BTreeMap<u64, usize> {
    let mut runs = BTreeMap::new();
    for job in jobs {
        *runs.entry(result(&stage.gateway.end(job).await).as_u64().unwrap()).or_default() += 1;
    }
    runs
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_loads_a_model_for_every_slot_at_once_and_keeps_them_busy() {
    // None of them is ready before all four are loading.
    let (stage, _place, jobs) = backlog("Gather").await;
    let runs = processes(&stage, &jobs).await;
    assert_eq!(runs.len(), 4, "{runs:?}");
    assert!(runs.values().all(|runs| *runs >= 5), "each of the four has its part of 60 jobs: {runs:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_job_waits_for_a_model_that_is_loading_while_another_is_free() {
    let (stage, place, jobs) = backlog("Gated").await;
    let others = || std::fs::read_dir(place.path()).unwrap().count() == 4;
    let runs = processes(&stage, &jobs).await;
    assert_eq!(runs.len(), 1, "the other three are not ready: {runs:?}");
    while !others() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    std::fs::write(place.path().join("gate"), "").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_model_loads_is_reported_until_it_runs() {
    let stage = Stage::with(Setup::default()).await;
    let place = tempfile::tempdir().unwrap();
    let source = include_str!("handlers/held.py").replace("@PLACE@", &place.path().to_string_lossy());
    stage.gateway.deploy("held", pack(&source), spec("held"));
    let job = stage.submit_to("held", json!({}));
    let phase = |seen: &crate::gateway::Seen| {
        let starting = seen.status.starting.iter().find(|starting| starting.job_id == job.job_id)?;
        (starting.phase == StartPhase::Loading).then_some(starting.phase_ms)
    };
    stage.gateway.until("the model to load", phase).await;
    // The test itself creates the file that the handler's module waits for.
    std::fs::write(place.path().join("go"), "").unwrap();
    assert_eq!(result(&stage.gateway.end(&job).await), json!("loaded"));
    stage.gateway.until("nothing to start", |seen| seen.status.starting.is_empty().then_some(())).await;
}
