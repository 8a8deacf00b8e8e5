//! Time of each script inside Redis, from its slow log. docs/BENCHMARKS.md has the command and the figures.

use std::collections::BTreeMap;

use stokehold_queue::batches::Verdict;
use stokehold_queue::capability::Capability;
use stokehold_queue::gateway::{JobEventReport, JobMessage};
use stokehold_queue::job::{Dependency, DependencyOn, Hook, HookEvent, JobSpec, NewJob};
use stokehold_queue::outbox::{Message, Outcome, Report, Try};
use stokehold_queue::queue::{BatchGuard, Due, Lease, LimitScope, Limits, Settlement};
use stokehold_queue::schedules::Ticked;
use stokehold_queue::{Clock, JobId, ManualClock, Queue, RedisQueue, queue as verbs};

use crate::batches::{batch_of, line};
use crate::conformance::{START_MS, held, job, of, query, spec, succeed};
use crate::redis::{queue, raw, server};
use crate::schedules::schedule;

const ROUNDS: usize = 400;

/// Calls of one script: the microseconds that each took.
type Times = BTreeMap<&'static str, Vec<u64>>;

/// One entry of the slow log: its number, time, microseconds, command, client address and client name.
type Entry = (u64, u64, u64, Vec<Vec<u8>>, String, String);

/// Prints the times of the scripts that `work` calls.
#[expect(clippy::print_stdout, reason = "a table for people")]
async fn measure(title: &str, work: impl AsyncFn(&RedisQueue, &ManualClock)) {
    let slow_log = ["--slowlog-log-slower-than", "0", "--slowlog-max-len", "1000000"];
    let (server, _dir) = server(&[&slow_log[..], &["--appendfsync", "no"]].concat());
    let clock = ManualClock::new(START_MS);
    let queue = queue(&server, Clock::Manual(clock.clone())).await;
    for _ in 0..ROUNDS {
        work(&queue, &clock).await;
    }
    let mut redis = raw(&server).await;
    let log: Vec<Entry> = ::redis::cmd("SLOWLOG").arg("GET").arg(-1).query_async(&mut redis).await.unwrap();
    let mut times = Times::new();
    for (_, _, micros, command, ..) in log.iter().filter(|entry| entry.3[0] == b"EVALSHA") {
        let (name, _) = stokehold_queue::scripts().find(|(_, sha)| sha.as_bytes() == command[1]).unwrap();
        times.entry(name).or_default().push(*micros);
    }
    println!("{title}: calls, then the first quartile and the median in µs");
    for (name, mut micros) in times {
        micros.sort_unstable();
        println!("| {name} | {} | {} | {} |", micros.len(), micros[micros.len() / 4], micros[micros.len() / 2]);
    }
}

async fn submit(queue: &RedisQueue, job: NewJob) -> JobId {
    queue.submit(vec![job]).await.unwrap()[0].id()
}

async fn lease(queue: &RedisQueue, want: u32) -> Vec<Lease> {
    let leases = queue.lease(query(want, 0)).await.unwrap();
    assert_eq!(leases.len(), want as usize);
    leases
}

/// Runs `at_once` jobs to success.
async fn run_jobs(queue: &RedisQueue, at_once: u32) {
    queue.submit((0..at_once).map(|_| job("echo")).collect()).await.unwrap();
    let leases = lease(queue, at_once).await;
    let named: Vec<_> = leases.iter().map(held).collect();
    queue.extend(&named).await.unwrap();
    let message = JobMessage::Progress { fraction: 0.5, message: "half".to_owned() };
    let event = |lease: &Lease| {
        let event = message.clone();
        JobEventReport { job_id: lease.job_id, fence: lease.fence.clone(), event }
    };
    queue.append_events(&leases.iter().map(event).collect::<Vec<_>>()).await.unwrap();
    queue.finish(&leases.iter().map(succeed).collect::<Vec<_>>()).await.unwrap();
    queue.history().forget(&leases.iter().map(|lease| lease.job_id).collect::<Vec<_>>()).await.unwrap();
}

/// Runs jobs through every other transition.
async fn run_others(queue: &RedisQueue, clock: &ManualClock) {
    let id = submit(queue, job("echo")).await;
    queue.watch(id, "api-1").await.unwrap();
    queue.hold("w2", &Capability::usual(0), &Capability::usual(24)).await.unwrap();
    queue.wake_next().await.unwrap();
    queue.release(&[held(&lease(queue, 1).await[0])]).await.unwrap();
    lease(queue, 1).await;
    queue.abandon("w1").await.unwrap();
    queue.reap().await.unwrap();
    queue.cancel("acme", &[id]).await.unwrap();

    let later = submit(queue, NewJob { run_after_ms: clock.now_ms() + 1, ..job("echo") }).await;
    submit(queue, of(JobSpec { start_by_ms: Some(clock.now_ms() + 1), ..spec("never") })).await;
    clock.advance_ms(1);
    queue.promote().await.unwrap();
    queue.expire().await.unwrap();

    let depends_on = vec![Dependency { job: later, on: DependencyOn::Success }];
    submit(queue, of(JobSpec { depends_on, ..spec("echo") })).await;
    queue.finish(&[succeed(&lease(queue, 1).await[0])]).await.unwrap();
    for _ in 0..2 {
        for due in queue.due(1_000).await.unwrap() {
            match due {
                Due::Ended(id) => {
                    queue.unblock(id).await.unwrap();
                }
                Due::Ready(id) => {
                    let revision = queue.get(id).await.unwrap().unwrap().revision;
                    let verdict = verbs::Verdict::Queue { input: None };
                    queue.settle(&Settlement { id, revision, steps: vec![], verdict }).await.unwrap();
                }
            }
        }
    }
    queue.finish(&[succeed(&lease(queue, 1).await[0])]).await.unwrap();

    let scope = LimitScope::Tenant("other".to_owned());
    queue.limit(&scope, Some(&Limits { max_running: Some(5), ..Limits::default() })).await.unwrap();
    queue.disable("other", true).await.unwrap();
    queue.disable("other", false).await.unwrap();
    queue.claim_role("sweeper", "api-1", 1_000).await.unwrap();
    queue.traces().claim(10, 1_000).await.unwrap();

    let id = submit(queue, job("echo")).await;
    queue.quarantine().put(id, "why").await.unwrap();
    queue.quarantine().readmit(id).await.unwrap();
    queue.quarantine().put(id, "why").await.unwrap();
    queue.quarantine().discard(id).await.unwrap();
    queue.recover(None).await.unwrap();
}

/// A webhook, a schedule and a batch of one line, from start to end.
async fn run_records(queue: &RedisQueue, clock: &ManualClock) {
    let hook = Hook { url: "https://example.com/".to_owned(), events: vec![HookEvent::JobCompleted] };
    submit(queue, of(JobSpec { hook: Some(hook), ..spec("echo") })).await;
    queue.finish(&[succeed(&lease(queue, 1).await[0])]).await.unwrap();
    let outbox = queue.outbox();
    for claimed in outbox.claim(10, 1_000).await.unwrap().deliveries {
        let (id, claim) = (claimed.delivery.id, claimed.claim);
        outbox.fix(&id, &claim, &Message { body: "{}".to_owned(), traceparent: None }).await.unwrap();
        let tried = Some(Try { at_ms: clock.now_ms(), status: Some(200), error: None, duration_ms: 1 });
        let report =
            || Report { id: id.clone(), claim: claim.clone(), outcome: Outcome::Delivered, tried: tried.clone() };
        outbox.report(&[report()]).await.unwrap();
        outbox.replay("acme", &id).await.unwrap();
    }

    let schedules = queue.schedules();
    let schedule = schedule(Some(clock.now_ms()));
    schedules.create(&schedule, None).await.unwrap();
    for due in schedules.due().await.unwrap().due {
        let ticked = Ticked { next_ms: Some(clock.now_ms() + 1_000), ..Ticked::default() };
        schedules.advance(&due, &ticked).await.unwrap();
    }
    schedules.pause("acme", &schedule.id).await.unwrap();
    schedules.resume("acme", &schedule.id, clock.now_ms()).await.unwrap();
    schedules.delete("acme", &schedule.id).await.unwrap();

    let (batches, new) = (queue.batches(), batch_of("t", usize::try_from(clock.now_ms()).unwrap()));
    batches.create(&new).await.unwrap();
    let versions = BTreeMap::from([("echo".to_owned(), 1)]);
    let verdict = Verdict { runs: true, input: "in", skip: None, part: None, versions: &versions };
    batches.validated(&new.id, (1, 0), &[], Some(&verdict)).await.unwrap();
    let guard = BatchGuard { batch: new.id.clone(), from_line: 0, to_line: 1 };
    queue.feed(&guard, &[line(&new.id, 1)]).await.unwrap();
    batches.note_samples(&new.id, &[(1, 0)]).await.unwrap();
    queue.finish(&[succeed(&lease(queue, 1).await[0])]).await.unwrap();
    batches.collect(&new.id, 0, 1, &[]).await.unwrap();
    batches.finalize(&new.id).await.unwrap();
    batches.end(&new.id, 1_000).await.unwrap();
    clock.advance_ms(1);
}

#[tokio::test]
#[ignore = "prints times and checks nothing; `make bench-scripts` runs it alone"]
async fn times_of_scripts() {
    measure("One job a call", async |queue, _| run_jobs(queue, 1).await).await;
    measure("Twenty jobs a call", async |queue, _| run_jobs(queue, 20).await).await;
    measure("Other moves of jobs", run_others).await;
    measure("Webhooks, schedules and batches", run_records).await;
}
