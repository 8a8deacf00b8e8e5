//! Background duties of a replica: one that fails does not stop the others, and `/readyz` and the metrics show it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::stack::Stack;

#[tokio::test]
async fn a_duty_that_fails_keeps_no_other_from_its_work_and_is_named() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    // Every round of `promote` fails because of this value.
    stack.redis.ask::<String>(&["SET", "{stoke:0}:scheduled", "text"]);
    let job = json!({"endpoint": "echo", "input": {"text": "late"}, "queue_timeout_s": 1});
    let job = stack.json(stack.post("/v1/jobs", &job)).await;
    let ended = stack.json(stack.get(&format!("/v1/jobs/{}?wait_s=20", job["id"].as_str().unwrap()))).await;
    assert_eq!(ended["state"], "expired", "{ended}");
    let failing = loop {
        let ready: Value = stack.json(stack.get("/readyz")).await;
        let failing = ready["failing"].as_array().unwrap().clone();
        if failing.contains(&json!("promote")) {
            assert_eq!(ready["ready"], true, "Redis causes it, and other replicas have the same: {ready}");
            break failing;
        }
        sleep(Duration::from_millis(200)).await;
    };
    assert!(!failing.contains(&json!("expire")) && !failing.contains(&json!("reap")), "{failing:?}");

    stack.redis.ask::<i64>(&["DEL", "{stoke:0}:scheduled"]);
    while stack.json(stack.get("/readyz")).await["failing"].as_array().unwrap().contains(&json!("promote")) {
        sleep(Duration::from_millis(200)).await;
    }
}

#[cfg(debug_assertions)]
mod injected {
    use serde_json::{Value, json};
    use stokehold_api::config::{Exporter, Headers, Protocol};
    use stokehold_supervise::{DutyState, FAILING_AFTER};
    use tokio::sync::watch;
    use tokio::time::timeout;

    use crate::stack::{PATIENCE, Stack};

    /// An exporter to an address without a listener; nothing is sent.
    fn exporter() -> Exporter {
        Exporter {
            url: "http://127.0.0.1:9/v1/traces".parse().unwrap(),
            headers: Headers::default(),
            protocol: Protocol::Protobuf,
            timeout: PATIENCE,
            service_name: "under-test".to_owned(),
        }
    }

    /// Waits for a state of a duty.
    async fn wait_for(
        states: &mut watch::Receiver<Vec<DutyState>>,
        name: &str,
        what: &str,
        is_reached: impl Fn(&DutyState) -> bool,
    ) {
        let reached = states.wait_for(|states| states.iter().any(|state| state.name == name && is_reached(state)));
        drop(timeout(PATIENCE, reached).await.unwrap_or_else(|_| panic!("the duty {name} never {what}")).unwrap());
    }

    /// The status of `/readyz`, and its body.
    async fn readiness(stack: &Stack) -> (u16, Value) {
        let answer = stack.get("/readyz").send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    /// The value of a series of `/metrics`.
    async fn value(stack: &Stack, series: &str) -> u64 {
        let text = stack.get("/metrics").send().await.unwrap().text().await.unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        line.unwrap_or_else(|| panic!("no {series} in {text}")).trim().parse().unwrap()
    }

    #[tokio::test]
    async fn each_duty_that_panics_is_restarted_counted_and_shown_by_readyz() {
        let stack = Stack::start_with(|config| config.traces.exporter = Some(exporter())).await;
        let duties = stack.supervisor.states();
        assert!(duties.iter().any(|duty| duty.name == "traces"), "also those that depend on the configuration");
        for duty in duties {
            let name = duty.name;
            let panics = format!("stokehold_duty_failures_total{{duty=\"{name}\",kind=\"panic\"}}");
            let restarts = format!("stokehold_duty_restarts_total{{duty=\"{name}\"}}");
            let before = [value(&stack, &panics).await, value(&stack, &restarts).await];
            let mut states = stack.supervisor.subscribe();

            stack.supervisor.inject_panics(name, u32::MAX);
            wait_for(&mut states, name, "panics repeatedly", |it| it.panicked_in_a_row > FAILING_AFTER).await;
            let status = if duty.blocks_readiness { 503 } else { 200 };
            let expected = json!({"ready": !duty.blocks_readiness, "redis": true, "s3": true, "failing": [name]});
            assert_eq!(readiness(&stack).await, (status, expected));
            let after = [value(&stack, &panics).await, value(&stack, &restarts).await];
            // The series belong to the process, which other tests share.
            assert!(after[0] > before[0] + u64::from(FAILING_AFTER), "{name}: {before:?} {after:?}");
            assert!(after[1] >= before[1] + u64::from(FAILING_AFTER), "{name}: {before:?} {after:?}");

            stack.supervisor.inject_panics(name, 0);
            wait_for(&mut states, name, "works again", |it| it.failed_in_a_row == 0).await;
            let expected = json!({"ready": true, "redis": true, "s3": true, "failing": []});
            assert_eq!(readiness(&stack).await, (200, expected));
        }
    }
}
