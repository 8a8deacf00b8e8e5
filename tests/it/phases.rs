//! A job that waits for a machine shows what happens: renting, booting, environment, loading.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use stokehold_tests::stack::Stack;

use crate::api::{self, Api};

const PHASES: [&str; 4] = ["renting", "booting", "environment", "loading"];

/// A uv that takes three seconds for a new environment: it takes longer elsewhere, and here everything is on the disk.
fn slow_uv(dir: &Path) -> String {
    let uv = std::env::var("STOKE_UV").expect("the tests have a uv");
    let path = dir.join("slow-uv");
    let script = format!("#!/bin/sh\ncase \" $* \" in *\" venv \"*) sleep 3 ;; esac\nexec '{uv}' \"$@\"\n");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.to_string_lossy().into_owned()
}

/// What a job waits for until it ends, each reason once with everything that was shown with it.
async fn phases(api: &Api, stack: &Stack, id: &str) -> Vec<(String, Vec<Value>)> {
    let mut seen: Vec<(String, Vec<Value>)> = Vec::new();
    for _ in 0..4_000 {
        let job = api.get(&format!("/v1/jobs/{id}")).await;
        let waiting = &job["waiting"];
        if let Some(reason) = waiting["reason"].as_str() {
            if seen.last().is_none_or(|(last, _)| last != reason) {
                seen.push((reason.to_owned(), Vec::new()));
            }
            seen.last_mut().unwrap().1.push(waiting.clone());
        }
        if !job["ended_at"].is_null() {
            assert_eq!(job["state"], "succeeded", "{job}\n{}", stack.log_tail());
            return seen;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the job does not end: {seen:?}\n{}", stack.log_tail());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_waits_for_a_machine_shows_each_step_with_an_estimate() {
    let dir = tempfile::tempdir().unwrap();
    let uv = slow_uv(dir.path());
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let cache = dir.path().join("cache");
    let env = [("STOKE_UV", uv.as_str()), ("STOKE_CACHE_DIR", cache.to_str().unwrap())];
    let stack = api::start_with(&data, &["--fake-vast", "--workers", "0..1"], &env);
    let api = Api::of(&stack);
    let _ = stack.stoke_ok(&["deploy", &api::handler("loading.py")]);
    // A new machine is missing from the provider's list for some seconds, as on the real market.
    let faults = json!({"rules": [{"fault": {"kind": "hidden_at_first", "for_s": 3.0}}]});
    let answer = reqwest::Client::new().put(format!("{}/_fake/faults", stack.fake_vast())).json(&faults).send().await;
    answer.unwrap().error_for_status().unwrap();

    // The first run shows how long its environment and its model take.
    let first = api.submit("loading", json!({"n": 1})).await;
    let _ = phases(&api, &stack, &first).await;
    let is_gone = async {
        while api.get("/v1/fleet").await["machines"] != json!([]) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(180), is_gone).await.expect("the machine is given back");

    // The machines of this market share one disk.
    std::fs::remove_dir_all(cache.join("envs")).unwrap();
    let second = api.submit("loading", json!({"n": 2})).await;
    let seen = phases(&api, &stack, &second).await;
    let order: Vec<usize> =
        seen.iter().filter_map(|(reason, _)| PHASES.iter().position(|phase| phase == reason)).collect();
    let reasons: Vec<&str> = seen.iter().map(|(reason, _)| reason.as_str()).collect();
    assert_eq!(order, [0, 1, 2, 3], "{reasons:?}\n{}", stack.log_tail());
    for (reason, shown) in seen.iter().filter(|(reason, _)| PHASES.contains(&reason.as_str())) {
        assert!(shown.iter().any(|waiting| waiting["estimate_s"].is_u64()), "{reason} has no estimate: {shown:?}");
        assert!(shown.iter().all(|waiting| waiting["phase_s"].is_u64()), "{reason}: {shown:?}");
        let message = shown[0]["message"].as_str().unwrap();
        assert!(!message.contains("about"), "the estimate is a member of its own: {message}");
    }
    let renting = seen[order_of(&reasons, "renting")].1[0]["message"].as_str().unwrap();
    assert!(renting.starts_with("renting a"), "{renting}");
}

fn order_of(reasons: &[&str], reason: &str) -> usize {
    reasons.iter().position(|seen| *seen == reason).unwrap()
}
