//! A primary that dies under Sentinels, with the whole stack above it.

use std::time::Instant;

use serde_json::json;
use stokehold_tests::redis_sentinel::RedisService;

use crate::api::{self, Api, outcomes};

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_of_the_primary_in_the_middle_of_200_jobs_loses_none_and_doubles_none() {
    let redis_dir = tempfile::tempdir().unwrap();
    let mut service = tokio::task::block_in_place(|| RedisService::start(redis_dir.path()));
    let (stack, _dir) = api::stack(&["--redis", &service.url()]);
    let _ = stack.stoke_ok(&["deploy", &api::handler("slow.py")]);
    let api = Api::of(&stack);
    let mut ids = api.submit_many("slow", (0..100).map(|n| json!({"n": n, "seconds": 0.05}))).await;
    api.ended(&ids[10]).await;

    let (number, port) = service.kill_primary();
    let promotion = tokio::task::spawn_blocking(move || {
        service.wait_for_promotion(port);
        (service, Instant::now())
    });
    let (mut refused, mut served) = (0, None);
    for n in 100..200 {
        let body = json!({"endpoint": "slow", "input": {"n": n, "seconds": 0.05}});
        loop {
            let call = api.request("POST", "/v1/jobs").header("Idempotency-Key", format!("job-{n}")).json(&body);
            let answer = call.send().await.unwrap();
            // 200: accepted by an earlier call whose outcome was unknown.
            match answer.status().as_u16() {
                200 | 202 => {
                    let job: serde_json::Value = answer.json().await.unwrap();
                    ids.push(job["id"].as_str().unwrap().to_owned());
                    break;
                }
                status => assert_eq!(status, 503, "{}", answer.text().await.unwrap()),
            }
            refused += 1;
        }
        served.get_or_insert_with(Instant::now);
    }
    let (mut service, promoted) = promotion.await.unwrap();
    let after = served.unwrap().saturating_duration_since(promoted);
    eprintln!("{refused} submits refused; the first one taken {} ms after the promotion was seen", after.as_millis());
    tokio::task::block_in_place(|| service.restart(number));

    for (n, id) in ids.iter().enumerate() {
        let job = api.ended(id).await;
        assert_eq!(job["state"], "succeeded", "{job}");
        assert_eq!(job["result"]["n"], n);
        assert_eq!(outcomes(&job).iter().filter(|outcome| **outcome == "succeeded").count(), 1, "{job}");
    }
    let distinct: std::collections::BTreeSet<&String> = ids.iter().collect();
    assert_eq!(distinct.len(), 200, "no submit became two jobs, and none stands for two");
}
