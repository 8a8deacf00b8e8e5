//! The outbox: claims, reports, lists and replays of webhook deliveries.

use std::collections::HashMap;

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use stokehold_queue::job::HookEvent;
use stokehold_queue::outbox::{Claimed, DeliveryFilter, DeliveryState, Message, Outcome, Report, Try};
use stokehold_queue::{Clock, JobId, ManualClock, Outbox, RedisConfig, RedisQueue};
use stokehold_tests::redis_server::RedisServer;
use tempfile::TempDir;

use crate::conformance::START_MS;
use crate::redis::server;

const VISIBLE_MS: u64 = 60_000;

struct Rig {
    outbox: Outbox,
    clock: ManualClock,
    redis: MultiplexedConnection,
    _server: RedisServer,
    _dir: TempDir,
}

impl Rig {
    async fn start() -> Self {
        let (server, dir) = server(&[]);
        let clock = ManualClock::new(START_MS);
        let config = RedisConfig { url: server.url(), clock: Clock::Manual(clock.clone()), ..RedisConfig::default() };
        let outbox = RedisQueue::connect(config).await.unwrap().outbox();
        let redis = server.connection().await;
        Self { outbox, clock, redis, _server: server, _dir: dir }
    }

    /// Writes the records that the scripts write when a job with a hook ends.
    async fn seed_delivery(&self, tenant: &str, job: JobId) -> String {
        let (id, now_ms) = (format!("msg_{job}_completed"), self.clock.now_ms());
        let subject = job.to_string();
        let fields = [
            ("event", "job.completed"),
            ("subject", &subject),
            ("tenant", tenant),
            ("url", "https://example.com/hook"),
            ("created", &now_ms.to_string()),
            ("state", "pending"),
            ("tries", "0"),
        ];
        let mut pipe = ::redis::pipe();
        pipe.hset_multiple(format!("{{stoke:0}}:w:{id}"), &fields).zadd("{stoke:0}:hooks", &id, now_ms).zadd(
            format!("{{stoke:0}}:wl:{tenant}"),
            &id,
            now_ms,
        );
        let _: () = pipe.query_async(&mut self.redis.clone()).await.unwrap();
        id
    }

    async fn read_record(&self, id: &str) -> HashMap<String, String> {
        self.redis.clone().hgetall(format!("{{stoke:0}}:w:{id}")).await.unwrap()
    }

    async fn claim(&self) -> Vec<Claimed> {
        self.outbox.claim(10, VISIBLE_MS).await.unwrap().deliveries
    }

    async fn report(&self, claimed: &Claimed, outcome: Outcome, status: Option<u16>) -> bool {
        let at_ms = self.clock.now_ms();
        let tried = (!matches!(outcome, Outcome::PutOff { .. })).then(|| Try {
            at_ms,
            status,
            error: status.is_none().then(|| "timed out".to_owned()),
            duration_ms: 12,
        });
        let report = Report { id: claimed.delivery.id.clone(), claim: claimed.claim.clone(), outcome, tried };
        self.outbox.report(&[report]).await.unwrap()[0]
    }
}

#[tokio::test]
async fn a_delivery_is_claimed_once_and_again_when_its_claimer_dies() {
    let rig = Rig::start().await;
    let (job, id) = {
        let job = JobId::new(0);
        (job, rig.seed_delivery("acme", job).await)
    };
    let first = rig.claim().await.pop().unwrap();
    assert_eq!((first.delivery.id.as_str(), first.delivery.event), (id.as_str(), HookEvent::JobCompleted));
    assert_eq!((first.delivery.subject.as_str(), first.delivery.tenant.as_str()), (job.to_string().as_str(), "acme"));
    assert_eq!((first.delivery.created_ms, first.delivery.tried, &first.message), (START_MS, 0, &None));
    let none = rig.outbox.claim(10, VISIBLE_MS).await.unwrap();
    assert!(none.deliveries.is_empty());
    assert_eq!(none.next_due_ms, Some(START_MS + VISIBLE_MS));

    rig.clock.advance_ms(VISIBLE_MS);
    let second = rig.claim().await.pop().unwrap();
    assert_ne!(first.claim, second.claim);
    assert!(!rig.report(&first, Outcome::Delivered, Some(200)).await, "a stale claim");
    assert_eq!(rig.outbox.fix(&id, &first.claim, &message("old")).await.unwrap(), None);
    let untouched = rig.outbox.get("acme", &id).await.unwrap().unwrap();
    assert_eq!((untouched.state, untouched.tries.len()), (DeliveryState::Pending, 0));
    assert!(rig.report(&second, Outcome::Delivered, Some(204)).await);
    assert!(!rig.report(&second, Outcome::Delivered, Some(204)).await, "a repeat of a report");
    let delivered = rig.outbox.get("acme", &id).await.unwrap().unwrap();
    assert_eq!((delivered.state, delivered.next_try_ms, delivered.tries.len()), (DeliveryState::Delivered, None, 1));
    rig.clock.advance_ms(VISIBLE_MS);
    assert!(rig.claim().await.is_empty());
    let life: i64 = rig.redis.clone().pttl(format!("{{stoke:0}}:w:{id}")).await.unwrap();
    assert!((6 * 86_400_000..=7 * 86_400_000).contains(&life), "{life}");
}

#[tokio::test]
async fn a_failed_try_is_logged_and_another_follows_after_the_pause() {
    let rig = Rig::start().await;
    let id = rig.seed_delivery("acme", JobId::new(0)).await;
    for n in 0..3_u64 {
        let claimed = rig.claim().await.pop().unwrap();
        assert_eq!(u64::from(claimed.delivery.tried), n);
        assert!(rig.report(&claimed, Outcome::Retry { delay_ms: 5_000 }, (n > 0).then_some(500)).await);
        assert!(rig.claim().await.is_empty());
        rig.clock.advance_ms(5_000);
    }
    let claimed = rig.claim().await.pop().unwrap();
    assert!(rig.report(&claimed, Outcome::Exhausted, Some(503)).await);
    let shown = rig.outbox.get("acme", &id).await.unwrap().unwrap();
    let statuses: Vec<Option<u16>> = shown.tries.iter().map(|tried| tried.status).collect();
    assert_eq!((shown.state, statuses), (DeliveryState::Exhausted, vec![None, Some(500), Some(500), Some(503)]));
    assert_eq!(shown.tries[0].error.as_deref(), Some("timed out"));
    assert_eq!((shown.tries[1].at_ms, shown.tries[1].duration_ms), (START_MS + 5_000, 12));
}

#[tokio::test]
async fn what_is_put_off_is_no_try() {
    let rig = Rig::start().await;
    let id = rig.seed_delivery("acme", JobId::new(0)).await;
    for _ in 0..2 {
        let claimed = rig.claim().await.pop().unwrap();
        assert!(rig.report(&claimed, Outcome::PutOff { delay_ms: 30_000 }, None).await);
        assert!(rig.claim().await.is_empty());
        rig.clock.advance_ms(30_000);
    }
    let shown = rig.outbox.get("acme", &id).await.unwrap().unwrap();
    assert_eq!((shown.tried, shown.held_ms, shown.tries.len()), (0, 60_000, 0));
}

#[tokio::test]
async fn the_log_is_bounded() {
    let rig = Rig::start().await;
    let id = rig.seed_delivery("acme", JobId::new(0)).await;
    for n in 0..40 {
        let claimed = rig.claim().await.pop().unwrap();
        assert!(rig.report(&claimed, Outcome::Retry { delay_ms: 0 }, Some(400 + n)).await);
    }
    let shown = rig.outbox.get("acme", &id).await.unwrap().unwrap();
    assert_eq!((shown.tried, shown.tries.len()), (40, 25));
    assert_eq!((shown.tries[0].status, shown.tries[24].status), (Some(415), Some(439)));
}

/// A message whose trace context is stored with its body.
fn message(body: &str) -> Message {
    Message { body: body.to_owned(), traceparent: Some(format!("of {body}")) }
}

#[tokio::test]
async fn the_first_body_stays() {
    let rig = Rig::start().await;
    let id = rig.seed_delivery("acme", JobId::new(0)).await;
    let claimed = rig.claim().await.pop().unwrap();
    for body in ["{\"n\":1}", "{\"n\":2}"] {
        let fixed = rig.outbox.fix(&id, &claimed.claim, &message(body)).await.unwrap();
        assert_eq!(fixed, Some(message("{\"n\":1}")));
    }
    rig.report(&claimed, Outcome::Retry { delay_ms: 0 }, None).await;
    assert_eq!(rig.claim().await.pop().unwrap().message, Some(message("{\"n\":1}")));
    assert_eq!(rig.outbox.fix("msg_gone", "x", &message("y")).await.unwrap(), None);
    assert!(rig.read_record("msg_gone").await.is_empty());
}

#[tokio::test]
async fn a_replay_starts_over_with_the_same_id_and_body() {
    let rig = Rig::start().await;
    let id = rig.seed_delivery("acme", JobId::new(0)).await;
    let claimed = rig.claim().await.pop().unwrap();
    let untraced = Message { traceparent: None, ..message("{}") };
    rig.outbox.fix(&id, &claimed.claim, &untraced).await.unwrap();
    assert!(rig.report(&claimed, Outcome::Disabled, Some(410)).await);
    assert!(rig.outbox.replay("globex", &id).await.unwrap().is_none(), "another tenant's");
    assert!(rig.outbox.replay("acme", "msg_unknown").await.unwrap().is_none());

    let replayed = rig.outbox.replay("acme", &id).await.unwrap().unwrap();
    assert_eq!((replayed.state, replayed.tried, replayed.tries.len()), (DeliveryState::Pending, 0, 1));
    assert_eq!(replayed.next_try_ms, Some(START_MS));
    let life: i64 = rig.redis.clone().pttl(format!("{{stoke:0}}:w:{id}")).await.unwrap();
    assert_eq!(life, -1, "it lives until it has ended again");
    let again = rig.claim().await.pop().unwrap();
    assert_eq!((again.delivery.id.as_str(), again.message.as_ref()), (id.as_str(), Some(&untraced)));

    // A delivery in progress is left to the replica that attempts it; a waiting one becomes due.
    rig.outbox.replay("acme", &id).await.unwrap().unwrap();
    assert!(rig.claim().await.is_empty());
    rig.report(&again, Outcome::Retry { delay_ms: 300_000 }, None).await;
    rig.outbox.replay("acme", &id).await.unwrap().unwrap();
    assert_eq!(rig.claim().await.pop().unwrap().delivery.tried, 1);
}

#[tokio::test]
async fn lists_show_a_tenants_own_newest_first_page_by_page() {
    let rig = Rig::start().await;
    let mut ids = Vec::new();
    for n in 0..7 {
        ids.insert(0, rig.seed_delivery("acme", JobId::new(0)).await);
        // Some deliveries fall into the same millisecond.
        rig.clock.advance_ms(n % 2);
    }
    rig.seed_delivery("globex", JobId::new(0)).await;
    let (mut seen, mut cursor) = (Vec::new(), None);
    loop {
        let page = rig.outbox.list("acme", &DeliveryFilter::default(), cursor.as_deref(), 3).await.unwrap();
        seen.extend(page.deliveries.into_iter().map(|delivery| delivery.id));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, ids);

    let claimed = rig.claim().await;
    let last = claimed.iter().find(|claimed| claimed.delivery.id == ids[6]).unwrap();
    rig.report(last, Outcome::Delivered, Some(200)).await;
    let rig = &rig;
    let only = |filter: DeliveryFilter| async move {
        let page = rig.outbox.list("acme", &filter, None, 20).await.unwrap();
        page.deliveries.into_iter().map(|delivery| delivery.id).collect::<Vec<_>>()
    };
    let delivered = DeliveryFilter { state: Some(DeliveryState::Delivered), ..DeliveryFilter::default() };
    let job: JobId = ids[2][4..36].parse().unwrap();
    let of_job = DeliveryFilter { job: Some(job), ..DeliveryFilter::default() };
    let of_batch = DeliveryFilter { batch: Some("batch_x".to_owned()), ..DeliveryFilter::default() };
    assert_eq!(only(delivered).await, [ids[6].clone()]);
    assert_eq!(only(of_job).await, [ids[2].clone()]);
    assert!(only(of_batch).await.is_empty());
}

#[tokio::test]
async fn a_list_forgets_whose_record_is_gone() {
    let rig = Rig::start().await;
    let mut redis = rig.redis.clone();
    for _ in 0..5 {
        let id = rig.seed_delivery("acme", JobId::new(0)).await;
        let _: () = redis.del(format!("{{stoke:0}}:w:{id}")).await.unwrap();
    }
    let kept = rig.seed_delivery("acme", JobId::new(0)).await;
    let page = rig.outbox.list("acme", &DeliveryFilter::default(), None, 2).await.unwrap();
    assert_eq!(page.deliveries.iter().map(|delivery| &delivery.id).collect::<Vec<_>>(), [&kept]);
    let left: Vec<String> = redis.zrange("{stoke:0}:wl:acme", 0, -1).await.unwrap();
    assert_eq!(left, std::slice::from_ref(&kept));
    // The same for due deliveries.
    assert_eq!(rig.claim().await.len(), 1);
    let due: usize = redis.zcard("{stoke:0}:hooks").await.unwrap();
    assert_eq!(due, 1);
}

#[tokio::test]
async fn a_delivery_that_cannot_be_read_keeps_no_other_from_being_sent_or_from_a_list() {
    let rig = Rig::start().await;
    let mut redis = rig.redis.clone();
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(rig.seed_delivery("acme", JobId::new(0)).await);
    }
    let key = |id: &String| format!("{{stoke:0}}:w:{id}");
    // A missing record, an unknown event, and a value that is not a hash.
    let _: () = redis.set(key(&ids[0]), "text").await.unwrap();
    let _: u32 = redis.hset(key(&ids[1]), "event", "job.vanished").await.unwrap();
    let _: u32 = redis.hset(key(&ids[2]), "url", b"\xff".as_slice()).await.unwrap();
    let claimed = rig.claim().await;
    assert_eq!(claimed.iter().map(|claimed| &claimed.delivery.id).collect::<Vec<_>>(), [&ids[3]]);
    assert!(rig.claim().await.is_empty(), "the others come back with their claims' ends");
    let page = rig.outbox.list("acme", &DeliveryFilter::default(), None, 10).await.unwrap();
    assert_eq!(page.deliveries.iter().map(|delivery| &delivery.id).collect::<Vec<_>>(), [&ids[3]]);
    let listed: Vec<String> = redis.zrange("{stoke:0}:wl:acme", 0, -1).await.unwrap();
    assert_eq!(listed.len(), 4, "what cannot be read is not forgotten");
    assert!(rig.outbox.get("acme", &ids[1]).await.is_err());
}
