//! The recovery sweep: it repairs what a test has damaged, and reports nothing where nothing is damaged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::aio::MultiplexedConnection;
use stokehold_queue::gateway::FinishAnswer;
use stokehold_queue::job::{Dependency, DependencyOn, ErrorCode, JobSpec, JobState, NewJob, QUEUE_TIMEOUT_DEFAULT_S};
use stokehold_queue::queue::{CancelAnswer, Due, Lease, LimitScope, Limits, ListFilter, Settlement, Verdict};
use stokehold_queue::{Clock, JobId, ManualClock, Queue, RedisQueue};
use stokehold_tests::redis_server::RedisServer;
use tempfile::TempDir;

use crate::conformance::{START_MS, fail, held, job, keyed, of, query, spec, succeed};
use crate::redis::{queue, raw, server};

/// A queue with jobs in every state and place.
struct Populated {
    queue: RedisQueue,
    clock: ManualClock,
    redis: MultiplexedConnection,
    leases: Vec<Lease>,
    _server: (RedisServer, TempDir),
}

async fn populated() -> Populated {
    let (server, dir) = server(&[]);
    let clock = ManualClock::new(START_MS);
    let queue = queue(&server, Clock::Manual(clock.clone())).await;
    let all = |specs: Vec<JobSpec>| specs.into_iter().map(of).collect::<Vec<NewJob>>();

    // Jobs that ended in two ways, run, wait for a key, are requeued at the front, or wait for a retry.
    queue.submit(all(vec![spec("ran"), spec("ran"), spec("ran"), spec("ran"), spec("ran")])).await.unwrap();
    let mut leases = queue.lease(query(5, 0)).await.unwrap();
    queue.finish(&[succeed(&leases[0]), fail(&leases[1], ErrorCode::HandlerError)]).await.unwrap();
    queue.cancel("acme", &[leases[2].job_id]).await.unwrap();
    let holder = of(keyed("card", 1));
    let mut waiter = of(keyed("card", 1));
    waiter.spec.deadline_ms = Some(START_MS + 10_000_000);
    queue.submit(vec![holder, waiter]).await.unwrap();
    let keyed = queue.lease(query(10, 0)).await.unwrap();
    leases = leases.split_off(3).into_iter().chain(keyed).collect();

    // Jobs held back by a limit of 0, scheduled for later, blocked by a job that will run, or blocked by a step.
    let shut = Limits { max_running: Some(0), ..Limits::default() };
    queue.limit(&LimitScope::Endpoint { tenant: "acme".into(), endpoint: "shut".into() }, Some(&shut)).await.unwrap();
    queue.submit(all(vec![spec("shut"), spec("plain"), spec("plain")])).await.unwrap();
    queue.lease(query(1, 0)).await.unwrap().into_iter().for_each(|lease| leases.push(lease));
    queue.submit(vec![NewJob { run_after_ms: START_MS + 60_000, ..job("later") }]).await.unwrap();
    let first = job("first");
    let on = |job: JobId| vec![Dependency { job, on: DependencyOn::Completion }];
    let second = of(JobSpec { depends_on: on(first.id), ..spec("second") });
    queue.submit(vec![first, second]).await.unwrap();
    queue.release(&[held(&leases.remove(0))]).await.unwrap();
    let redis = raw(&server).await;
    Populated { queue, clock, redis, leases, _server: (server, dir) }
}

/// Runs one whole sweep. Returns the number of records that it read and its repairs.
async fn sweep(queue: &RedisQueue) -> (u32, BTreeMap<String, u32>) {
    let (mut looked, mut repairs, mut place) = (0, BTreeMap::new(), None);
    loop {
        let step = queue.recover(place.as_ref()).await.unwrap();
        looked += step.looked;
        for (kind, records) in step.repairs {
            *repairs.entry(kind).or_default() += records;
        }
        place = step.next;
        if place.is_none() {
            return (looked, repairs);
        }
    }
}

impl Populated {
    async fn keys(&mut self, pattern: &str) -> Vec<String> {
        let keys: Vec<String> = redis::cmd("KEYS").arg(pattern).query_async(&mut self.redis).await.unwrap();
        assert!(!keys.is_empty(), "nothing to break: no {pattern}");
        keys
    }

    async fn delete(&mut self, pattern: &str) {
        let keys = self.keys(pattern).await;
        let _: () = redis::cmd("DEL").arg(keys).query_async(&mut self.redis).await.unwrap();
    }

    /// Runs every job that can run to its end, as workers and loops would.
    async fn drain(&mut self) {
        self.queue.limit(&LimitScope::Endpoint { tenant: "acme".into(), endpoint: "shut".into() }, None).await.unwrap();
        let mut leases = std::mem::take(&mut self.leases);
        for _ in 0..20 {
            let reports: Vec<_> = leases.iter().map(succeed).collect();
            self.queue.finish(&reports).await.unwrap();
            for due in self.queue.due(1_000).await.unwrap() {
                match due {
                    Due::Ended(id) => while !self.queue.unblock(id).await.unwrap() {},
                    Due::Ready(id) => {
                        let revision = self.queue.get(id).await.unwrap().unwrap().revision;
                        let verdict = Verdict::Queue { input: None };
                        let settlement = Settlement { id, revision, steps: vec![], verdict };
                        self.queue.settle(&settlement).await.unwrap();
                    }
                }
            }
            self.clock.advance_ms(120_000);
            self.queue.reap().await.unwrap();
            self.queue.promote().await.unwrap();
            leases = self.queue.lease(query(10, 0)).await.unwrap();
        }
        let page = self.queue.list("acme", &ListFilter::default(), None, 100).await.unwrap();
        let open: Vec<_> = page.jobs.iter().filter(|job| !job.state.is_terminal()).collect();
        assert!(open.is_empty(), "{open:?}");
    }
}

#[tokio::test]
async fn a_healthy_queue_is_left_alone() {
    let mut all = populated().await;
    let (looked, repairs) = sweep(&all.queue).await;
    assert_eq!((looked, repairs), (13, BTreeMap::new()));
    all.drain().await;
    assert_eq!(sweep(&all.queue).await, (13, BTreeMap::new()));
}

#[tokio::test]
async fn whatever_is_lost_is_put_back() {
    // The deleted entries, and the repairs that the sweep reports for each.
    let losses: [(&str, &[(&str, u32)]); 12] = [
        ("*:q:*", &[("entry", 3)]),
        ("*:f:*", &[("entry", 1)]),
        ("*:lanes:*", &[("lane", 3)]),
        ("*:shelf:*", &[("shelf", 1)]),
        ("*:tags:*", &[("tag", 1)]),
        ("*:held:e:acme:shut", &[("lane", 1)]),
        ("*:waiting:*", &[("waiting", 1)]),
        ("*:leases", &[("lease", 3)]),
        ("*:scheduled", &[("scheduled", 2)]),
        ("*:deadlines", &[("deadline", 1)]),
        ("*:d:*", &[("blocked", 1)]),
        ("*:ended", &[("ended", 2)]),
    ];
    for (lost, said) in losses {
        let mut all = populated().await;
        all.delete(lost).await;
        let expected: BTreeMap<String, u32> =
            said.iter().map(|(kind, records)| ((*kind).to_owned(), *records)).collect();
        assert_eq!(sweep(&all.queue).await.1, expected, "{lost}");
        assert_eq!(sweep(&all.queue).await.1, BTreeMap::new(), "{lost}: once is enough");
        all.drain().await;
    }
}

#[tokio::test]
async fn a_job_without_a_queue_timeout_of_its_own_must_start_within_the_default() {
    const DEFAULT_MS: u64 = QUEUE_TIMEOUT_DEFAULT_S * 1_000;
    let (server, _dir) = server(&[]);
    let clock = ManualClock::new(START_MS);
    let queue = queue(&server, Clock::Manual(clock.clone())).await;
    let [waits, requeued, starts] = [job("waits"), job("requeued"), job("starts")];
    let ids = [waits.id, requeued.id, starts.id];
    for endpoint in ["waits", "bounded"] {
        let scope = LimitScope::Endpoint { tenant: "acme".into(), endpoint: endpoint.into() };
        queue.limit(&scope, Some(&Limits { max_running: Some(0), ..Limits::default() })).await.unwrap();
    }
    // The previous release has accepted these: the timeout counts from the first sweep.
    queue.submit(vec![waits, requeued]).await.unwrap();
    let leases = queue.lease(query(1, 0)).await.unwrap();
    queue.release(&[held(&leases[0])]).await.unwrap();
    queue.submit(vec![starts]).await.unwrap();
    clock.advance_ms(DEFAULT_MS);
    let expired = async || {
        assert_eq!(sweep(&queue).await.1, BTreeMap::new(), "it is no repair");
        queue.expire().await.unwrap().jobs
    };
    assert_eq!(expired().await, 0);

    let bounded = of(JobSpec { deadline_ms: Some(u64::MAX >> 12), ..spec("bounded") });
    let depends_on = vec![Dependency { job: bounded.id, on: DependencyOn::Completion }];
    let blocked = of(JobSpec { depends_on, ..spec("blocked") });
    let (bounded_id, blocked_id) = (bounded.id, blocked.id);
    queue.submit(vec![bounded, blocked]).await.unwrap();
    clock.advance_ms(DEFAULT_MS - 1);
    assert_eq!(expired().await, 0);
    clock.advance_ms(1);
    // One job starts between the sweep and `expire`.
    assert_eq!(sweep(&queue).await.1, BTreeMap::new());
    let leases = queue.lease(query(2, 0)).await.unwrap();
    assert_eq!(leases.len(), 2);
    assert_eq!(queue.expire().await.unwrap().jobs, 2);
    for (id, state) in [
        (ids[0], JobState::Expired),
        (blocked_id, JobState::Expired),
        (ids[1], JobState::Running),
        (ids[2], JobState::Running),
        (bounded_id, JobState::Queued),
    ] {
        let job = queue.get(id).await.unwrap().unwrap();
        assert_eq!((job.state, job.error.map(|error| error.code)), (state, error_of(state)), "{}", job.spec.endpoint);
    }
    assert_eq!(expired().await, 0);
}

fn error_of(state: JobState) -> Option<ErrorCode> {
    (state == JobState::Expired).then_some(ErrorCode::QueueTimeout)
}

/// Every script leaves the queue consistent: a concurrent sweep finds nothing to repair.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_found_while_work_goes_on() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|n| {
            let (queue, stop) = (queue.clone(), stop.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let first = of(JobSpec { deadline_ms: Some(u64::MAX >> 12), ..keyed(&format!("k{n}"), 1) });
                    let depends_on = vec![Dependency { job: first.id, on: DependencyOn::Success }];
                    let second = of(JobSpec { depends_on, ..spec("second") });
                    let id = first.id;
                    queue.submit(vec![first, second, of(keyed(&format!("k{n}"), 1)), job("echo")]).await.unwrap();
                    let leases = queue.lease(query(6, 0)).await.unwrap();
                    let (ends, goes_back) = leases.split_at(leases.len() / 2);
                    queue.release(&goes_back.iter().map(held).collect::<Vec<_>>()).await.unwrap();
                    queue.finish(&ends.iter().map(succeed).collect::<Vec<_>>()).await.unwrap();
                    for due in queue.due(60_000).await.unwrap() {
                        if let Due::Ended(id) = due {
                            while !queue.unblock(id).await.unwrap() {}
                        }
                    }
                    queue.cancel("acme", &[id]).await.unwrap();
                }
            })
        })
        .collect();
    let (mut looked, mut sweeps) = (0, 0);
    while looked < 5_000 || sweeps < 10 {
        let (records, repairs) = sweep(&queue).await;
        assert_eq!(repairs, BTreeMap::new());
        looked += records;
        sweeps += 1;
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
}

/// A step of the sweep is a bounded amount of work for Redis, however many records there are. It is counted in
/// commands, which do not vary on a busy machine.
#[tokio::test]
async fn a_step_is_a_bounded_number_of_commands() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    for _ in 0..10 {
        queue.submit((0..1_000).map(|_| job("echo")).collect()).await.unwrap();
    }
    let mut redis = raw(&server).await;
    let _: () = redis::cmd("CONFIG").arg("RESETSTAT").query_async(&mut redis).await.unwrap();
    assert_eq!(sweep(&queue).await, (10_000, BTreeMap::new()));
    let info: String = redis::cmd("INFO").arg("commandstats").query_async(&mut redis).await.unwrap();
    let calls: BTreeMap<&str, u64> = info
        .lines()
        .filter_map(|line| {
            let (command, stats) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((command, stats.split(',').next()?.parse().ok()?))
        })
        .collect();
    let steps = calls["evalsha"];
    let inside: u64 = calls.iter().filter(|(command, _)| **command != "evalsha").map(|(_, calls)| calls).sum();
    assert!(
        (200..=203).contains(&steps),
        "50 records a step, and one that finds no more; a first call loads the script: {calls:?}"
    );
    assert!(inside < steps * 200, "four commands for each of 50 records: {calls:?}");
}

/// Under `appendfsync everysec` a power cut may lose writes from before a rewrite of the append-only file and keep
/// later ones.
#[tokio::test]
async fn what_a_power_cut_has_left_of_a_record_is_read_or_is_no_job_and_goes() {
    let (server, _dir) = server(&[]);
    let queue = queue(&server, Clock::Own).await;
    let mut redis = raw(&server).await;
    queue.submit(vec![job("echo"), job("echo")]).await.unwrap();
    let leases = queue.lease(query(2, 0)).await.unwrap();
    queue.finish(&leases.iter().map(succeed).collect::<Vec<_>>()).await.unwrap();
    let key = async |lease: &Lease, redis: &mut MultiplexedConnection| -> String {
        let pattern = format!("*:j:{}", lease.job_id);
        let keys: Vec<String> = redis::cmd("KEYS").arg(pattern).query_async(redis).await.unwrap();
        keys[0].clone()
    };
    let (leaseless, submitless) = (key(&leases[0], &mut redis).await, key(&leases[1], &mut redis).await);
    let lost: (u32, u32) = redis::pipe()
        .hdel(&leaseless, &["fence", "attempt"])
        .hdel(&submitless, &["lane", "spec", "input", "ix"])
        .query_async(&mut redis)
        .await
        .unwrap();
    assert_eq!(lost, (2, 4));

    let first = queue.get(leases[0].job_id).await.unwrap().unwrap();
    assert_eq!((first.state, first.result.is_some()), (JobState::Succeeded, true));
    let second = leases[1].job_id;
    assert!(queue.get(second).await.unwrap().is_none());
    assert_eq!(queue.finish(&[succeed(&leases[1])]).await.unwrap(), [FinishAnswer::NotFound]);
    assert_eq!(queue.cancel("acme", &[second]).await.unwrap(), [CancelAnswer::NotFound]);
    queue.history().forget(&[second]).await.unwrap();
    let left: bool = redis::cmd("EXISTS").arg(&submitless).query_async(&mut redis).await.unwrap();
    assert!(!left);
}
