//! What happens when Redis fills up: no new work, everything else goes on, and new work again when there is room.

use serde_json::{Value, json};
use stokehold_queue::gateway::FinishAnswer;
use stokehold_queue::job::Timing;
use stokehold_queue::queue::LeaseQuery;
use stokehold_queue::reach::Reach;
use stokehold_queue::{Queue, RedisConfig, RedisQueue, gateway};
use tokio::time::{Instant, sleep};

use crate::stack::{PATIENCE, Stack};

impl Stack {
    /// Sets maxmemory to so many times what is in use now.
    async fn leave_room(&self, times: f64) {
        let used = self.health().await["redis"]["memory_used_bytes"].as_f64().unwrap();
        let max = format!("{:.0}", used * times);
        self.redis.ask::<()>(&["CONFIG", "SET", "maxmemory", &max]);
    }

    async fn health(&self) -> Value {
        self.json(self.get("/healthz")).await
    }

    /// Waits until `/healthz` says so of admission: what Redis says is looked at once a second.
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
    ];
    for (path, body) in bodies {
        let answer = stack.post(path, &body).send().await.unwrap();
        assert_eq!((answer.status().as_u16(), path), (503, path));
        assert!(answer.headers().contains_key("retry-after"), "{path}");
        let problem: Value = answer.json().await.unwrap();
        assert_eq!(problem["code"], "unavailable");
        assert!(problem["detail"].as_str().unwrap().contains("nothing was accepted"), "{problem}");
    }

    // Even with no byte left: a lease, its end, a cancel.
    stack.leave_room(0.5).await;
    let query = LeaseQuery::new("w", 1, Reach::usual(0));
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

/// From another life of Redis to a sweep of its own accord.
#[tokio::test]
async fn a_redis_that_was_restarted_is_swept_and_mended() {
    let mut stack = Stack::start().await;
    stack.deploy_echo().await;
    let id = stack.submit("one").await;
    // Broken by hand; the API's first sweep is over and the next is minutes away.
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
    let query = LeaseQuery::new("w", 1, Reach::usual(0));
    // On a connection of this life: the old one breaks at its first use.
    let queue = RedisQueue::connect(RedisConfig { url: stack.redis.url(), ..RedisConfig::default() }).await.unwrap();
    assert_eq!(queue.lease(query).await.unwrap()[0].job_id.to_string(), id);
}
