//! Admission when Redis fills up: new work is refused, everything else continues, and new work is accepted once there
//! is room.

use serde_json::{Value, json};
use stokehold_api::token::Scope;
use stokehold_queue::capability::Capability;
use stokehold_queue::gateway::FinishAnswer;
use stokehold_queue::job::Timing;
use stokehold_queue::queue::LeaseQuery;
use stokehold_queue::{Queue, RedisConfig, RedisQueue, gateway};
use tokio::time::{Instant, sleep};

use crate::stack::{PACKAGE, PATIENCE, Stack, echo};

impl Stack {
    /// Sets maxmemory to `times` times the current use.
    async fn leave_room(&self, times: f64) {
        let used = self.health().await["redis"]["memory_used_bytes"].as_f64().unwrap();
        let max = format!("{:.0}", used * times);
        self.redis.ask::<()>(&["CONFIG", "SET", "maxmemory", &max]);
    }

    async fn health(&self) -> Value {
        self.json(self.get("/healthz")).await
    }

    /// Waits until `/healthz` reports this state of admission; the API reads Redis' memory once a second.
    async fn until_open(&self, open: bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let health = self.health().await;
            if health["admission"]["open"] == open {
                return health;
            }
            assert!(Instant::now() < deadline, "{health}");
            sleep(std::time::Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test]
async fn new_work_stops_at_eighty_percent_and_what_was_accepted_goes_on() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let (first, second) = (stack.submit("one").await, stack.submit("two").await);
    stack.leave_room(1.2).await;
    let health = stack.until_open(false).await;
    assert!(health["admission"]["reason"].as_str().unwrap().contains("MiB"), "{health}");

    let bodies = [
        ("/v1/jobs", json!({"endpoint": "echo", "input": {"text": "x"}})),
        ("/v1/jobs/bulk", json!({"jobs": [{"endpoint": "echo", "input": {"text": "x"}}]})),
        ("/v1/schedules", json!({"cron": "* * * * *", "job": {"endpoint": "echo", "input": {"text": "x"}}})),
        ("/v1/endpoints", echo()),
    ];
    for (path, body) in bodies {
        let answer = stack.post(path, &body).send().await.unwrap();
        assert_eq!((answer.status().as_u16(), path), (503, path));
        assert!(answer.headers().contains_key("retry-after"), "{path}");
        let problem: Value = answer.json().await.unwrap();
        assert_eq!(problem["code"], "unavailable");
        assert!(problem["detail"].as_str().unwrap().contains("nothing was accepted"), "{problem}");
    }

    // A lease, its end and a cancel work even with no byte left.
    stack.leave_room(0.5).await;
    let query = LeaseQuery::new("w", 1, Capability::usual(0));
    let lease = stack.queue.lease(query).await.unwrap().remove(0);
    assert_eq!(lease.job_id.to_string(), first);
    let result = serde_json::value::to_raw_value("done").unwrap();
    let outcome = gateway::FinishOutcome::Succeeded { result };
    let report = gateway::FinishReport::new(lease.named(), Timing::default(), outcome);
    assert_eq!(stack.queue.finish(&[report]).await.unwrap(), [FinishAnswer::Ok]);
    stack.json(stack.post(&format!("/v1/jobs/{second}/cancel"), &json!({}))).await;
    assert_eq!(stack.job(&first).await["state"], "succeeded");
    assert_eq!(stack.job(&second).await["state"], "cancelled");

    stack.leave_room(4.0).await;
    stack.until_open(true).await;
    stack.submit("three").await;
}

/// Time from a restart of Redis to a sweep that starts by itself.
#[tokio::test]
async fn a_redis_that_was_restarted_is_swept_and_mended() {
    let mut stack = Stack::start().await;
    stack.deploy_echo().await;
    let id = stack.submit("one").await;
    // Damaged by the test; the API's first sweep is over and the next one is minutes away.
    let lane = stack.queue.depth().await.unwrap().remove(0).lane;
    assert_eq!(stack.redis.ask::<u32>(&["DEL", &format!("{{stoke:0}}:q:{lane}")]), 1);
    stack.restart_redis();

    let deadline = Instant::now() + PATIENCE;
    loop {
        let metrics = stack.get("/metrics").send().await.unwrap().text().await.unwrap();
        if metrics.lines().any(|line| line.starts_with("stokehold_records_repaired_total{kind=\"entry\"}")) {
            break;
        }
        assert!(Instant::now() < deadline, "{metrics}");
        sleep(std::time::Duration::from_millis(50)).await;
    }
    let query = LeaseQuery::new("w", 1, Capability::usual(0));
    // On a connection of the new server: the old connection breaks at its first use.
    let queue = RedisQueue::connect(RedisConfig { url: stack.redis.url(), ..RedisConfig::default() }).await.unwrap();
    assert_eq!(queue.lease(query).await.unwrap()[0].job_id.to_string(), id);
}

/// The tenant that holds the most memory is refused first, for submits and deploys, while other tenants are served.
#[tokio::test]
async fn a_tenant_that_fills_redis_leaves_the_others_room() {
    let stack = Stack::start().await;
    stack.deploy_echo().await;
    let text = "x".repeat(60_000);
    let job = json!({"endpoint": "echo", "input": {"text": text}});
    for _ in 0..5 {
        let jobs: Vec<&Value> = std::iter::repeat_n(&job, 100).collect();
        stack.json(stack.post("/v1/jobs/bulk", &json!({"jobs": jobs}))).await;
    }
    // The current use becomes two thirds of maxmemory. The test asks Redis directly, because `/healthz` may be a second
    // old.
    let info: String = stack.redis.ask(&["INFO", "memory"]);
    let used: f64 = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().trim().parse().unwrap();
    stack.redis.ask::<()>(&["CONFIG", "SET", "maxmemory", &format!("{:.0}", used * 1.5)]);
    let deadline = Instant::now() + PATIENCE;
    let problem: Value = loop {
        let answer = stack.post("/v1/jobs", &job).send().await.unwrap();
        if answer.status().as_u16() == 429 {
            assert!(answer.headers().contains_key("retry-after"));
            break answer.json().await.unwrap();
        }
        assert!(answer.status().is_success() && Instant::now() < deadline, "{}", answer.status());
        sleep(std::time::Duration::from_millis(50)).await;
    };
    assert_eq!(problem["code"], "quota_exceeded", "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("max_memory_bytes"), "{problem}");
    let mut other = echo();
    other["name"] = "other".into();
    assert_eq!(stack.post("/v1/endpoints", &other).send().await.unwrap().status().as_u16(), 429);
    let usage = stack.json(stack.get("/v1/limits")).await["usage"].clone();
    assert!(usage["memory_bytes"].as_u64().unwrap() > 500 * 60_000, "{usage}");

    let modest = stack.token_of("zoo", &Scope::ALL, None).await;
    let ask = |path: &str, body: &Value| {
        stack.client.post(format!("{}{path}", stack.url)).bearer_auth(&modest).body(body.to_string())
    };
    let size = echo()["package_size_bytes"].clone();
    let package =
        stack.json(ask("/v1/packages", &json!({"sha256": echo()["package_sha256"], "size_bytes": size}))).await;
    stack.upload(&package["upload_url"], &package["headers"], PACKAGE).await;
    stack.json(ask("/v1/endpoints", &echo())).await;
    stack.json(ask("/v1/jobs", &job)).await;
    assert_eq!(stack.health().await["admission"]["open"], true);

    // The operator can allow more.
    let limits = json!({"max_memory_bytes": 1_u64 << 40});
    let set = stack.client.put(format!("{}/v1/limits/acme", stack.url)).bearer_auth(&stack.token);
    assert_eq!(stack.json(set.body(limits.to_string())).await["max_memory_bytes"], 1_u64 << 40);
    stack.json(stack.post("/v1/jobs", &job)).await;
    stack.deploy(other).await;
}
