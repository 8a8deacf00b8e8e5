//! Real kills, at the worst moment.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use stokehold_tests::process::signal;

use crate::api::{self, Api, attempts, outcomes};

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_of_everything_in_the_middle_of_200_jobs_loses_none_and_doubles_none() {
    let (stack, dir) = api::stack(&[]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("slow.py")]);
    let api = Api::of(&stack);
    let ids = api.submit_many("slow", (0..200).map(|n| json!({"n": n, "seconds": 0.02}))).await;
    let early = api.ended(&ids[20]).await;
    stack.kill_everything();

    let stack = api::start(dir.path(), &[]);
    let api = Api::of(&stack);
    for (n, id) in ids.iter().enumerate() {
        let job = api.ended(id).await;
        assert_eq!(job["state"], "succeeded", "{job}");
        assert_eq!(job["result"]["n"], n);
        assert_eq!(outcomes(&job).iter().filter(|outcome| **outcome == "succeeded").count(), 1, "{job}");
    }
    assert_eq!(
        api.get(&format!("/v1/jobs/{}", ids[20])).await,
        with_url(early, &stack.url),
        "an ended job is as it was"
    );
}

/// The stack came back on another port, which `result_url` names.
fn with_url(mut job: Value, url: &str) -> Value {
    job["result_url"] = format!("{url}/v1/jobs/{}/result", job["id"].as_str().unwrap()).into();
    job
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_survives_the_death_of_everything() {
    let (stack, dir) = api::stack(&[]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("slow.py")]);
    let id = Api::of(&stack).submit("slow", json!({"n": 7})).await;
    assert_eq!(Api::of(&stack).ended(&id).await["state"], "succeeded");
    stack.kill_everything();
    let stack = api::start(dir.path(), &[]);
    let job: Value = serde_json::from_str(&stack.stoke_ok(&["get", &id, "--json"])).unwrap();
    assert_eq!((&job["state"], &job["result"]["n"]), (&Value::from("succeeded"), &Value::from(7)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_outlives_its_runner() {
    let (stack, _dir) = api::stack(&[]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("slow.py")]);
    let api = Api::of(&stack);
    // Warm, so that the lease of the next job means that its handler runs.
    let warm = api.submit("slow", json!({"n": 0})).await;
    api.ended(&warm).await;
    let id = api.submit("slow", json!({"n": 1, "seconds": 1.0})).await;
    api.running(&id, 1).await;
    for pid in stack.runners() {
        signal(pid, Signal::SIGKILL);
    }
    let job = api.ended(&id).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    assert_eq!(outcomes(&job), ["failed", "succeeded"], "{job}");
    assert_eq!(attempts(&job)[0]["error"]["code"], "runner_crashed", "{job}");
    assert_eq!(attempts(&job)[0]["error"]["class"], "SIGKILL", "{job}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_outlives_its_worker() {
    let (stack, _dir) = api::stack(&["--workers", "0"]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("slow.py")]);
    let api = Api::of(&stack);
    let doomed = stack.start_worker("doomed", &[]);
    let id = api.submit("slow", json!({"n": 1, "seconds": 1.0})).await;
    api.running(&id, 1).await;
    signal(doomed.pid(), Signal::SIGKILL);
    let _saviour = stack.start_worker("saviour", &[]);
    let job = api.ended(&id).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    assert_eq!(outcomes(&job), ["lost", "succeeded"], "{job}");
    assert_ne!(attempts(&job)[0]["worker_id"], attempts(&job)[1]["worker_id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_wakes_after_its_lease_is_refused_and_never_seen() {
    let (stack, _dir) = api::stack(&["--workers", "0"]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("slow.py")]);
    let api = Api::of(&stack);
    let sleeper = stack.start_worker("sleeper", &[]);
    // Warm, so that the next job is inside the handler soon after it was leased.
    let warm = api.submit("slow", json!({"n": 0})).await;
    let sleeper_pid = api.ended(&warm).await["result"]["pid"].clone();
    let id = api.submit("slow", json!({"n": 1, "seconds": 1.0})).await;
    api.running(&id, 1).await;
    // Only the worker stands still; its runner goes on and finishes the job that is no longer its worker's.
    signal(sleeper.pid(), Signal::SIGSTOP);
    let _other = stack.start_worker("other", &[]);
    let job = api.ended(&id).await;
    assert_eq!(outcomes(&job), ["lost", "succeeded"], "{job}");
    assert_ne!(job["result"]["pid"], sleeper_pid, "{job}");
    assert!(!sleeper.log().contains("stale_fence"));
    signal(sleeper.pid(), Signal::SIGCONT);
    // Either its report is refused or its heartbeat is, whichever comes first. Its log is a file: nothing signals a new line.
    for _ in 0..2_000 {
        if sleeper.log().contains("stale_fence") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(sleeper.log().contains("stale_fence"), "{}", sleeper.log());
    assert_eq!(api.get(&format!("/v1/jobs/{id}")).await, job, "what the sleeper says changes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_worker_gives_its_jobs_back_unharmed() {
    let (stack, _dir) = api::stack(&["--workers", "0"]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("slow.py")]);
    let api = Api::of(&stack);
    let leaving = stack.start_worker("leaving", &[("STOKE_DRAIN_GRACE_MS", "200")]);
    let id = api.submit("slow", json!({"n": 1, "seconds": 5.0})).await;
    api.running(&id, 1).await;
    signal(leaving.pid(), Signal::SIGTERM);
    assert!(leaving.wait().success(), "a drained worker exits with 0");
    let _other = stack.start_worker("other", &[]);
    let job = api.ended(&id).await;
    assert_eq!(outcomes(&job), ["released", "succeeded"], "{job}");
}
