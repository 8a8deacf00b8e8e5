//! A tenant's share of Redis: its records are counted, and a tenant at its limit does not delay the others.

use redis::aio::MultiplexedConnection;
use serde_json::value::to_raw_value;
use stokehold_queue::batches::Created;
use stokehold_queue::gateway::{JobEventReport, JobMessage, LogStream};
use stokehold_queue::job::{Hook, HookEvent, JobSpec, NewJob};
use stokehold_queue::outbox::{Claimed, Message, Outcome, Report, Try};
use stokehold_queue::queue::{Lease, LimitScope, Limits, OutputsPosition};
use stokehold_queue::schedules::{Missed, Schedule, ScheduleSpec, Schedules};
use stokehold_queue::{Clock, Error, JobId, ManualClock, Queue, RedisQueue};

use crate::batches::batch_of;
use crate::conformance::{START_MS, held, job, noise, of, query, spec, succeed};
use crate::redis::{queue, raw, server};

fn large(tenant: &str, bytes: usize) -> NewJob {
    let input = to_raw_value(&"x".repeat(bytes)).unwrap();
    NewJob { input, ..of(JobSpec { tenant: tenant.to_owned(), ..spec("echo") }) }
}

/// Sets maxmemory so that this fraction of it is in use.
async fn fill(redis: &mut MultiplexedConnection, queue: &RedisQueue, part: f64) -> u64 {
    queue.look().await.unwrap();
    let max = (queue.health().vitals.used_bytes as f64 / part) as u64;
    let _: () = redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(max).query_async(redis).await.unwrap();
    queue.look().await.unwrap();
    max
}

#[tokio::test]
async fn one_tenant_leaves_the_others_room() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    let mut redis = raw(&server).await;
    for _ in 0..20 {
        queue.submit((0..10).map(|_| large("greedy", 40_000)).collect()).await.unwrap();
    }
    queue.submit(vec![large("modest", 100)]).await.unwrap();

    // While there is enough memory, a tenant takes what it needs.
    fill(&mut redis, &queue, 0.5).await;
    queue.submit(vec![large("greedy", 100)]).await.unwrap();

    let max = fill(&mut redis, &queue, 0.65).await;
    let held_by = queue.memory_of("greedy").await.unwrap();
    assert!(held_by > max / 5, "{held_by} of {max}");
    let refused = queue.submit(vec![large("greedy", 100)]).await.unwrap_err();
    let Error::Memory { tenant, most_bytes, held_bytes } = refused else { panic!("{refused}") };
    assert_eq!((tenant.as_str(), most_bytes, held_bytes), ("greedy", max / 100 * 20, held_by));
    assert_eq!(queue.memory_of("greedy").await.unwrap(), held_by, "nothing was accepted");
    queue.submit(vec![large("modest", 10_000)]).await.unwrap();

    // An operator can allow more, or less.
    let scope = |tenant: &str| LimitScope::Tenant(tenant.to_owned());
    let most = |bytes: u64| Limits { max_memory_bytes: Some(bytes), ..Limits::default() };
    queue.limit(&scope("greedy"), Some(&most(1 << 40))).await.unwrap();
    assert_eq!(queue.usage(&scope("greedy")).await.unwrap().0, most(1 << 40));
    queue.submit(vec![large("greedy", 100)]).await.unwrap();
    queue.limit(&scope("modest"), Some(&most(1_000))).await.unwrap();
    assert!(matches!(queue.submit(vec![large("modest", 1)]).await, Err(Error::Memory { most_bytes: 1_000, .. })));
}

#[tokio::test]
async fn what_a_record_takes_is_given_back_when_it_goes() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    let mut redis = raw(&server).await;
    let jobs = [large("acme", 5_000), large("acme", 7_000), large("acme", 9_000)];
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    queue.submit(jobs.to_vec()).await.unwrap();
    let taken = queue.memory_of("acme").await.unwrap();
    assert!(taken > 21_000 && taken < 21_000 + 3 * 4_096, "{taken}");
    // The same submit again creates no record.
    queue.submit(jobs.to_vec()).await.unwrap();
    assert_eq!(queue.memory_of("acme").await.unwrap(), taken);

    // A result is counted as well; a result that fits into the record is not.
    let lease = queue.lease(query(1, 0)).await.unwrap().remove(0);
    queue.release(&[held(&lease)]).await.unwrap();
    let leases = queue.lease(query(2, 0)).await.unwrap();
    queue.finish(&[succeed(&leases[0])]).await.unwrap();
    assert_eq!(queue.memory_of("acme").await.unwrap(), taken);
    let mut report = succeed(&leases[1]);
    report.outcome =
        stokehold_queue::gateway::FinishOutcome::Succeeded { result: to_raw_value(&"y".repeat(4_998)).unwrap() };
    queue.finish(&[report]).await.unwrap();
    assert_eq!(queue.memory_of("acme").await.unwrap(), taken + 5_000);

    // A record of the previous release was not counted, and its end subtracts nothing.
    queue.cancel("acme", &ids).await.unwrap();
    let pattern = format!("*:j:{}", ids[0]);
    let first: Vec<String> = redis::cmd("KEYS").arg(&pattern).query_async(&mut redis).await.unwrap();
    let size: u64 = redis::cmd("HGET").arg(&first[0]).arg("size").query_async(&mut redis).await.unwrap();
    let _: () = redis::cmd("HDEL").arg(&first[0]).arg("size").query_async(&mut redis).await.unwrap();
    queue.history().forget(&ids).await.unwrap();
    assert_eq!(queue.memory_of("acme").await.unwrap(), size);

    // The recovery sweep corrects a wrong count, the second time that it finds it.
    queue.submit(vec![job("echo")]).await.unwrap();
    let right = queue.memory_of("acme").await.unwrap() - size;
    for _ in 0..2 {
        assert_eq!(queue.memory_of("acme").await.unwrap(), right + size);
        let mut place = None;
        loop {
            place = queue.recover(place.as_ref()).await.unwrap().next;
            if place.is_none() {
                break;
            }
        }
    }
    assert_eq!(queue.memory_of("acme").await.unwrap(), right);
}

fn log(lease: &Lease, text: &str) -> JobEventReport {
    let event = JobMessage::Log { stream: LogStream::Stdout, text: text.to_owned() };
    JobEventReport { job_id: lease.job_id, fence: lease.fence.clone(), event }
}

#[tokio::test]
async fn what_a_job_says_is_counted_until_older_of_it_makes_room_and_with_its_record() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    queue.submit(vec![large("acme", 100)]).await.unwrap();
    let before = queue.memory_of("acme").await.unwrap();
    let lease = queue.lease(query(1, 0)).await.unwrap().remove(0);
    let took = async || queue.memory_of("acme").await.unwrap() - before;
    for _ in 0..10 {
        queue.append_events(&vec![log(&lease, &"a".repeat(2_000)); 100]).await.unwrap();
    }
    let of_full = took().await;
    assert!((2_000_000..2_300_000).contains(&of_full), "{of_full}");
    // Later entries replace the first ones.
    queue.append_events(&vec![log(&lease, &"b".repeat(2_000)); 100]).await.unwrap();
    assert_eq!(took().await, of_full);
    assert_eq!(queue.read_events(lease.job_id, "", 2_000).await.unwrap().len(), 1_000);
    queue.append_events(&vec![log(&lease, "c"); 100]).await.unwrap();
    assert!(took().await < of_full - 190_000);

    // The sweep computes the same count.
    for _ in 0..2 {
        let held = queue.memory_of("acme").await.unwrap();
        assert!(queue.recover(None).await.unwrap().next.is_none());
        assert_eq!(queue.memory_of("acme").await.unwrap(), held);
    }
    queue.finish(&[succeed(&lease)]).await.unwrap();
    queue.history().forget(&[lease.job_id]).await.unwrap();
    assert_eq!(queue.memory_of("acme").await.unwrap(), 0);
}

#[tokio::test]
async fn a_tenant_with_all_that_it_may_have_keeps_less_of_what_its_jobs_say() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    queue.submit(vec![large("acme", 100), large("acme", 100), large("other", 100)]).await.unwrap();
    let mut leases = queue.lease(query(3, 0)).await.unwrap();
    leases.sort_by(|a, b| a.spec.tenant.cmp(&b.spec.tenant));
    let outputs = |lease: &Lease, index: u64| {
        let event = JobMessage::Outputs { index, values: vec![to_raw_value(&noise(60_000)).unwrap()] };
        JobEventReport { job_id: lease.job_id, fence: lease.fence.clone(), event }
    };
    let kept = async |lease: &Lease| {
        let events = queue.read_events(lease.job_id, "", 2_000).await.unwrap().len();
        let outputs = queue.read_outputs(lease.job_id, OutputsPosition { attempt: 0, next: 0 }, 2_000).await.unwrap();
        (events, outputs.len())
    };
    let say = async |lease: &Lease| {
        queue.append_events(&vec![log(lease, "line"); 100]).await.unwrap();
        let many: Vec<JobEventReport> = (0..10).map(|index| outputs(lease, index)).collect();
        queue.append_events(&many).await.unwrap();
    };
    say(&leases[0]).await;
    assert_eq!(kept(&leases[0]).await, (100, 10));
    let limits = Limits { max_memory_bytes: Some(10_000), ..Limits::default() };
    queue.limit(&LimitScope::Tenant("acme".to_owned()), Some(&limits)).await.unwrap();
    say(&leases[1]).await;
    assert_eq!(kept(&leases[1]).await, (50, 1));
    say(&leases[2]).await;
    assert_eq!(kept(&leases[2]).await, (100, 10), "another tenant's");
    // Nothing is lost that the guarantees cover.
    assert_eq!(queue.finish(&[succeed(&leases[1])]).await.unwrap().len(), 1);

    // Streamed outputs count as well, for as long as they may be stored.
    let limits = Limits { max_memory_bytes: Some(500_000), ..Limits::default() };
    queue.limit(&LimitScope::Tenant("acme".to_owned()), Some(&limits)).await.unwrap();
    assert!(queue.memory_of("acme").await.unwrap() < 100_000);
    assert!(matches!(queue.submit(vec![large("acme", 1)]).await, Err(Error::Memory { .. })));
}

#[tokio::test]
async fn schedules_and_pending_webhooks_are_counted_until_they_go() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    let schedules = queue.schedules();
    let (first, second) = (schedule_of("acme", 20_000), schedule_of("acme", 20_000));
    schedules.create(&first, None).await.unwrap();
    let taken = queue.memory_of("acme").await.unwrap();
    assert!((20_000..26_000).contains(&taken), "{taken}");
    schedules.create(&first, None).await.unwrap();
    assert_eq!(queue.memory_of("acme").await.unwrap(), taken, "the same again is no other");
    let limits = Limits { max_memory_bytes: Some(30_000), ..Limits::default() };
    queue.limit(&LimitScope::Tenant("acme".to_owned()), Some(&limits)).await.unwrap();
    let refused = schedules.create(&second, None).await.unwrap_err();
    assert!(
        matches!(refused, Error::Memory { most_bytes: 30_000, held_bytes, .. } if held_bytes == taken),
        "{refused}"
    );
    assert!(schedules.get("acme", &second.id).await.unwrap().is_none());
    assert!(matches!(queue.submit(vec![large("acme", 10_000)]).await, Err(Error::Memory { .. })));
    schedules.delete("acme", &first.id).await.unwrap();
    assert_eq!(queue.memory_of("acme").await.unwrap(), 0);
    schedules.create(&second, None).await.unwrap();
    schedules.delete("acme", &second.id).await.unwrap();

    // A message is stored until it is delivered, and again when it is replayed.
    let hook = Hook { url: "https://example.com/hook".to_owned(), events: vec![HookEvent::JobCompleted] };
    let hooked = of(JobSpec { tenant: "acme".to_owned(), hook: Some(hook), ..spec("echo") });
    queue.submit(vec![hooked]).await.unwrap();
    let lease = queue.lease(query(1, 0)).await.unwrap().remove(0);
    let before = queue.memory_of("acme").await.unwrap();
    queue.finish(&[succeed(&lease)]).await.unwrap();
    let outbox = queue.outbox();
    let claimed = outbox.claim(10, 60_000).await.unwrap().deliveries.remove(0);
    let message = Message { body: "b".repeat(5_000), traceparent: None };
    for _ in 0..2 {
        outbox.fix(&claimed.delivery.id, &claimed.claim, &message).await.unwrap().unwrap();
    }
    let pending = queue.memory_of("acme").await.unwrap() - before;
    assert!((6_000..7_000).contains(&pending), "{pending}");
    // Jobs that the previous release ended without counting are found by the sweep.
    let kept = schedule_of("acme", 1_000);
    schedules.create(&kept, None).await.unwrap();
    let right = queue.memory_of("acme").await.unwrap();
    let mut redis = raw(&server).await;
    let counts: Vec<String> = redis::cmd("KEYS").arg("*:beside").query_async(&mut redis).await.unwrap();
    for tenant in ["acme", "globex"] {
        let _: i64 = redis::cmd("HINCRBY").arg(&counts[0]).arg(tenant).arg(700).query_async(&mut redis).await.unwrap();
    }
    assert_eq!(queue.memory_of("acme").await.unwrap(), right + 700);
    assert!(queue.recover(None).await.unwrap().next.is_none());
    assert_eq!(queue.memory_of("acme").await.unwrap(), right);
    assert_eq!(queue.memory_of("globex").await.unwrap(), 0);
    schedules.delete("acme", &kept.id).await.unwrap();
    let report = |claimed: &Claimed| Report {
        id: claimed.delivery.id.clone(),
        claim: claimed.claim.clone(),
        outcome: Outcome::Delivered,
        tried: Some(Try { at_ms: START_MS, status: Some(200), error: None, duration_ms: 1 }),
    };
    assert_eq!(outbox.report(&[report(&claimed)]).await.unwrap(), [true]);
    assert_eq!(queue.memory_of("acme").await.unwrap(), before);
    outbox.replay("acme", &claimed.delivery.id).await.unwrap().unwrap();
    assert!(queue.memory_of("acme").await.unwrap() > before + 1_000);
    let again = outbox.claim(10, 60_000).await.unwrap().deliveries.remove(0);
    assert!(again.message.is_none(), "a large body is made again");
    outbox.report(&[report(&again)]).await.unwrap();
    assert_eq!(queue.memory_of("acme").await.unwrap(), before);
}

/// A schedule that falls due in a hundred years and submits an input of `bytes` bytes.
fn schedule_of(tenant: &str, bytes: usize) -> Schedule {
    Schedule {
        id: Schedules::new_id(),
        tenant: tenant.to_owned(),
        spec: ScheduleSpec {
            name: None,
            cron: "0 0 1 1 *".into(),
            time_zone: "UTC".into(),
            missed: Missed::Skip,
            grace_ms: 60_000,
            created_ms: START_MS,
        },
        job: to_raw_value(&serde_json::json!({"endpoint": "echo", "input": "x".repeat(bytes)})).unwrap(),
        due_ms: Some(4_000_000_000_000),
        paused: false,
        ticks: 0,
        last_at_ms: None,
        last_job_id: None,
        last_error: None,
    }
}

#[tokio::test]
async fn a_job_that_was_cancelled_before_its_start_leaves_early() {
    let (server, _dir) = server(&[]);
    let clock = ManualClock::new(START_MS);
    let queue = queue(&server, Clock::Manual(clock.clone())).await;
    let jobs = [large("acme", 1_000), large("acme", 1_000)];
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    queue.submit(jobs.to_vec()).await.unwrap();
    // The running job has data to show.
    let lease = queue.lease(query(1, 0)).await.unwrap().remove(0);
    queue.cancel("acme", &ids).await.unwrap();
    clock.advance_ms(30 * 60_000);
    let due: Vec<JobId> = queue.history().due(10).await.unwrap().jobs.iter().map(|job| job.id).collect();
    assert_eq!(due, ids.into_iter().filter(|id| *id != lease.job_id).collect::<Vec<_>>());
}

#[tokio::test]
async fn one_tenant_leaves_the_others_batches() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    let batches = queue.batches();
    for n in 0..1_000 {
        batches.create(&batch_of("greedy", n)).await.unwrap();
    }
    assert!(matches!(batches.create(&batch_of("greedy", 1_000)).await, Err(Error::TooLarge(_))));
    assert_eq!(batches.create(&batch_of("greedy", 0)).await.unwrap(), Created::New, "the same again");
    assert_eq!(batches.create(&batch_of("modest", 2_000)).await.unwrap(), Created::New);
}
