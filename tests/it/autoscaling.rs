//! Workers start when there is work and stop when it is done.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use stokehold_autoscaler::history;
use stokehold_planner::Planner;
use stokehold_planner::simulate::replay;
use stokehold_tests::stack::Stack;

use crate::api::{self, Api};

const ENDPOINTS: [&str; 3] = ["draw", "paint", "write"];

/// Deploys the handler `slow` under three other names.
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

    // The observations and decisions are recorded: each action has its reason, and the maximum was never exceeded.
    let path = dir.path().join("autoscaler.jsonl");
    let history = history::read(&path).unwrap();
    let done = history.rounds.iter().flat_map(|round| &round.plan.steps);
    let done: BTreeSet<String> = done.map(|step| step.to_string()).collect();
    assert!(done.iter().any(|step| step.starts_with("rent ")), "{done:?}");
    assert!(done.iter().any(|step| step.starts_with("release ") && step.contains("idle for")), "{done:?}");
    let at_once = history.rounds.iter().map(|round| round.seen.machines.len()).max().unwrap();
    assert!((2..=3).contains(&at_once), "{at_once} at once");
    // The decision code of the simulations makes the same decisions from the record.
    let rounds = history.rounds.into_iter().map(|round| (round.seen, round.plan));
    let decided = replay(rounds, &mut Planner::new(history.policy));
    assert!(decided.is_ok_and(|rounds| rounds > 10), "it decides otherwise");
    let log = stack.log();
    for word in ["rent: ", "gone: "] {
        assert!(log.contains(word), "the log says {word:?}:\n{log}");
    }
    // The same decisions follow from the recorded observations.
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

/// A process that is killed when this value is dropped.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.0.id()).unwrap());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let _ = self.0.wait();
    }
}

/// The host's own process, in case the test ends before it is stopped.
struct Desk(std::path::PathBuf);

impl Drop for Desk {
    fn drop(&mut self) {
        let pid = std::fs::read_to_string(&self.0).ok().and_then(|pid| pid.trim().parse().ok());
        if let Some(pid) = pid {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
        }
    }
}

/// A host is a process in this test: its start command starts it in the background, its stop command ends it.
fn host(stack: &Stack, dir: &std::path::Path) -> String {
    let stoke = stokehold_tests::stack::stoke_binary();
    let secrets: Value = serde_json::from_str(&std::fs::read_to_string(dir.join("secrets.json")).unwrap()).unwrap();
    let (pid, scratch) = (dir.join("desk.pid"), dir.join("desk"));
    let start = format!(
        "STOKE_GATEWAY_URL={} STOKE_JOIN_TOKEN={} STOKE_DATA_DIR={} STOKE_SANDBOX=L0 {} worker --name desk --slots 2 \
         </dev/null >/dev/null 2>&1 & echo $! >{}",
        stack.url,
        secrets["join"]["token"].as_str().unwrap(),
        scratch.display(),
        stoke.display(),
        pid.display()
    );
    let stop = format!("kill $(cat {0}) 2>/dev/null; rm -f {0}", pid.display());
    // The paths that the worker needs; commands see nothing else of the autoscaler's environment.
    format!(
        "[static]\ninherits = ['STOKE_UV', 'STOKE_CACHE_DIR', 'STOKE_RUNNER_WHEEL']\n[[static.hosts]]\nname = 'desk'\nslots = 2\nstart = ['sh', '-c', '''{start}''']\nstop = ['sh', '-c', '''{stop}''']\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_is_started_for_a_job_and_stopped_when_it_idles() {
    let (stack, dir) = api::stack(&["--workers", "0"]);
    let api = Api::of(&stack);
    let _ = stack.stoke_ok(&["deploy", &api::handler("slow.py")]);
    let _desk = Desk(dir.path().join("desk.pid"));
    let (config, record) = (dir.path().join("autoscaler.toml"), dir.path().join("rounds.jsonl"));
    std::fs::write(&config, format!("tick_ms = 300\npolicy.standard_target_s = 30\n{}", host(&stack, dir.path())))
        .unwrap();
    let at: Value = serde_json::from_str(&std::fs::read_to_string(dir.path().join("stack.json")).unwrap()).unwrap();
    let run = |args: &[&str]| {
        let mut command = stack.command(args);
        command.arg("--config").arg(&config);
        command.env("STOKE_REDIS_URL", at["redis_url"].as_str().unwrap());
        command.env("STOKE_REDIS_PREFIX", at["redis_prefix"].as_str().unwrap());
        command
    };
    let autoscaler = Running(run(&["autoscaler", "run", "--record", &record.to_string_lossy()]).spawn().unwrap());

    let id = api.submit("slow", json!({"n": 1, "seconds": 0.5})).await;
    let planned = run(&["autoscaler", "plan", "--dry-run", "--json"]).output().unwrap();
    let planned: Value = serde_json::from_slice(&planned.stdout).unwrap();
    assert_eq!(planned["seen"]["endpoints"][0]["name"], "default/slow", "{planned}");
    let job = api.ended(&id).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let there = fleet(&api).await;
    assert_eq!((&there[0]["id"], &there[0]["provider"]), (&json!("desk"), &json!("static")), "{there:?}");

    // The next autoscaler finds the machine in the ledger, and returns it.
    drop(autoscaler);
    assert_eq!(fleet(&api).await.len(), 1, "what was rented stays");
    let _autoscaler = Running(run(&["autoscaler", "run"]).spawn().unwrap());
    until_nobody_is_there(&api, &stack).await;
    assert!(!dir.path().join("desk.pid").exists());
}
