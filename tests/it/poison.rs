//! A job that kills every process that runs it.

use nix::sys::signal::Signal;
use serde_json::json;
use stokehold_tests::process::signal;

use crate::api::{self, Api, attempts, outcomes};

#[tokio::test(flavor = "multi_thread")]
async fn a_poison_job_ends_after_three_crashes_on_two_workers_and_costs_the_others_no_attempt() {
    let (stack, _dir) = api::stack(&["--workers", "0"]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("poison.py")]);
    let api = Api::of(&stack);
    let first = stack.start_worker("first", &[]);
    let poison = api.submit("poison", json!({"deadly": true})).await;
    let others = api.submit_many("poison", (0..50).map(|_| json!({}))).await;
    // Two crashes on one worker; the next attempt is on another.
    api.running(&poison, 2).await;
    let _second = stack.start_worker("second", &[]);
    signal(first.pid(), Signal::SIGTERM);
    assert!(first.wait().success());

    let job = api.ended(&poison).await;
    assert_eq!((&job["state"], &job["error"]["code"]), (&json!("failed"), &json!("poison")), "{job}");
    let crashed = attempts(&job).iter().filter(|attempt| attempt["error"]["code"] == "runner_crashed").count();
    assert!((3..=4).contains(&crashed), "{job}");
    for id in &others {
        let other = api.ended(id).await;
        assert_eq!((&other["state"], outcomes(&other).last()), (&json!("succeeded"), Some(&"succeeded")), "{other}");
        let harmed = outcomes(&other).iter().filter(|outcome| **outcome == "failed").count();
        assert_eq!(harmed, 0, "the crash was another job's: {other}");
    }
}
