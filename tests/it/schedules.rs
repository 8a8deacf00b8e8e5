//! Schedules on several replicas.

use serde_json::{Value, json};

use crate::api::{self, Api};

/// Duration of the schedule in seconds: two minutes with `STOKE_FULL_SIZE`.
fn seconds() -> u64 {
    if std::env::var_os("STOKE_FULL_SIZE").is_some() { 120 } else { 12 }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_job_per_tick_on_three_replicas_also_when_one_is_killed() {
    let (stack, _dir) = api::stack(&[]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("slow.py")]);
    let (second, third) = (stack.start_replica(&[]), stack.start_replica(&[]));
    let api = Api::of(&stack);
    let body = json!({"cron": "* * * * * *", "job": {"endpoint": "slow", "input": {"n": 1}}});
    let answer = api.request("POST", "/v1/schedules").json(&body).send().await.unwrap();
    let schedule: Value = answer.error_for_status().unwrap().json().await.unwrap();
    let first = schedule["next_at"].as_str().unwrap().to_owned();
    let path = format!("/v1/schedules/{}", schedule["id"].as_str().unwrap());

    let ticks = seconds();
    let mut third = Some(third);
    loop {
        let now = api.get(&path).await;
        if now["ticks"].as_u64().unwrap() >= ticks / 2 {
            // SIGKILL at an arbitrary moment.
            drop(third.take());
        }
        if now["ticks"].as_u64().unwrap() >= ticks {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    api.request("POST", &format!("{path}/pause")).send().await.unwrap().error_for_status().unwrap();
    let paused = api.get(&path).await;
    let expected = paused["ticks"].as_u64().unwrap();
    let mut jobs: Vec<Value> = Vec::new();
    let mut cursor = String::new();
    loop {
        let query = format!("/v1/jobs?limit=100&schedule={}{cursor}", schedule["id"].as_str().unwrap());
        let page = api.get(&query).await;
        jobs.extend(page["jobs"].as_array().unwrap().iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    println!("{expected} ticks from {first} to {}, {} jobs", paused["last_at"], jobs.len());
    assert_eq!(jobs.len() as u64, expected, "one job per tick");
    let span = seconds_between(&first, paused["last_at"].as_str().unwrap());
    assert_eq!(expected, span + 1, "one tick per second, none left out");
    drop(second);
}

/// Seconds between two times that are in the same hour or in two consecutive ones.
fn seconds_between(first: &str, last: &str) -> u64 {
    let of = |text: &str| -> u64 {
        let part = |from: usize| text[from..from + 2].parse::<u64>().unwrap();
        part(11) * 3600 + part(14) * 60 + part(17)
    };
    (of(last) + 86_400 - of(first)) % 86_400
}
