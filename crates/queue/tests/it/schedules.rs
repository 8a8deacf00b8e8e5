//! Schedules: one job per tick, whichever replicas race or die, and none after a delete.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redis::AsyncCommands;
use serde_json::value::RawValue;
use stokehold_queue::job::{Idempotency, NewJob};
use stokehold_queue::queue::{LimitScope, Limits, ListFilter, Submitted};
use stokehold_queue::schedules::{Due, Missed, SCHEDULES_MAX, Schedule, ScheduleSpec, TickError, Ticked};
use stokehold_queue::{Clock, Error, ManualClock, Queue, RedisQueue, Schedules};

use crate::conformance::{START_MS, job};
use crate::redis::{queue, raw, server};

const EVERY_MS: u64 = 1_000;
const TICKS: u64 = 200;

pub(crate) fn schedule(due_ms: Option<u64>) -> Schedule {
    Schedule {
        id: Schedules::new_id(),
        tenant: "acme".into(),
        spec: ScheduleSpec {
            name: Some("nightly".into()),
            cron: "* * * * * *".into(),
            time_zone: "UTC".into(),
            missed: Missed::RunAll,
            grace_ms: 60_000,
            created_ms: START_MS,
        },
        job: RawValue::from_string(r#"{"endpoint": "echo",  "input": {"n": 1.50}}"#.into()).unwrap(),
        due_ms,
        paused: due_ms.is_none(),
        ticks: 0,
        last_at_ms: None,
        last_job_id: None,
        last_error: None,
    }
}

fn tick_job() -> NewJob {
    job("echo")
}

/// Submits the jobs of all due ticks, one per second, as the API's loop does. `dies` decides after which submit to give
/// up.
async fn round(schedules: &Schedules, mut dies: impl FnMut() -> bool) {
    for due in schedules.due().await.unwrap().due {
        let mut ticked = Ticked { next_ms: Some(due.due_ms), ..Ticked::default() };
        for tick_ms in (due.due_ms..=due.seen_ms).step_by(EVERY_MS as usize) {
            let submitted = schedules.submit(&due, tick_ms, tick_job()).await.unwrap().unwrap();
            if dies() {
                return;
            }
            ticked.jobs += 1;
            ticked.last = Some((tick_ms, submitted.id()));
            ticked.next_ms = Some(tick_ms + EVERY_MS);
        }
        schedules.advance(&due, &ticked).await.unwrap();
    }
}

async fn jobs(queue: &RedisQueue) -> u64 {
    let (mut cursor, mut count) = (None, 0);
    loop {
        let page = queue.list("acme", &ListFilter::default(), cursor.as_deref(), 100).await.unwrap();
        assert!(page.jobs.iter().all(|job| job.spec.schedule.is_some()), "every job names its schedule");
        count += page.jobs.len() as u64;
        match page.next_cursor {
            Some(next) => cursor = Some(next),
            None => return count,
        }
    }
}

async fn one_due(schedules: &Schedules) -> Due {
    let mut round = schedules.due().await.unwrap();
    assert_eq!(round.due.len(), 1);
    round.due.remove(0)
}

/// Three replicas with separate connections; `deaths` of them per ten submits give up between submit and advance.
async fn race(deaths: u64) {
    let (server, _dir) = server(&[]);
    let clock = ManualClock::new(START_MS);
    let first = queue(&server, Clock::Manual(clock.clone())).await;
    let schedule = schedule(Some(START_MS + EVERY_MS));
    first.schedules().create(&schedule, None).await.unwrap();
    let submits = Arc::new(AtomicU64::new(0));
    let mut elapsed = 0;
    for step in 0.. {
        if elapsed == TICKS {
            break;
        }
        // Mostly tick by tick, sometimes several at once.
        let ticks = (step % 3 + 1).min(TICKS - elapsed);
        elapsed += ticks;
        clock.advance_ms(ticks * EVERY_MS);
        let mut replicas = tokio::task::JoinSet::new();
        for _ in 0..3 {
            let (schedules, submits) = (first.schedules(), submits.clone());
            replicas.spawn(async move {
                round(&schedules, || submits.fetch_add(1, Ordering::Relaxed) % 10 < deaths).await;
            });
        }
        replicas.join_all().await;
    }
    // Completes the work that the last dead replica left. It takes more than one round: each plans from the time of the
    // first look at its due time.
    while !first.schedules().due().await.unwrap().due.is_empty() {
        round(&first.schedules(), || false).await;
    }
    assert_eq!(jobs(&first).await, TICKS);
    let seen = first.schedules().get("acme", &schedule.id).await.unwrap().unwrap();
    assert_eq!((seen.ticks, seen.last_at_ms), (TICKS, Some(START_MS + TICKS * EVERY_MS)));
    assert_eq!(seen.due_ms, Some(START_MS + (TICKS + 1) * EVERY_MS));
    let last = first.get(seen.last_job_id.unwrap()).await.unwrap().unwrap();
    assert_eq!(last.spec.schedule.as_deref(), Some(schedule.id.as_str()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn schedule_ticks_make_one_job_each_when_replicas_race() {
    race(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn schedule_ticks_make_one_job_each_when_replicas_die_between_submit_and_advance() {
    race(6).await;
}

#[tokio::test]
async fn schedule_records_come_back_as_they_were_stored() {
    let (server, _dir) = server(&[]);
    let clock = ManualClock::new(START_MS);
    let queue = queue(&server, Clock::Manual(clock.clone())).await;
    let schedules = queue.schedules();
    assert_eq!(schedules.now_ms().await.unwrap(), START_MS);
    let stored = schedule(Some(START_MS + EVERY_MS));
    schedules.create(&stored, None).await.unwrap();
    schedules.create(&stored, None).await.unwrap();
    let read = schedules.get("acme", &stored.id).await.unwrap().unwrap();
    assert_eq!((&read.spec, read.job.get(), read.due_ms), (&stored.spec, stored.job.get(), stored.due_ms));
    assert_eq!((read.paused, read.ticks, read.last_at_ms, read.last_error), (false, 0, None, None));
    assert!(schedules.get("other", &stored.id).await.unwrap().is_none());
    assert!(!schedules.delete("other", &stored.id).await.unwrap());

    let round = schedules.due().await.unwrap();
    assert_eq!((round.now_ms, round.next_due_ms, round.due.len()), (START_MS, stored.due_ms, 0));

    let mut ids = vec![stored.id];
    for _ in 0..4 {
        let paused = schedule(None);
        schedules.create(&paused, None).await.unwrap();
        ids.insert(0, paused.id);
    }
    let listed = async |before: Option<&str>, limit| {
        let page = schedules.list("acme", before, limit).await.unwrap();
        page.into_iter().map(|schedule| schedule.id).collect::<Vec<_>>()
    };
    assert_eq!(listed(None, 10).await, ids, "newest first");
    assert_eq!(listed(None, 2).await, ids[..2]);
    assert_eq!(listed(Some(&ids[1]), 10).await, ids[2..]);
    assert!(schedules.list("other", None, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn schedule_ticks_end_at_once_with_a_delete_or_a_pause() {
    let (server, _dir) = server(&[]);
    let clock = ManualClock::new(START_MS);
    let queue = queue(&server, Clock::Manual(clock.clone())).await;
    let schedules = queue.schedules();
    let stored = schedule(Some(START_MS));
    schedules.create(&stored, None).await.unwrap();

    // A replica has read the schedule; then the owner pauses it.
    let due = one_due(&schedules).await;
    assert!(schedules.pause("acme", &stored.id).await.unwrap());
    assert!(schedules.submit(&due, START_MS, tick_job()).await.unwrap().is_none());
    let paused = schedules.get("acme", &stored.id).await.unwrap().unwrap();
    assert_eq!((paused.paused, paused.due_ms), (true, None));
    assert!(schedules.due().await.unwrap().due.is_empty());
    assert!(schedules.pause("acme", &stored.id).await.unwrap(), "twice is fine");

    // It is resumed with the same due time: the earlier read is still invalid.
    assert!(schedules.resume("acme", &stored.id, START_MS).await.unwrap());
    assert!(schedules.submit(&due, START_MS, tick_job()).await.unwrap().is_none());
    assert!(schedules.resume("acme", &stored.id, START_MS + 9_000).await.unwrap(), "twice changes nothing");
    let due = one_due(&schedules).await;
    assert_eq!(due.due_ms, START_MS);

    // A replica has read the schedule; then the owner deletes it.
    assert!(schedules.delete("acme", &stored.id).await.unwrap());
    assert!(schedules.submit(&due, START_MS, tick_job()).await.unwrap().is_none());
    let ticked = Ticked { next_ms: Some(START_MS + EVERY_MS), ..Ticked::default() };
    assert!(!schedules.advance(&due, &ticked).await.unwrap(), "a delete is for good");
    assert!(!schedules.put_off(&due, START_MS + 1).await.unwrap());
    assert!(schedules.get("acme", &stored.id).await.unwrap().is_none());
    for gone in [
        schedules.delete("acme", &stored.id).await,
        schedules.pause("acme", &stored.id).await,
        schedules.resume("acme", &stored.id, START_MS).await,
    ] {
        assert!(!gone.unwrap());
    }
    assert_eq!(jobs(&queue).await, 0);
}

#[tokio::test]
async fn schedule_ticks_that_are_refused_are_told_and_the_schedule_goes_on() {
    let (server, _dir) = server(&[]);
    let clock = ManualClock::new(START_MS);
    let schedules = queue(&server, Clock::Manual(clock.clone())).await.schedules();
    let stored = schedule(Some(START_MS));
    schedules.create(&stored, None).await.unwrap();
    let get = async || schedules.get("acme", &stored.id).await.unwrap().unwrap();

    let error = TickError { at_ms: START_MS, code: "unknown_endpoint".into(), message: "there is no \"echo\"".into() };
    let refused = Ticked { next_ms: Some(START_MS + 1_000), error: Some(error.clone()), ..Ticked::default() };
    assert!(schedules.advance(&one_due(&schedules).await, &refused).await.unwrap());
    assert_eq!((get().await.last_error, get().await.ticks, get().await.last_at_ms), (Some(error), 0, None));

    clock.advance_ms(1_000);
    let due = one_due(&schedules).await;
    let Some(Submitted::New(id)) = schedules.submit(&due, due.due_ms, tick_job()).await.unwrap() else {
        panic!("a new job");
    };
    let done = Ticked { next_ms: Some(START_MS + 2_000), jobs: 1, last: Some((due.due_ms, id)), ..Ticked::default() };
    assert!(schedules.advance(&due, &done).await.unwrap());
    assert!(!schedules.advance(&due, &done).await.unwrap(), "it has moved on");
    assert_eq!((get().await.last_error, get().await.ticks, get().await.last_job_id), (None, 1, Some(id)));
}

#[tokio::test]
async fn schedule_ticks_are_bound_by_the_quota_and_a_repeat_is_not() {
    let (server, _dir) = server(&[]);
    let clock = ManualClock::new(START_MS);
    let queue = queue(&server, Clock::Manual(clock.clone())).await;
    let schedules = queue.schedules();
    schedules.create(&schedule(Some(START_MS)), None).await.unwrap();
    let most = Limits { max_open: Some(1), ..Limits::default() };
    queue.limit(&LimitScope::Tenant("acme".into()), Some(&most)).await.unwrap();
    let due = one_due(&schedules).await;
    let Some(Submitted::New(id)) = schedules.submit(&due, START_MS, tick_job()).await.unwrap() else {
        panic!("a new job");
    };
    assert!(matches!(schedules.submit(&due, START_MS + 1_000, tick_job()).await, Err(Error::Quota { .. })));
    let again = schedules.submit(&due, START_MS, tick_job()).await.unwrap();
    assert_eq!(again, Some(Submitted::Repeat(id)), "what one that died left behind is found again");
}

#[tokio::test]
async fn schedule_looks_agree_on_the_time_for_as_long_as_a_round_takes() {
    let (server, _dir) = server(&[]);
    let clock = ManualClock::new(START_MS);
    let schedules = queue(&server, Clock::Manual(clock.clone())).await.schedules();
    let stored = schedule(Some(START_MS));
    schedules.create(&stored, None).await.unwrap();
    assert_eq!(one_due(&schedules).await.seen_ms, START_MS);
    clock.advance_ms(5_000);
    let due = one_due(&schedules).await;
    assert_eq!(due.seen_ms, START_MS, "whoever comes second plans as the first did");
    assert!(schedules.put_off(&due, START_MS + 20_000).await.unwrap());
    let round = schedules.due().await.unwrap();
    assert_eq!((round.due.len(), round.next_due_ms), (0, Some(START_MS + 20_000)));
    assert_eq!(schedules.get("acme", &stored.id).await.unwrap().unwrap().due_ms, Some(START_MS), "its tick is owed");
    clock.advance_ms(15_000);
    let due = one_due(&schedules).await;
    assert_eq!((due.due_ms, due.seen_ms), (START_MS, START_MS + 20_000), "an old look counts no more");
}

#[tokio::test]
async fn schedule_lists_and_looks_are_bounded() {
    let (server, _dir) = server(&[]);
    let clock = ManualClock::new(START_MS);
    let schedules = queue(&server, Clock::Manual(clock.clone())).await.schedules();
    let mut all = tokio::task::JoinSet::new();
    for n in 0..SCHEDULES_MAX {
        let schedules = schedules.clone();
        let stored = schedule((n < 250).then_some(START_MS));
        all.spawn(async move { schedules.create(&stored, None).await.unwrap() });
    }
    all.join_all().await;
    assert!(matches!(schedules.create(&schedule(None), None).await, Err(Error::TooLarge(_))));

    let mut seen = BTreeSet::new();
    loop {
        let round = schedules.due().await.unwrap();
        assert!(round.due.len() <= 100);
        if round.due.is_empty() {
            break;
        }
        if round.due.len() == 100 {
            assert!(round.next_due_ms.is_some_and(|next| next <= round.now_ms), "there may be more right now");
        }
        for due in round.due {
            schedules.advance(&due, &Ticked { next_ms: Some(START_MS + 1), ..Ticked::default() }).await.unwrap();
            assert!(seen.insert(due.schedule.id));
        }
    }
    assert_eq!(seen.len(), 250);
}

/// Hash of a schedule's request.
const HASH: &str = "f00ba4f00ba4f00ba4f00ba4f00ba4f00ba4f00ba4f00ba4f00ba4f00ba4f00b";

fn keyed(hash: &str) -> Option<Idempotency> {
    Some(Idempotency::new("once", hash))
}

/// Submits a job under the idempotency key "once".
async fn submits(queue: &RedisQueue, hash: &str) -> Result<Submitted, Error> {
    let new = NewJob { idempotency: keyed(hash), ..job("echo") };
    Ok(queue.submit(vec![new]).await?[0])
}

#[tokio::test]
async fn a_key_of_a_submit_and_the_same_key_of_a_schedule_are_two() {
    let (server, _dir) = server(&[]);
    for job_first in [true, false] {
        let queue = queue(&server, Clock::Own).await;
        let (schedules, first) = (queue.schedules(), schedule(None));
        let mut submitted = None;
        if job_first {
            submitted = Some(submits(&queue, "jobhash").await.unwrap());
        }
        assert_eq!(schedules.create(&first, keyed(HASH).as_ref()).await.unwrap(), None);
        let made = match submitted {
            Some(made) => made,
            None => submits(&queue, "jobhash").await.unwrap(),
        };
        // Both are known from now on, and another request under either key is a conflict.
        assert_eq!(submits(&queue, "jobhash").await.unwrap(), Submitted::Repeat(made.id()));
        let again = schedules.create(&schedule(None), keyed(HASH).as_ref()).await.unwrap();
        assert_eq!(again.as_ref(), Some(&first.id));
        assert!(matches!(submits(&queue, "other").await, Err(Error::IdempotencyConflict { .. })));
        let other = schedules.create(&schedule(None), keyed("other").as_ref()).await;
        assert!(matches!(other, Err(Error::IdempotencyConflict { .. })));
    }
}

#[tokio::test]
async fn a_schedules_key_of_the_release_before_stays_known() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    let (schedules, first) = (queue.schedules(), schedule(None));
    schedules.create(&first, keyed(HASH).as_ref()).await.unwrap();
    // The previous release leaves it only at the keys of submits, and finds one of this release there.
    let mut redis = raw(&server).await;
    let own: Vec<String> = redis::cmd("KEYS").arg("*:i:acme:s:*").query_async(&mut redis).await.unwrap();
    let shared: String = redis.get(own[0].replace(":s:", ":")).await.unwrap();
    assert_eq!(shared, format!("{} {HASH}", first.id));
    let _: u32 = redis.del(&own[0]).await.unwrap();

    let again = async || schedules.create(&schedule(None), keyed(HASH).as_ref()).await.unwrap();
    assert_eq!(again().await.as_ref(), Some(&first.id));
    let made = submits(&queue, "jobhash").await.unwrap();
    assert_eq!(again().await.as_ref(), Some(&first.id), "a submit under the same key takes nothing from it");
    assert_eq!(submits(&queue, "jobhash").await.unwrap(), Submitted::Repeat(made.id()));
    let left: i64 = redis.pttl(&own[0]).await.unwrap();
    assert!(left > 0, "and it goes in its time");
}

#[tokio::test]
async fn a_schedule_that_cannot_be_read_keeps_no_other_from_ticking_or_from_a_list() {
    let (server, _dir) = server(&[]);
    let clock = ManualClock::new(START_MS);
    let queue = queue(&server, Clock::Manual(clock.clone())).await;
    let (schedules, mut redis) = (queue.schedules(), raw(&server).await);
    let mut ids = Vec::new();
    for _ in 0..4 {
        let stored = schedule(Some(START_MS));
        schedules.create(&stored, None).await.unwrap();
        ids.push(stored.id);
    }
    let keys: Vec<String> = redis.keys("*:schedule:*").await.unwrap();
    let key = |id: &str| keys.iter().find(|key| key.ends_with(id)).unwrap();
    // A missing record, a record that is not JSON, and a value that is not a hash.
    let _: () = redis.set(key(&ids[0]), "text").await.unwrap();
    let _: u32 = redis.hset(key(&ids[1]), "spec", "{").await.unwrap();
    let _: u32 = redis.hset(key(&ids[2]), "job", b"\xff".as_slice()).await.unwrap();
    assert_eq!(one_due(&schedules).await.schedule.id, ids[3]);
    assert_eq!(one_due(&schedules).await.schedule.id, ids[3], "the others are looked at again in a minute");
    for limit in [1, 10] {
        let listed = schedules.list("acme", None, limit).await.unwrap();
        assert_eq!(listed.iter().map(|schedule| &schedule.id).collect::<Vec<_>>(), [&ids[3]]);
    }
    assert!(schedules.list("acme", Some(&ids[3]), 1).await.unwrap().is_empty());
    assert_eq!(queue.quarantine().faults().await.unwrap()["schedule"], 1);
}
