//! Whatever a handler does, its job ends with an error that describes it.

use serde_json::{Value, json};

use crate::api::{self, Api};

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_handler_fails_its_job_with_class_message_and_last_lines() {
    let (stack, _dir) = api::stack(&[]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("faults.py")]);
    let api = Api::of(&stack);
    // Columns: how, code, class, part of the message, whether the last stderr lines are from this run.
    let table = [
        ("raise", "handler_error", "LookupError", "no such thing", true),
        ("reject", "rejected", "stokehold.Reject", "not this one", true),
        ("exit", "runner_exited", "", "3", true),
        ("segfault", "runner_crashed", "SIGSEGV", "SIGSEGV", true),
        ("flood", "log_flood", "", "log", false),
        ("set", "bad_output", "", "numbers", true),
        ("nan", "bad_output", "", "[1]", true),
        ("hang", "timeout", "", "2", true),
    ];
    for (how, code, class, message, stderr) in table {
        let id = api.submit("faults", json!({"how": how})).await;
        let job = api.ended(&id).await;
        let error = &job["error"];
        assert_eq!(job["state"], "failed", "{how}: {job}");
        assert_eq!(error["code"], code, "{how}: {error}");
        if !class.is_empty() {
            assert_eq!(error["class"], class, "{how}: {error}");
        }
        assert!(error["message"].as_str().unwrap().contains(message), "{how}: {error}");
        if stderr {
            let tail = error["stderr"].as_str().unwrap_or_default();
            assert!(tail.contains(&format!("about to {how}")), "{how}: {error}");
        }
        // The next job runs normally.
        let fine = api.submit("faults", json!({"how": "fine"})).await;
        assert_eq!(api.ended(&fine).await["result"], Value::from("fine"), "after {how}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_is_stopped_and_its_worker_goes_on() {
    let (stack, _dir) = api::stack(&[]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("slow.py")]);
    let api = Api::of(&stack);
    let id = api.submit("slow", json!({"n": 1, "seconds": 3600})).await;
    api.running(&id, 1).await;
    let _ = stack.stoke_ok(&["cancel", &id]);
    let job = api.get(&format!("/v1/jobs/{id}")).await;
    assert_eq!((&job["state"], &job["result"]), (&Value::from("cancelled"), &Value::Null));
    let next = api.submit("slow", json!({"n": 2})).await;
    assert_eq!(api.ended(&next).await["result"]["n"], 2);
}
