//! Batches: each line is fed once, and each end is counted and recorded once, however many callers repeat the step.

use std::collections::BTreeMap;

use redis::AsyncCommands;
use stokehold_queue::batches::{
    Batch, BatchSpec, BatchState, Created, FeedPosition, LineError, LineFormat, NewBatch, OnInvalid, Source,
    StopReason, Stopped, Verdict,
};
use stokehold_queue::budgets::AtBudget;
use stokehold_queue::capability::Capability;
use stokehold_queue::costs::{Forecast, Unknown};
use stokehold_queue::gateway::FinishReport;
use stokehold_queue::job::{
    BatchLine, ErrorCode, Hook, HookEvent, Idempotency, JobState, NewJob, Priority, Timing, TokenUsage,
};
use stokehold_queue::queue::{BatchGuard, LeaseQuery};
use stokehold_queue::{Batches, Clock, Error, JobId, ManualClock, Queue, RedisQueue};

use crate::conformance::{START_MS, fail, job, succeed};
use crate::redis::{queue, raw, server};

fn spec() -> BatchSpec {
    BatchSpec {
        version: None,
        tenant: "t".to_owned(),
        endpoint: "echo".to_owned(),
        created_ms: 1_795_240_200_123,
        priority: Priority::Batch,
        on_invalid: OnInvalid::Skip,
        format: LineFormat::Auto,
        source: Source::Uploaded,
        metadata: BTreeMap::new(),
        timeout_s: None,
        max_attempts: None,
        deadline_ms: None,
        retry_of: None,
        hook: None,
        budget: None,
        openai: None,
    }
}

fn new(n: u8, key: Option<&str>) -> NewBatch {
    let idempotency = key.map(|key| Idempotency::new(key, "h"));
    NewBatch {
        id: format!("batch_{n:032x}"),
        spec: spec(),
        input: Some("batches/t/x/input.jsonl".to_owned()),
        idempotency,
        idempotency_ttl_ms: None,
    }
}

/// Batch number `n` of a tenant.
pub(crate) fn batch_of(tenant: &str, n: usize) -> NewBatch {
    NewBatch {
        id: format!("batch_{n:032x}"),
        spec: BatchSpec { tenant: tenant.to_owned(), ..spec() },
        input: None,
        idempotency: None,
        idempotency_ttl_ms: None,
    }
}

/// Line number `line` of a batch of tenant `t`.
pub(crate) fn line(batch: &str, line: u64) -> NewJob {
    let mut job = job("echo");
    job.id = JobId::of_line(batch, spec().created_ms, line, 0);
    job.spec.tenant = "t".to_owned();
    job.spec.batch = Some(BatchLine { id: batch.to_owned(), line, custom_id: Some(format!("c{line}")) });
    job
}

/// A running batch of `total` lines, of which `invalid` are invalid.
async fn running(queue: &RedisQueue, n: u8, total: u64, invalid: u64) -> (Batches, String) {
    let (batches, new) = (queue.batches(), new(n, None));
    assert_eq!(batches.create(&new).await.unwrap(), Created::New);
    let versions = BTreeMap::from([("echo".to_owned(), 1)]);
    let verdict =
        Verdict { runs: true, input: "in", skip: (invalid > 0).then_some("bits"), part: None, versions: &versions };
    assert_eq!(batches.validated(&new.id, (total, invalid), &[], Some(&verdict)).await.unwrap(), Some(false));
    (batches, new.id)
}

async fn feed(queue: &RedisQueue, batch: &str, from: u64, to: u64) -> Result<(), Error> {
    let jobs: Vec<NewJob> = (from + 1..=to).map(|n| line(batch, n)).collect();
    queue.feed(&BatchGuard { batch: batch.to_owned(), from_line: from, to_line: to }, &jobs).await.map(drop)
}

async fn finish(queue: &RedisQueue, want: u32) {
    let query = LeaseQuery::new("w", want, Capability::usual(0));
    let leases = queue.lease(query).await.unwrap();
    assert_eq!(leases.len(), want as usize);
    queue.finish(&leases.iter().map(succeed).collect::<Vec<_>>()).await.unwrap();
}

fn adds_up(batch: &Batch) {
    assert_eq!(batch.accepted(), batch.ended() + batch.open(), "{batch:?}");
    assert_eq!(batch.accepted(), batch.total - batch.invalid, "{batch:?}");
}

#[tokio::test]
async fn a_batch_runs_from_its_lines_to_its_end() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    let (batches, id) = running(&queue, 1, 12, 2).await;
    assert_eq!(batches.open().await.unwrap(), std::slice::from_ref(&id));
    feed(&queue, &id, 0, 6).await.unwrap();
    assert!(matches!(feed(&queue, &id, 0, 6).await, Err(Error::StaleGuard)), "what is fed is not fed again");
    let place = FeedPosition { jobs: 6, lines: 8, bytes: 100 };
    batches.note_place(&id, place).await.unwrap();
    batches.note_samples(&id, &[(1, 0), (2, 3)]).await.unwrap();

    let query = LeaseQuery::new("w", 4, Capability::usual(0));
    let leases = queue.lease(query).await.unwrap();
    assert_eq!(batches.get(&id).await.unwrap().unwrap().running, 4);
    queue.finish(&leases.iter().map(succeed).collect::<Vec<_>>()).await.unwrap();
    assert_eq!(batches.get(&id).await.unwrap().unwrap().running, 0);
    let batch = batches.get(&id).await.unwrap().unwrap();
    adds_up(&batch);
    assert_eq!((batch.state, batch.succeeded, batch.open(), batch.fed), (BatchState::Running, 4, 6, 6));
    assert_eq!((batch.place, batch.samples.as_slice()), (place, [(1, 0), (2, 3)].as_slice()));

    let (collected, ids) = batches.uncollected(&id, 3).await.unwrap();
    assert_eq!((collected, ids.len()), (0, 3));
    let lines = batches.ended_lines(&ids).await.unwrap();
    assert!(lines.iter().all(|line| line.state == JobState::Succeeded && line.result.is_some()));
    assert_eq!(lines[0].line.custom_id, Some(format!("c{}", lines[0].line.line)));
    assert!(batches.collect(&id, 0, 3, &["a".to_owned()]).await.unwrap());
    assert!(!batches.collect(&id, 0, 3, &["b".to_owned()]).await.unwrap(), "two that collect at once collect once");
    let (parts, tail) = batches.parts(&id, 0).await.unwrap();
    assert_eq!((parts, tail.len()), (vec!["a".to_owned()], 1));

    feed(&queue, &id, 6, 10).await.unwrap();
    finish(&queue, 6).await;
    assert!(!batches.finalize(&id).await.unwrap(), "something is not written down");
    assert!(batches.collect(&id, 3, 7, &["c".to_owned()]).await.unwrap());
    assert!(batches.finalize(&id).await.unwrap());
    assert!(!batches.finalize(&id).await.unwrap());
    assert!(batches.end(&id, 1_000).await.unwrap());
    assert!(!batches.end(&id, 1_000).await.unwrap());
    let batch = batches.get(&id).await.unwrap().unwrap();
    adds_up(&batch);
    assert_eq!((batch.state, batch.succeeded, batch.open()), (BatchState::Completed, 10, 0));
    assert!(batches.open().await.unwrap().is_empty());
    assert_eq!(batches.untidy(u64::MAX / 4096, 10).await.unwrap(), std::slice::from_ref(&id));
    batches.tidied(&id, 1).await.unwrap();
    assert!(batches.get(&id).await.unwrap().unwrap().tidied);
    batches.forget("t", &id).await.unwrap();
    assert!(batches.get(&id).await.unwrap().is_none());
    assert!(batches.list("t", None, None, 10).await.unwrap().batches.is_empty());
}

#[tokio::test]
async fn what_is_written_down_leaves_the_queue_soon_unless_it_is_a_dead_letter() {
    let (server, _dir) = server(&[]);
    let clock = ManualClock::new(START_MS);
    let queue = queue(&server, Clock::Manual(clock.clone())).await;
    let (batches, id) = running(&queue, 1, 4, 0).await;
    feed(&queue, &id, 0, 4).await.unwrap();
    let query = LeaseQuery::new("w", 4, Capability::usual(0));
    let leases = queue.lease(query).await.unwrap();
    let reports: Vec<_> = leases[1..].iter().map(succeed).chain([fail(&leases[0], ErrorCode::BadOutput)]).collect();
    queue.finish(&reports).await.unwrap();
    let (_, ids) = batches.uncollected(&id, 10).await.unwrap();
    let written: Vec<JobId> = ids.iter().copied().filter(|id| *id != leases[0].job_id).take(2).collect();
    let count = 1 + ids.iter().position(|id| *id == written[1]).unwrap();
    assert!(batches.collect(&id, 0, count, &["a".to_owned()]).await.unwrap());

    let history = queue.history();
    assert_eq!(history.count_due().await.unwrap(), 0, "whoever watches them end may look first");
    clock.advance_ms(2_000);
    let due: Vec<JobId> = history.due(10).await.unwrap().jobs.iter().map(|job| job.id).collect();
    assert_eq!((due, history.count_due().await.unwrap()), (written, 2));
}

#[tokio::test]
async fn a_key_makes_one_batch_and_lists_are_newest_first() {
    let (server, _dir) = server(&[]);
    let batches = queue(&server, Clock::Own).await.batches();
    assert_eq!(batches.create(&new(1, Some("k"))).await.unwrap(), Created::New);
    assert_eq!(batches.create(&new(2, Some("k"))).await.unwrap(), Created::Repeat(new(1, None).id));
    let mut other = new(2, Some("k"));
    other.idempotency.as_mut().unwrap().request_hash = "another".to_owned();
    assert!(matches!(batches.create(&other).await, Err(Error::IdempotencyConflict { .. })));
    for n in 2..=5 {
        batches.create(&new(n, None)).await.unwrap();
    }
    let (mut seen, mut cursor) = (Vec::new(), None);
    loop {
        let page = batches.list("t", Some(BatchState::Validating), cursor.as_deref(), 2).await.unwrap();
        seen.extend(page.batches.into_iter().map(|batch| batch.id));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, (1..=5).rev().map(|n| new(n, None).id).collect::<Vec<_>>());
    assert!(batches.list("t", Some(BatchState::Running), None, 10).await.unwrap().batches.is_empty());
    assert!(batches.list("another", None, None, 10).await.unwrap().batches.is_empty());
}

#[tokio::test]
async fn validation_is_ended_once_and_its_numbers_never_go_back() {
    let (server, _dir) = server(&[]);
    let batches = queue(&server, Clock::Own).await.batches();
    let new = new(1, None);
    batches.create(&new).await.unwrap();
    let errors = [LineError { line: 3, message: "no".to_owned() }];
    batches.validated(&new.id, (10, 1), &errors, None).await.unwrap();
    batches.validated(&new.id, (4, 0), &[], None).await.unwrap();
    let batch = batches.get(&new.id).await.unwrap().unwrap();
    assert_eq!((batch.total, batch.invalid, batch.errors.as_slice()), (10, 1, errors.as_slice()));

    let versions = BTreeMap::new();
    let failed = Verdict { runs: false, input: "in", skip: Some("bits"), part: Some("p"), versions: &versions };
    assert!(batches.validated(&new.id, (20, 1), &errors, Some(&failed)).await.unwrap().is_some());
    let runs = Verdict { runs: true, ..failed };
    assert_eq!(batches.validated(&new.id, (20, 0), &[], Some(&runs)).await.unwrap(), None, "the first verdict stands");
    let batch = batches.get(&new.id).await.unwrap().unwrap();
    adds_up(&batch);
    assert_eq!((batch.state, batch.cancelled, batch.open()), (BatchState::Finalizing, 19, 0));
    assert!(batches.end(&new.id, 1).await.unwrap());
    assert_eq!(batches.get(&new.id).await.unwrap().unwrap().state, BatchState::Failed);
}

#[tokio::test]
async fn what_is_stopped_is_fed_no_more_and_counted_at_once() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    let (batches, id) = running(&queue, 1, 100, 0).await;
    feed(&queue, &id, 0, 10).await.unwrap();
    assert_eq!(batches.stop("another", &id, StopReason::Cancelled).await.unwrap(), Stopped::NotFound);
    for why in [StopReason::Cancelled, StopReason::Cancelled, StopReason::Expired] {
        assert_eq!(batches.stop("t", &id, why).await.unwrap(), Stopped::Stopping);
    }
    assert!(matches!(feed(&queue, &id, 10, 20).await, Err(Error::StaleGuard)));
    let batch = batches.get(&id).await.unwrap().unwrap();
    adds_up(&batch);
    assert_eq!((batch.cancelled, batch.expired, batch.handed, batch.open()), (90, 0, Some(10), 10));
    let ids: Vec<JobId> = (1..=11).map(|n| line(&id, n).id).collect();
    let states = batches.states(&ids).await.unwrap();
    assert!(states[..10].iter().all(|state| *state == Some(JobState::Queued)) && states[10].is_none());
    queue.cancel("t", &ids[..10]).await.unwrap();
    assert!(batches.collect(&id, 0, 10, &[]).await.unwrap() && batches.finalize(&id).await.unwrap());
    assert!(batches.end(&id, 1).await.unwrap());
    let batch = batches.get(&id).await.unwrap().unwrap();
    adds_up(&batch);
    assert_eq!((batch.state, batch.cancelled), (BatchState::Cancelled, 100));
    assert_eq!(batches.stop("t", &id, StopReason::Cancelled).await.unwrap(), Stopped::Ended);
}

#[tokio::test]
async fn a_batch_counts_what_it_spends_and_says_that_its_budget_stopped_it() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    let (batches, id) = running(&queue, 1, 10, 0).await;
    feed(&queue, &id, 0, 5).await.unwrap();
    let leases = queue.lease(LeaseQuery::new("w", 3, Capability::usual(0))).await.unwrap();
    let timing = Timing { run_ms: 60, load_ms: 30, ..Timing::default() };
    let usage = Some(TokenUsage { prompt_tokens: 20, cached_tokens: 0, completion_tokens: 7 });
    let costs = |lease| FinishReport { cost_usd_micros: Some(90), timing, usage, ..succeed(lease) };
    queue.finish(&[costs(&leases[0]), costs(&leases[1])]).await.unwrap();
    let batch = batches.get(&id).await.unwrap().unwrap();
    assert_eq!((batch.spent_usd_micros, batch.usage.numbers()), (180, [40, 0, 14]));
    let known = Forecast::Unknown(Unknown::NoJobs);
    batches.note_forecast(&id, &known).await.unwrap();
    assert_eq!(batches.stop_at_budget("t", &id, AtBudget::Drain).await.unwrap(), Stopped::Stopping);
    let batch = batches.get(&id).await.unwrap().unwrap();
    adds_up(&batch);
    assert_eq!((batch.stop, batch.is_over_budget, batch.drains), (Some(StopReason::Cancelled), true, true));
    assert_eq!((batch.cancelled, batch.open(), batch.running, batch.forecast), (5, 3, 1, Some(known)));
    // The owner stops the batch without waiting for its running lines.
    batches.stop("t", &id, StopReason::Cancelled).await.unwrap();
    let batch = batches.get(&id).await.unwrap().unwrap();
    assert_eq!((batch.is_over_budget, batch.drains), (true, false));
    let (other, id) = running(&queue, 2, 10, 0).await;
    other.stop("t", &id, StopReason::Cancelled).await.unwrap();
    other.stop_at_budget("t", &id, AtBudget::Drain).await.unwrap();
    let batch = other.get(&id).await.unwrap().unwrap();
    assert!(!batch.is_over_budget && !batch.drains, "what came first is why");
}

#[tokio::test]
async fn a_wish_that_comes_too_late_changes_nothing() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    let (batches, id) = running(&queue, 1, 2, 0).await;
    feed(&queue, &id, 0, 2).await.unwrap();
    finish(&queue, 2).await;
    batches.stop("t", &id, StopReason::Cancelled).await.unwrap();
    assert!(batches.collect(&id, 0, 2, &[]).await.unwrap() && batches.finalize(&id).await.unwrap());
    batches.end(&id, 1).await.unwrap();
    assert_eq!(batches.get(&id).await.unwrap().unwrap().state, BatchState::Completed);
}

#[tokio::test]
async fn what_makes_room_works_in_a_full_redis() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    let (batches, id) = running(&queue, 1, 2, 0).await;
    feed(&queue, &id, 0, 1).await.unwrap();
    finish(&queue, 1).await;
    let mut redis = server.connection().await;
    let _: () = ::redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(1).query_async(&mut redis).await.unwrap();
    assert!(matches!(feed(&queue, &id, 1, 2).await, Err(Error::Closed(_))));
    assert!(queue.claim_role("sweep", "a", 60_000).await.unwrap());
    assert!(
        queue.claim_role("sweep", "a", 60_000).await.unwrap() && !queue.claim_role("sweep", "b", 60_000).await.unwrap()
    );
    batches.note_samples(&id, &[(1, 1)]).await.unwrap();
    assert!(batches.collect(&id, 0, 1, &["a".to_owned()]).await.unwrap());
    batches.stop("t", &id, StopReason::Cancelled).await.unwrap();
    assert!(batches.finalize(&id).await.unwrap() && batches.end(&id, 1).await.unwrap());
}

#[tokio::test]
async fn the_end_of_a_batch_is_told_once() {
    let (server, _dir) = server(&[]);
    let batches = queue(&server, Clock::Own).await.batches();
    let mut new = new(1, None);
    let url = "https://example.org/hook".to_owned();
    new.spec.hook = Some(Hook { url: url.clone(), events: vec![HookEvent::BatchCompleted] });
    batches.create(&new).await.unwrap();
    let versions = BTreeMap::new();
    let verdict = Verdict { runs: true, input: "in", skip: None, part: None, versions: &versions };
    batches.validated(&new.id, (0, 0), &[], Some(&verdict)).await.unwrap();
    assert!(batches.finalize(&new.id).await.unwrap() && batches.end(&new.id, 1).await.unwrap());
    assert!(!batches.end(&new.id, 1).await.unwrap());
    let mut redis = server.connection().await;
    let keys: Vec<String> = ::redis::cmd("KEYS").arg("*:w:*").query_async(&mut redis).await.unwrap();
    assert_eq!(keys.len(), 1);
    assert!(keys[0].ends_with(&format!(":w:msg_{}_completed", new.id)), "{keys:?}");
    let message: BTreeMap<String, String> =
        ::redis::cmd("HGETALL").arg(&keys[0]).query_async(&mut redis).await.unwrap();
    assert_eq!((message["event"].as_str(), message["tenant"].as_str()), ("batch.completed", "t"));
    assert_eq!((message["subject"].as_str(), message["url"].as_str()), (new.id.as_str(), url.as_str()));
}

#[tokio::test]
async fn a_batch_that_cannot_be_read_hides_no_other() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Manual(ManualClock::new(START_MS))).await;
    let (batches, mut redis) = (queue.batches(), raw(&server).await);
    for n in 1..4 {
        batches.create(&new(n, None)).await.unwrap();
    }
    let keys: Vec<String> = redis.keys("*:b:batch_*").await.unwrap();
    let key = |n: u8| keys.iter().find(|key| key.ends_with(&new(n, None).id)).unwrap();
    let _: () = redis.set(key(1), "text").await.unwrap();
    let _: u32 = redis.hset(key(2), "spec", "{").await.unwrap();
    let page = batches.list("t", None, None, 10).await.unwrap();
    assert_eq!(page.batches.iter().map(|batch| &batch.id).collect::<Vec<_>>(), [&new(3, None).id]);
}
