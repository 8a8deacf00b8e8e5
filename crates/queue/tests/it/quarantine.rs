//! Records that cannot be read: each blocks only itself, and waits where an operator sees it.

use redis::aio::MultiplexedConnection;
use stokehold_queue::gateway::{ExtendAnswer, FinishAnswer};
use stokehold_queue::job::{ErrorCode, Hook, HookEvent, JobSpec, JobState, NewJob};
use stokehold_queue::quarantine::{Discarded, Quarantined, Readmitted};
use stokehold_queue::queue::{CancelAnswer, Lease, LeaseQuery, LimitScope, Limits, ListFilter, Usage};
use stokehold_queue::{Clock, JobId, ManualClock, Queue, RedisQueue};
use stokehold_tests::redis_server::RedisServer;
use tempfile::TempDir;

use crate::conformance::{LEASE_MS, START_MS, fail, held, job, keyed, of, query, spec, succeed};
use crate::redis::{queue, raw, server};

struct Fixture {
    queue: RedisQueue,
    clock: ManualClock,
    redis: MultiplexedConnection,
    _server: (RedisServer, TempDir),
}

async fn fixture() -> Fixture {
    let (server, dir) = server(&[]);
    let clock = ManualClock::new(START_MS);
    let queue = queue(&server, Clock::Manual(clock.clone())).await;
    let redis = raw(&server).await;
    Fixture { queue, clock, redis, _server: (server, dir) }
}

impl Fixture {
    async fn key(&mut self, pattern: &str) -> String {
        let keys: Vec<String> = redis::cmd("KEYS").arg(pattern).query_async(&mut self.redis).await.unwrap();
        assert_eq!(keys.len(), 1, "{pattern}");
        keys[0].clone()
    }

    async fn set(&mut self, id: JobId, field: &str, value: &str) {
        let key = self.key(&format!("*:j:{id}")).await;
        let _: u32 = redis::cmd("HSET").arg(key).arg(field).arg(value).query_async(&mut self.redis).await.unwrap();
    }

    /// Replaces a job's hash with a string.
    async fn ruin(&mut self, id: JobId) {
        let key = self.key(&format!("*:j:{id}")).await;
        let _: () = redis::cmd("SET").arg(key).arg("text").query_async(&mut self.redis).await.unwrap();
    }

    async fn submit(&self, jobs: impl IntoIterator<Item = NewJob>) -> Vec<JobId> {
        let jobs = self.queue.submit(jobs.into_iter().collect()).await.unwrap();
        jobs.into_iter().map(|job| job.id()).collect()
    }

    async fn lease(&self, want: u32) -> Vec<Lease> {
        self.queue.lease(query(want, 0)).await.unwrap()
    }

    async fn usage(&self) -> Usage {
        self.queue.usage(&LimitScope::Tenant("acme".into())).await.unwrap().1
    }

    async fn quarantined(&self) -> Vec<Quarantined> {
        let jobs = self.queue.quarantine().list(100).await.unwrap();
        assert_eq!(jobs.len() as u64, self.queue.quarantine().count().await.unwrap());
        jobs
    }

    async fn ready(&self) -> u64 {
        self.queue.depth().await.unwrap().iter().map(|lane| lane.jobs).sum()
    }

    /// Runs two sweeps in a row, the number that it takes to rewrite a count. Returns the repairs of the second one.
    async fn repairs(&self) -> Vec<(String, u32)> {
        let mut repairs = Vec::new();
        for _ in 0..2 {
            let mut place = None;
            repairs.clear();
            loop {
                let step = self.queue.recover(place.as_ref()).await.unwrap();
                repairs.extend(step.repairs);
                place = step.next;
                if place.is_none() {
                    break;
                }
            }
        }
        repairs
    }

    /// Checks that nothing is left over: no count, no index entry, no drift between the two.
    async fn is_whole(&mut self) {
        assert_eq!(self.repairs().await, []);
        let drifts: Vec<String> = redis::cmd("KEYS").arg("*:drift").query_async(&mut self.redis).await.unwrap();
        assert!(drifts.is_empty(), "{drifts:?}");
        assert_eq!(self.queue.quarantine().faults().await.unwrap(), Default::default());
    }
}

#[tokio::test]
async fn the_reaper_goes_on_behind_a_running_record_that_it_cannot_read() {
    for broken in ["", "w1", "w1 soon 0 0"] {
        let mut all = fixture().await;
        let ids = all.submit((0..5).map(|_| job("echo"))).await;
        let leases = all.lease(5).await;
        assert_eq!(leases.len(), 5);
        all.set(ids[2], "run", broken).await;
        all.clock.advance_ms(LEASE_MS + 1);
        assert_eq!(all.queue.reap().await.unwrap().jobs, 4, "{broken:?}");
        assert_eq!(all.queue.reap().await.unwrap().jobs, 0);
        assert_eq!(all.usage().await, Usage { open: 4, running: 0 });
        assert_eq!(all.ready().await, 4);

        let found = all.quarantined().await;
        let [bad] = &found[..] else { panic!("{found:?}") };
        assert_eq!((bad.id, bad.since_ms, bad.state), (ids[2], START_MS + LEASE_MS + 1, Some(JobState::Running)));
        assert_eq!((bad.tenant.as_deref(), bad.endpoint.as_deref()), (Some("acme"), Some("echo")));
        assert_eq!(bad.why, "the field \"run\" cannot be read");

        // The owner sees the job and cannot move it; the worker that ran it has lost the lease.
        assert_eq!(all.queue.get(ids[2]).await.unwrap().unwrap().state, JobState::Blocked);
        assert_eq!(all.queue.list("acme", &ListFilter::default(), None, 100).await.unwrap().jobs.len(), 5);
        assert_eq!(all.queue.extend(&[held(&leases[2])]).await.unwrap(), [ExtendAnswer::Lost]);
        assert_eq!(all.queue.finish(&[succeed(&leases[2])]).await.unwrap(), [FinishAnswer::NotFound]);
        assert_eq!(all.queue.cancel("acme", &[ids[2]]).await.unwrap(), [CancelAnswer::Quarantined]);
        assert_eq!(all.queue.cancel("zoo", &[ids[2]]).await.unwrap(), [CancelAnswer::NotFound]);
        all.is_whole().await;

        // Only `run` was damaged, and a queued job has no `run`.
        let quarantine = all.queue.quarantine();
        assert_eq!(quarantine.readmit(ids[2]).await.unwrap(), Readmitted::Ok(JobState::Queued));
        assert_eq!(quarantine.readmit(ids[2]).await.unwrap(), Readmitted::NotFound);
        assert_eq!(all.usage().await, Usage { open: 5, running: 0 });
        all.is_whole().await;
        let again = all.lease(5).await;
        assert_eq!(again.len(), 5);
        all.queue.finish(&again.iter().map(succeed).collect::<Vec<_>>()).await.unwrap();
        assert_eq!(all.usage().await, Usage { open: 0, running: 0 });
        all.is_whole().await;
    }
}

#[tokio::test]
async fn a_cancel_of_many_ends_all_that_can_be_read() {
    let mut all = fixture().await;
    let ids = all.submit([of(keyed("k", 2)), of(keyed("k", 2)), of(keyed("k", 2))]).await;
    all.set(ids[1], "ckey", "no number").await;
    let answers = all.queue.cancel("acme", &ids).await.unwrap();
    assert_eq!(answers, [CancelAnswer::Cancelled, CancelAnswer::Quarantined, CancelAnswer::Cancelled]);
    assert_eq!(all.usage().await, Usage { open: 0, running: 0 });
    assert_eq!(all.ready().await, 0);
    assert_eq!(all.quarantined().await.len(), 1);
    all.is_whole().await;

    assert_eq!(
        all.queue.quarantine().readmit(ids[1]).await.unwrap(),
        Readmitted::Unreadable("the field \"ckey\" cannot be read".into())
    );
    assert_eq!((all.usage().await.open, all.ready().await), (0, 0));
    assert_eq!(all.queue.quarantine().discard(ids[1]).await.unwrap(), Discarded::Failed);
    let ended = all.queue.get(ids[1]).await.unwrap().unwrap();
    assert_eq!((ended.state, ended.error.unwrap().code), (JobState::Failed, ErrorCode::Infra));
    assert_eq!(all.quarantined().await, []);
    all.is_whole().await;
}

#[tokio::test]
async fn promote_and_expire_go_on_behind_a_record_that_they_cannot_read() {
    let mut all = fixture().await;
    let later = || NewJob { run_after_ms: START_MS + 10, ..job("echo") };
    let due = || of(JobSpec { deadline_ms: Some(START_MS + 20), ..spec("echo") });
    let ids = all.submit([later(), later(), later(), due(), due(), due()]).await;
    all.set(ids[0], "lane", "nowhere").await;
    all.set(ids[3], "fence", "none").await;
    all.clock.advance_ms(10);
    assert_eq!(all.queue.promote().await.unwrap().jobs, 2);
    all.clock.advance_ms(10);
    assert_eq!(all.queue.expire().await.unwrap().jobs, 2);
    let found = all.quarantined().await;
    assert_eq!(found.iter().map(|job| job.id).collect::<Vec<_>>(), [ids[0], ids[3]]);
    assert_eq!(found[0].tenant, None);
    // The first job's lane no longer shows which counts included it: two sweeps recount them.
    assert!(all.repairs().await.iter().any(|(kind, _)| kind == "open"));
    all.is_whole().await;
    assert_eq!(all.usage().await, Usage { open: 2, running: 0 });
    assert_eq!(all.queue.quarantine().discard(ids[0]).await.unwrap(), Discarded::Deleted);
    assert_eq!(all.queue.quarantine().discard(ids[3]).await.unwrap(), Discarded::Failed);
    assert!(all.queue.get(ids[0]).await.unwrap().is_none());
    // It does not show whose bytes its record was either.
    assert!(all.repairs().await.iter().any(|(kind, _)| kind == "bytes"));
    all.is_whole().await;
}

#[tokio::test]
async fn a_report_of_one_that_cannot_be_read_keeps_no_other_from_its_end() {
    let mut all = fixture().await;
    let ids = all.submit((0..4).map(|_| job("echo"))).await;
    let leases = all.lease(4).await;
    all.set(ids[0], "spec", "{").await;
    all.set(ids[2], "run", "w1").await;
    let reports = [fail(&leases[0], ErrorCode::HandlerError), succeed(&leases[1])];
    assert_eq!(all.queue.finish(&reports).await.unwrap(), [FinishAnswer::StaleFence, FinishAnswer::Ok]);
    let released = all.queue.release(&[held(&leases[2]), held(&leases[3])]).await.unwrap();
    assert_eq!(released, [FinishAnswer::StaleFence, FinishAnswer::Ok]);
    assert_eq!(all.usage().await, Usage { open: 1, running: 0 });
    assert_eq!(all.quarantined().await.len(), 2);
    all.is_whole().await;
}

#[tokio::test]
async fn a_lease_goes_on_behind_a_record_that_cannot_be_read() {
    for (field, value) in [("spec", "{"), ("input", "nothing"), ("ckey", "none"), ("deadline", "soon")] {
        let mut all = fixture().await;
        let specs = (0..3).map(|_| of(JobSpec { deadline_ms: Some(START_MS + 90_000), ..keyed("k", 3) }));
        let ids = all.submit(specs).await;
        all.set(ids[1], field, value).await;
        let leased: Vec<JobId> = all.lease(3).await.iter().map(|lease| lease.job_id).collect();
        assert_eq!(leased, [ids[0], ids[2]], "{field}");
        assert_eq!(all.usage().await, Usage { open: 2, running: 2 }, "{field}");
        let found = all.quarantined().await;
        assert!(found.len() == 1 && found[0].id == ids[1], "{field}: {found:?}");
        assert_eq!(all.ready().await, 0, "{field}");
        all.is_whole().await;
    }
}

#[tokio::test]
async fn what_is_no_record_at_all_stops_nobody() {
    let mut all = fixture().await;
    let ids = all.submit((0..3).map(|_| job("echo"))).await;
    let leases = all.lease(3).await;
    let key = all.key(&format!("*:j:{}", ids[1])).await;
    let _: () = redis::pipe().del(&key).ignore().set(&key, "text").ignore().query_async(&mut all.redis).await.unwrap();
    let extended = all.queue.extend(&leases.iter().map(held).collect::<Vec<_>>()).await.unwrap();
    assert_eq!(extended, [ExtendAnswer::Held, ExtendAnswer::Lost, ExtendAnswer::Held]);
    all.clock.advance_ms(LEASE_MS + 1);
    assert_eq!(all.queue.reap().await.unwrap().jobs, 2);
    let found = all.quarantined().await;
    assert!(found.len() == 1 && found[0].why.contains("WRONGTYPE"), "{found:?}");
    assert_eq!(all.queue.quarantine().discard(ids[1]).await.unwrap(), Discarded::Deleted);
    assert_eq!(all.quarantined().await, []);
    // The counts that included the job cannot be known: two sweeps recount them.
    all.repairs().await;
    all.repairs().await;
    assert_eq!(all.usage().await, Usage { open: 2, running: 0 });
    all.is_whole().await;
}

/// A release that adds a word to a field runs beside this one for a while, or before it.
#[tokio::test]
async fn fields_may_grow_by_words_that_this_release_does_not_know() {
    let mut all = fixture().await;
    let ids = all.submit((0..6).map(|_| job("echo"))).await;
    let leases = all.lease(6).await;
    for id in &ids {
        let key = all.key(&format!("*:j:{id}")).await;
        let run: String = redis::cmd("HGET").arg(key).arg("run").query_async(&mut all.redis).await.unwrap();
        assert_eq!(run.split(' ').count(), 4, "the release before reads no job of more: {run}");
        all.set(*id, "run", &format!("{run} new 5")).await;
    }
    let running = all.queue.get(ids[0]).await.unwrap().unwrap();
    assert_eq!(running.attempts[0].worker_id, "w1");
    assert_eq!(all.queue.running().await.unwrap().len(), 6);
    let reports = [succeed(&leases[0]), fail(&leases[1], ErrorCode::HandlerError)];
    assert_eq!(all.queue.finish(&reports).await.unwrap(), [FinishAnswer::Ok, FinishAnswer::Ok]);
    assert_eq!(all.queue.release(&[held(&leases[2])]).await.unwrap(), [FinishAnswer::Ok]);
    assert_eq!(all.queue.cancel("acme", &[ids[3]]).await.unwrap(), [CancelAnswer::Cancelled]);
    all.clock.advance_ms(LEASE_MS + 1);
    assert_eq!(all.queue.reap().await.unwrap().jobs, 2);
    for id in &ids {
        let job = all.queue.get(*id).await.unwrap().unwrap();
        assert_eq!(job.attempts.len(), 1);
        let key = all.key(&format!("*:j:{id}")).await;
        let entry: String = redis::cmd("HGET").arg(key).arg("h1").query_async(&mut all.redis).await.unwrap();
        let grown = match entry.rsplit_once(' ').unwrap() {
            _ if entry.contains('{') => format!("{entry} new"),
            (_, "") => entry,
            _ => format!("{entry},0,0,9"),
        };
        all.set(*id, "h1", &grown).await;
        assert_eq!(all.queue.get(*id).await.unwrap().unwrap().attempts, job.attempts);
    }
    assert_eq!(all.quarantined().await, []);
    all.is_whole().await;
}

#[tokio::test]
async fn counts_that_leaked_are_counted_anew_by_the_second_sweep() {
    let mut all = fixture().await;
    let ids = all.submit((0..120).map(|_| job("echo"))).await;
    all.submit([of(keyed("k", 1)), of(keyed("k", 1))]).await;
    let leases = all.lease(10).await;
    all.queue.finish(&leases[..2].iter().map(succeed).collect::<Vec<_>>()).await.unwrap();
    let root = all.key("*:leases").await.replace(":leases", "");
    let lane = all.queue.depth().await.unwrap()[0].lane.clone();
    for (hash, field, by) in
        [("running", "t:acme", 5), ("open", "e:acme:echo", -3), ("ready", &*lane, 7), ("running", "k:acme:gone", 1)]
    {
        let _: i64 = redis::cmd("HINCRBY")
            .arg(format!("{root}:{hash}"))
            .arg(field)
            .arg(by)
            .query_async(&mut all.redis)
            .await
            .unwrap();
    }
    // While a sweep is in progress everything continues, and what it has read may change.
    let mut place = all.queue.recover(None).await.unwrap().next;
    all.queue.finish(&leases[2..4].iter().map(succeed).collect::<Vec<_>>()).await.unwrap();
    all.queue.cancel("acme", &[ids[50], ids[119]]).await.unwrap();
    all.submit([job("echo"), job("later")]).await;
    all.queue.release(&[held(&leases[5])]).await.unwrap();
    all.lease(3).await;
    while place.is_some() {
        let step = all.queue.recover(place.as_ref()).await.unwrap();
        assert_eq!(step.repairs, []);
        place = step.next;
    }
    assert_eq!(all.usage().await.running, 5 + 10 - 4 - 1 + 3);
    let mut repairs = all.repairs().await;
    assert_eq!(repairs, [], "the first of these two has put everything right");
    repairs = all.repairs().await;
    assert_eq!(repairs, []);
    assert_eq!(all.usage().await, Usage { open: 120 + 2 - 4 - 2 + 2, running: 8 });
    assert_eq!(all.ready().await, 120 + 2 - 4 - 2 + 2 - 8);
    all.is_whole().await;
}

#[tokio::test]
async fn a_job_goes_on_behind_one_of_the_same_key_that_cannot_be_read() {
    let mut all = fixture().await;
    let of_key = |endpoint: &str| JobSpec { concurrency: keyed("k", 1).concurrency, ..spec(endpoint) };
    // The lane of the first and the last job is damaged first. The job before the last has the key before it, in
    // another lane.
    let ids = all.submit([job("echo"), of(of_key("other")), of(of_key("echo"))]).await;
    all.set(ids[1], "start_by", "soon").await;
    let leased: Vec<JobId> = all.lease(3).await.iter().map(|lease| lease.job_id).collect();
    assert_eq!(leased, [ids[0], ids[2]]);
    assert_eq!(all.quarantined().await.iter().map(|job| job.id).collect::<Vec<_>>(), [ids[1]]);
    assert_eq!(all.usage().await, Usage { open: 2, running: 2 });
    all.is_whole().await;
}

#[tokio::test]
async fn numbers_that_are_none_stop_no_lease() {
    let mut all = fixture().await;
    let limits = Limits { max_running: Some(5), starts_per_minute: Some(600), ..Limits::default() };
    all.queue.limit(&LimitScope::Tenant("acme".into()), Some(&limits)).await.unwrap();
    all.submit((0..3).map(|_| job("echo"))).await;
    assert_eq!(all.lease(1).await.len(), 1);
    let root = all.key("*:leases").await.replace(":leases", "");
    let numbers = [("running", "t:acme"), ("running", "e:acme:echo"), ("rate", "t:acme"), ("cost", "acme:echo")];
    for (hash, field) in numbers.into_iter().chain([("passed", "1"), ("fair:1:0", ":now"), ("ready", "1:0:acme:echo")])
    {
        let key = format!("{root}:{hash}");
        let _: u32 = redis::cmd("HSET").arg(key).arg(field).arg("many").query_async(&mut all.redis).await.unwrap();
    }
    let leases = all.lease(2).await;
    assert_eq!(leases.len(), 2);
    all.queue.finish(&leases.iter().map(succeed).collect::<Vec<_>>()).await.unwrap();
    assert_eq!(all.quarantined().await, []);
}

#[tokio::test]
async fn what_a_worker_holds_is_counted_and_handed_back_beside_what_cannot_be_read() {
    let mut all = fixture().await;
    let ids = all.submit((0..4).map(|_| job("echo"))).await;
    let bounded = |want| LeaseQuery { slots: Some(2), ..query(want, 0) };
    let worker = bounded(1).worker_id;
    let leases = all.queue.lease(bounded(2)).await.unwrap();
    assert_eq!(leases.len(), 2);
    let root = all.key("*:leases").await.replace(":leases", "");
    let runs = format!("{root}:runs:{worker}");
    let _: u32 = redis::cmd("HSET").arg(runs).arg("odd").arg("many").query_async(&mut all.redis).await.unwrap();
    assert_eq!(all.queue.lease(bounded(1)).await.unwrap().len(), 1);
    all.ruin(ids[0]).await;
    assert_eq!(all.queue.evict(&worker).await.unwrap(), 2, "the two that can be read");
    assert_eq!(all.lease(10).await.len(), 3);
}

#[tokio::test]
async fn an_entry_that_is_no_job_stops_neither_a_lease_nor_the_recovery() {
    let mut all = fixture().await;
    all.submit([job("echo")]).await;
    let lane = all.key("*:q:1:0:acme:echo").await;
    let index = all.key("*:index:acme").await;
    for (stream, name, value) in [(&lane, "j", "short"), (&lane, "x", "y"), (&index, "j", "short")] {
        let _: String =
            redis::cmd("XADD").arg(stream).arg("*").arg(name).arg(value).query_async(&mut all.redis).await.unwrap();
    }
    all.submit([job("echo")]).await;
    assert_eq!(all.lease(10).await.len(), 2);
    all.is_whole().await;
    assert_eq!(all.queue.list("acme", &ListFilter::default(), None, 10).await.unwrap().jobs.len(), 2);
}

#[tokio::test]
async fn a_hook_that_cannot_be_read_is_found_before_anything_is_changed() {
    let mut all = fixture().await;
    let hook = Hook { url: "https://example.org/".into(), events: vec![HookEvent::JobCompleted] };
    let ids = all.submit((0..2).map(|_| of(JobSpec { hook: Some(hook.clone()), ..spec("echo") }))).await;
    let leases = all.lease(2).await;
    all.set(ids[0], "hook", "nowhere").await;
    let ended = all.queue.finish(&leases.iter().map(succeed).collect::<Vec<_>>()).await.unwrap();
    assert_eq!(ended, [FinishAnswer::StaleFence, FinishAnswer::Ok]);
    assert_eq!(all.quarantined().await[0].why, "the field \"hook\" cannot be read");
    let unreadable = Readmitted::Unreadable("the field \"hook\" cannot be read".into());
    assert_eq!(all.queue.quarantine().readmit(ids[0]).await.unwrap(), unreadable);
    all.is_whole().await;
}

#[tokio::test]
async fn a_job_that_could_not_be_ended_is_open_again_once_it_is_put_back() {
    let mut all = fixture().await;
    let ids = all.submit([of(JobSpec { max_attempts: 1, ..spec("echo") })]).await;
    let leases = all.lease(1).await;
    let dead = all.key("*:leases").await.replace(":leases", ":dead:acme");
    let _: () = redis::cmd("SET").arg(&dead).arg("text").query_async(&mut all.redis).await.unwrap();
    let ended = all.queue.finish(&[fail(&leases[0], ErrorCode::HandlerError)]).await.unwrap();
    assert_eq!(ended, [FinishAnswer::StaleFence]);
    let _: u32 = redis::cmd("DEL").arg(&dead).query_async(&mut all.redis).await.unwrap();
    assert_eq!(all.queue.quarantine().readmit(ids[0]).await.unwrap(), Readmitted::Ok(JobState::Queued));
    let back = all.queue.get(ids[0]).await.unwrap().unwrap();
    assert_eq!((back.state, back.ended_ms, back.error), (JobState::Queued, None, None));
    all.is_whole().await;
    assert_eq!(all.lease(1).await.len(), 1);
}

#[tokio::test]
async fn what_is_asked_of_many_is_answered_for_those_that_can_be_read() {
    let mut all = fixture().await;
    let ids = all.submit((0..3).map(|_| job("echo"))).await;
    let leases = all.lease(3).await;
    all.ruin(ids[0]).await;
    all.set(ids[1], "spec", "{").await;
    all.clock.advance_ms(10);
    let named: Vec<_> = leases.iter().map(held).collect();
    let holdings = all.queue.holdings(&named).await.unwrap();
    let held_ms: Vec<_> = holdings.iter().map(|holding| holding.as_ref().map(|holding| holding.held_ms)).collect();
    assert_eq!(held_ms, [None, Some(10), Some(10)]);
    let failed = ListFilter { state: Some(JobState::Running), ..ListFilter::default() };
    for filter in [ListFilter::default(), failed] {
        let listed = all.queue.list("acme", &filter, None, 10).await.unwrap().jobs;
        assert_eq!(listed.iter().map(|job| job.id).collect::<Vec<_>>(), [ids[2]]);
    }
    assert_eq!(all.queue.running().await.unwrap().len(), 2);

    // Their leases are lost, and they wait for an operator.
    assert!(all.queue.held(&named[0]).await.unwrap().is_none());
    assert!(all.queue.held(&named[1]).await.unwrap().is_none());
    assert_eq!(all.queue.held(&named[2]).await.unwrap().unwrap().1, 1);
    let mut found: Vec<JobId> = all.quarantined().await.iter().map(|job| job.id).collect();
    found.sort();
    assert_eq!(found, ids[..2]);
    assert_eq!(all.queue.extend(&named).await.unwrap(), [ExtendAnswer::Lost, ExtendAnswer::Lost, ExtendAnswer::Held]);
}

#[tokio::test]
async fn an_ended_record_that_is_none_keeps_no_other_from_the_archive() {
    let mut all = fixture().await;
    let ids = all.submit((0..3).map(|_| job("echo"))).await;
    all.queue.cancel("acme", &ids).await.unwrap();
    all.ruin(ids[1]).await;
    all.clock.advance_ms(1 << 40);
    let due = all.queue.history().due(100).await.unwrap();
    assert_eq!(due.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [ids[0], ids[2]]);
    assert_eq!(due.corrupt.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [ids[1]]);
}
