//! Workers come with the work and go when it is done.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use stokehold_tests::stack::Stack;

use crate::api::{self, Api};

const ENDPOINTS: [&str; 3] = ["draw", "paint", "write"];

/// The handler `slow`, three times under other names.
fn deploy(stack: &Stack, dir: &std::path::Path) {
    let slow = std::fs::read_to_string(api::handler("slow.py")).unwrap();
    for name in ENDPOINTS {
        let path = dir.join(format!("{name}.py"));
        std::fs::write(&path, slow.replace("\"slow\"", &format!("{name:?}"))).unwrap();
        let _ = stack.stoke_ok(&["deploy", &path.to_string_lossy()]);
    }
}

async fn fleet(api: &Api) -> Vec<Value> {
    api.get("/v1/fleet").await["machines"].as_array().unwrap().clone()
}

/// Waits until there are no machines. No signal crosses processes for this.
async fn until_nobody_is_there(api: &Api, stack: &Stack) {
    for _ in 0..1_200 {
        if fleet(api).await.is_empty() && stack.workers().is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("machines stay: {:?}\n{}", fleet(api).await, stack.log_tail());
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_come_with_the_work_and_go_when_it_is_done() {
    let (stack, dir) = api::stack(&["--workers", "0..3", "--slots", "2"]);
    let api = Api::of(&stack);
    deploy(&stack, dir.path());
    assert!(fleet(&api).await.is_empty(), "there is nothing to do");

    let mut ids = Vec::new();
    for name in ENDPOINTS {
        ids.extend(api.submit_many(name, (0..20).map(|n| json!({"n": n, "seconds": 0.5}))).await);
    }
    for id in &ids {
        let job = api.ended(id).await;
        assert_eq!(job["state"], "succeeded", "{job}\n{}", stack.log_tail());
        assert_eq!(api::attempts(&job).len(), 1, "no machine goes before its jobs have ended: {job}");
    }
    until_nobody_is_there(&api, &stack).await;

    // What was seen and decided is written down: each step has its reason, and there were never more than there may be.
    let rounds = std::fs::read_to_string(dir.path().join("autoscaler.jsonl")).unwrap();
    let rounds: Vec<Value> = rounds.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let steps: Vec<&Value> = rounds.iter().flat_map(|round| round["plan"]["steps"].as_array().unwrap()).collect();
    let done: BTreeSet<&str> = steps.iter().map(|step| step["action"]["do"].as_str().unwrap()).collect();
    assert!(done.contains("rent") && (done.contains("drain") || done.contains("release")), "{done:?}");
    assert!(steps.iter().all(|step| !step["reason"]["why"].as_str().unwrap().is_empty()));
    let at_once = rounds.iter().map(|round| round["seen"]["machines"].as_array().unwrap().len()).max().unwrap();
    assert!((2..=3).contains(&at_once), "{at_once} at once");
    let log = stack.log();
    for word in ["rent: ", "gone: "] {
        assert!(log.contains(word), "the log says {word:?}:\n{log}");
    }
    // The same is decided again of what was seen.
    let path = dir.path().join("autoscaler.jsonl");
    let said = stack.stoke_ok(&["autoscaler", "plan", "--dry-run", "--from", &path.to_string_lossy(), "--json"]);
    let planned: Value = serde_json::from_str(&said).unwrap();
    assert!(planned["plan"]["steps"].is_array() && planned["seen"]["endpoints"].as_array().unwrap().len() == 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_dies_is_replaced_and_its_job_runs_again() {
    let (stack, _dir) = api::stack(&["--slots", "2"]);
    let api = Api::of(&stack);
    let _ = stack.stoke_ok(&["deploy", &api::handler("slow.py")]);
    let id = api.submit("slow", json!({"n": 1, "seconds": 3.0})).await;
    api.running(&id, 1).await;
    let [worker] = stack.workers()[..] else { panic!("{:?}", stack.workers()) };
    let worker = nix::unistd::Pid::from_raw(i32::try_from(worker).unwrap());
    nix::sys::signal::kill(worker, nix::sys::signal::Signal::SIGKILL).unwrap();
    let job = api.ended(&id).await;
    assert_eq!((&job["state"], api::outcomes(&job)), (&json!("succeeded"), vec!["lost", "succeeded"]), "{job}");
    let there = fleet(&api).await;
    let [machine] = &there[..] else { panic!("{there:?}") };
    assert_eq!((&machine["id"], &machine["state"]), (&json!("worker-1"), &json!("ready")));
}
