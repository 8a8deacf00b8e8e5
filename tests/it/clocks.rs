//! Workers whose clocks are an hour off. Leases, deadlines and waits use the clock of Redis, and monotonic time.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::api::{self, Api, outcomes};

const OFFSETS_S: [&str; 2] = ["3600", "-3600"];

/// The environment of a process whose clock is off.
fn off(shim: &Path, offset_s: &'static str) -> [(&'static str, String); 2] {
    [("LD_PRELOAD", shim.to_string_lossy().into_owned()), ("STOKE_TEST_CLOCK_OFFSET_S", offset_s.to_owned())]
}

fn shim(dir: &Path) -> PathBuf {
    let (source, shim) = (concat!(env!("CARGO_MANIFEST_DIR"), "/it/clock_shim.c"), dir.join("clock.so"));
    let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&shim).arg(source).arg("-ldl").status();
    assert!(built.unwrap().success(), "a C compiler builds the shim");
    shim
}

/// Seconds since 1970 according to this clock.
fn seconds(env: &[(&str, String)]) -> i64 {
    let said = Command::new("date").arg("+%s").envs(env.iter().map(|(name, value)| (*name, value))).output().unwrap();
    String::from_utf8(said.stdout).unwrap().trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_clock_is_an_hour_off_neither_expires_nor_loses_nor_doubles_a_job() {
    let (stack, dir) = api::stack(&["--workers", "0"]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("slow.py")]);
    let shim = shim(dir.path());
    let environments = OFFSETS_S.map(|offset_s| off(&shim, offset_s));
    assert!(seconds(&environments[0]) - seconds(&environments[1]) >= 7_199, "the shim shifts the clock");

    let api = Api::of(&stack);
    for (number, env) in environments.iter().enumerate() {
        let env = env.each_ref().map(|(name, value)| (*name, value.as_str()));
        let _worker = stack.start_worker(&format!("off-{number}"), &env);
        let job = json!({"endpoint": "slow", "input": {"n": 1}, "deadline_s": 600, "queue_timeout_s": 600});
        for _ in 0..5 {
            let accepted = api.request("POST", "/v1/jobs").json(&job).send().await.unwrap();
            let accepted: Value = accepted.error_for_status().unwrap().json().await.unwrap();
            let ended = api.ended(accepted["id"].as_str().unwrap()).await;
            assert_eq!(outcomes(&ended), ["succeeded"], "{ended}");
        }
        // Longer than a lease lasts here: the lease is extended.
        let long = api.submit("slow", json!({"n": 2, "seconds": 4.0})).await;
        assert_eq!(outcomes(&api.ended(&long).await), ["succeeded"]);
    }
}
