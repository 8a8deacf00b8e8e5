//! The load: several concurrent clients. For half of the time the queue is nearly empty, because a deep backlog hides
//! faults: a job that is lost or duplicated among thousands of waiting ones goes unnoticed.

mod call;

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

pub(crate) use call::{Answer, Body, Caller, TRIES};

use crate::cluster::{Cluster, Tenant};
use crate::history::{Event, Journal, Kind};
use crate::plan::Plan;
use crate::sink::Sink;

/// Stretches of the load, alternating between a nearly empty and a deep queue.
const STRETCHES: u32 = 8;

/// Fractions of the jobs.
const SINGLE: f64 = 0.40;
const BULK: f64 = 0.35;

/// Jobs of a bulk submit, lines of a batch, and the number of each per 10,000 jobs.
const BULK_CALLS: u64 = 40;
const BATCHES: u64 = 8;

/// Upper bounds of long jobs: this many per second, and this fraction of the single jobs.
const LONG_PER_S: f64 = 3.0;
const LONG_MAX: f64 = 0.04;

const SINGLE_CLIENTS: u64 = 4;
const RECENT_MAX: usize = 400;
const READ_EVERY: Duration = Duration::from_millis(25);
const WAIT_EVERY: Duration = Duration::from_millis(200);
const CANCEL_EVERY: Duration = Duration::from_millis(120);
const STEADY_EVERY: Duration = Duration::from_millis(150);
const CROSS_EVERY: Duration = Duration::from_millis(250);
const LINES_PER_PAGE: usize = 100;
const LINES_PAGES: usize = 4;
const LOOK_FIRST: Duration = Duration::from_millis(20);
const LOOK_STEP: Duration = Duration::from_millis(5);
const LOOK_LAST: Duration = Duration::from_millis(500);

/// Recently acknowledged ids, for clients that read and cancel.
#[derive(Clone, Default)]
struct Recent(Arc<Mutex<VecDeque<String>>>);

impl Recent {
    fn add(&self, ids: &[String]) {
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        recent.extend(ids.iter().cloned());
        let over = recent.len().saturating_sub(RECENT_MAX);
        recent.drain(..over);
    }

    /// Picks one of the newest `of` ids.
    fn pick(&self, rng: &mut StdRng, of: usize) -> Option<String> {
        let recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let from = recent.len().saturating_sub(of);
        (from < recent.len()).then(|| recent[rng.random_range(from..recent.len())].clone())
    }
}

/// All clients.
pub(crate) struct Load {
    plan: Plan,
    url: String,
    tenants: Vec<Tenant>,
    hooks: Vec<String>,
    journal: Arc<Journal>,
    recent: Recent,
    http: reqwest::Client,
    /// Opens a connection for each call.
    unpooled: reqwest::Client,
}

impl Load {
    pub(crate) fn new(plan: &Plan, cluster: &Cluster, sink: &Sink, journal: Arc<Journal>) -> anyhow::Result<Self> {
        Ok(Self {
            plan: plan.clone(),
            url: cluster.url(),
            tenants: cluster.tenants.clone(),
            hooks: cluster.tenants.iter().map(|tenant| sink.url(tenant.name)).collect(),
            journal,
            recent: Recent::default(),
            http: reqwest::Client::builder().build()?,
            unpooled: reqwest::Client::builder().pool_max_idle_per_host(0).build()?,
        })
    }

    fn caller(&self, name: &str, tenant: usize) -> Caller {
        Caller {
            name: name.to_owned(),
            tenant: self.tenants[tenant].name,
            token: self.tenants[tenant].token.clone(),
            url: self.url.clone(),
            http: self.http.clone(),
            journal: Arc::clone(&self.journal),
        }
    }

    fn rng(&self, salt: u64) -> StdRng {
        StdRng::seed_from_u64(self.plan.seed ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Submits all of the plan's jobs, and reads and cancels meanwhile. Returns when the last submit's outcome is known
    /// and the sender of `faults` is dropped, with the tasks that still poll batches: most lines end while the queue drains.
    pub(crate) async fn run(self, faults: oneshot::Receiver<()>) -> JoinSet<()> {
        let load = Arc::new(self);
        let start = Instant::now();
        let mut onlookers = JoinSet::new();
        onlookers.spawn(Arc::clone(&load).read());
        onlookers.spawn(Arc::clone(&load).wait());
        onlookers.spawn(Arc::clone(&load).cancel());
        onlookers.spawn(Arc::clone(&load).cross());
        let mut submitting = JoinSet::new();
        for n in 0..SINGLE_CLIENTS {
            submitting.spawn(Arc::clone(&load).singles(n, start));
        }
        submitting.spawn(Arc::clone(&load).bulks(start));
        submitting.spawn(Arc::clone(&load).steady(faults));
        let looking = Arc::clone(&load).batches(start).await;
        while submitting.join_next().await.is_some() {}
        onlookers.shutdown().await;
        looking
    }

    /// The time at which `part` (0 to 1) of the load of the even (shallow) or odd (deep) stretches is due.
    fn due(&self, start: Instant, part: f64, deep: bool) -> Instant {
        start + self.plan.duration.mul_f64(place(part, deep))
    }

    /// Submits one job after the other, each at its time.
    async fn singles(self: Arc<Self>, n: u64, start: Instant) {
        let tenant = usize::from(n == SINGLE_CLIENTS - 1);
        let (caller, mut rng) = (self.caller(&format!("client-{n}"), tenant), self.rng(n + 1));
        let jobs = part_of(self.plan.jobs, SINGLE).div_ceil(SINGLE_CLIENTS);
        let mut under_way = JoinSet::new();
        for k in 0..jobs {
            #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 jobs")]
            let due = self.due(start, k as f64 / jobs as f64, false);
            sleep_until(due).await;
            let key = format!("c{n}-{k}");
            let body = self.job(&mut rng, &format!("{key}#0"), tenant, false);
            let (caller, recent, again) = (caller.clone(), self.recent.clone(), rng.random_bool(0.02));
            under_way.spawn(async move {
                let Some(ids) = caller.submit("submit", "/v1/jobs", &key, 1, Body::Json(body.clone())).await else {
                    return;
                };
                if caller.tenant == "default" {
                    recent.add(&ids);
                }
                if again {
                    // Repeats the submit long after its acknowledgement, as a client that has forgotten it.
                    sleep(Duration::from_secs(2)).await;
                    caller.submit("submit", "/v1/jobs", &key, 1, Body::Json(body)).await;
                }
            });
            while under_way.try_join_next().is_some() {}
        }
        while under_way.join_next().await.is_some() {}
    }

    /// Submits a few jobs per second in addition to the plan's, until the sender of `faults` is dropped: a process reaches
    /// its failpoint only while it is called, and a reply can be dropped only if there is one. Each call has a connection of its own,
    /// so the replicas get them in turn; clients with pooled connections may all use the same replica.
    async fn steady(self: Arc<Self>, mut faults: oneshot::Receiver<()>) {
        let caller = Caller { http: self.unpooled.clone(), ..self.caller("client-steady", 0) };
        let mut rng = self.rng(700);
        let mut jobs = 0_u64;
        while timeout(STEADY_EVERY, &mut faults).await.is_err() {
            let key = format!("steady-{jobs}");
            let job = Body::Json(self.job(&mut rng, &format!("{key}#0"), 0, false));
            if let Some(ids) = caller.submit("submit", "/v1/jobs", &key, 1, job).await {
                self.recent.add(&ids);
            }
            jobs += 1;
        }
    }

    /// Submits many jobs in one call, as fast as they are accepted, at the beginning of each deep stretch.
    async fn bulks(self: Arc<Self>, start: Instant) {
        let (caller, mut rng) = (self.caller("client-bulk", 0), self.rng(100));
        let calls = (BULK_CALLS * self.plan.jobs / 10_000).clamp(8, 400);
        let size = part_of(self.plan.jobs, BULK).div_ceil(calls);
        for k in 0..calls {
            // In quarters: the calls of one stretch follow each other at once.
            let quarter = k * u64::from(STRETCHES / 2) / calls;
            sleep_until(self.due(start, quarter as f64 / f64::from(STRETCHES / 2), true)).await;
            let key = format!("bulk-{k}");
            let jobs: Vec<Value> = (0..size).map(|n| self.job(&mut rng, &format!("{key}#{n}"), 0, true)).collect();
            let body = Body::Json(json!({"jobs": jobs}));
            if let Some(ids) = caller.submit("submit", "/v1/jobs/bulk", &key, size, body).await {
                self.recent.add(&ids[ids.len().saturating_sub(10)..]);
            }
        }
    }

    /// Submits batches, alternating between those with and without a webhook. Returns the tasks that poll them until
    /// they end.
    async fn batches(self: Arc<Self>, start: Instant) -> JoinSet<()> {
        let (caller, mut rng) = (self.caller("client-batch", 0), self.rng(200));
        let batches = (BATCHES * self.plan.jobs / 10_000).clamp(2, 40);
        let rest = self.plan.jobs - part_of(self.plan.jobs, SINGLE) - part_of(self.plan.jobs, BULK);
        let size = rest.div_ceil(batches);
        let mut looking = JoinSet::new();
        for k in 0..batches {
            #[expect(clippy::cast_precision_loss, reason = "a few batches")]
            let due = self.due(start, k as f64 / batches as f64, true);
            sleep_until(due).await;
            let key = format!("batch-{k}");
            let lines: String = (0..size)
                .map(|n| {
                    let tag = format!("{key}#{n}");
                    let line = json!({"custom_id": tag, "input": input(&mut rng, &tag, true, 0.0)});
                    format!("{line}\n")
                })
                .collect();
            let hook = if k % 2 == 0 { format!("&webhook={}", escaped(&self.hooks[0])) } else { String::new() };
            let path = format!("/v1/batches?endpoint=chaos{hook}");
            if let Some(ids) = caller.submit("batch_submit", &path, &key, size, Body::Lines(lines)).await {
                looking.spawn(look(caller.clone(), ids.into_iter().next().unwrap_or_default()));
            }
        }
        looking
    }

    /// The fraction of the single jobs that take long: about as many as a few slots can hold.
    fn long(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 jobs")]
        let per_s = self.plan.jobs as f64 * SINGLE / (self.plan.duration.as_secs_f64() / 2.0);
        (LONG_PER_S / per_s).min(LONG_MAX)
    }

    fn job(&self, rng: &mut StdRng, tag: &str, tenant: usize, deep: bool) -> Value {
        let mut job = json!({"endpoint": "chaos", "input": input(rng, tag, deep, self.long())});
        match rng.random_range(0..100) {
            0..8 => job["priority"] = "interactive".into(),
            8..16 => job["priority"] = "batch".into(),
            _ => {}
        }
        if rng.random_bool(0.06) {
            job["webhook"] = self.hooks[tenant].clone().into();
            if rng.random_bool(0.3) {
                job["webhook_events"] = json!(["job.started", "job.completed"]);
            }
        }
        job
    }

    /// Reads random jobs, mostly new ones, and lists them.
    async fn read(self: Arc<Self>) {
        let (caller, mut rng) = (self.caller("reader", 0), self.rng(300));
        let mut looks = 0_u64;
        loop {
            sleep(READ_EVERY).await;
            looks += 1;
            if let Some(id) = self.recent.pick(&mut rng, if looks.is_multiple_of(3) { RECENT_MAX } else { 40 }) {
                caller.read(&id, 0).await;
            }
            if looks.is_multiple_of(80) {
                list(&caller).await;
            }
        }
    }

    /// Waits for the end of some jobs.
    async fn wait(self: Arc<Self>) {
        let (caller, mut rng) = (self.caller("waiter", 0), self.rng(400));
        loop {
            sleep(WAIT_EVERY).await;
            if let Some(id) = self.recent.pick(&mut rng, 20) {
                caller.read(&id, 3).await;
            }
        }
    }

    /// Cancels some jobs, most of them while they wait or run.
    async fn cancel(self: Arc<Self>) {
        let (caller, mut rng) = (self.caller("canceller", 0), self.rng(500));
        loop {
            sleep(CANCEL_EVERY).await;
            if let Some(id) = self.recent.pick(&mut rng, 6) {
                caller.cancel(&id).await;
                caller.read(&id, 0).await;
            }
        }
    }

    /// Tries to read another tenant's jobs, and lists the tenant's own.
    async fn cross(self: Arc<Self>) {
        let (caller, mut rng) = (self.caller("stranger", 1), self.rng(600));
        let mut looks = 0_u64;
        loop {
            sleep(CROSS_EVERY).await;
            looks += 1;
            if looks.is_multiple_of(8) {
                list(&caller).await;
            }
            let Some(id) = self.recent.pick(&mut rng, RECENT_MAX) else { continue };
            let (method, path) = match looks % 3 {
                0 => (Method::GET, format!("/v1/jobs/{id}")),
                1 => (Method::GET, format!("/v1/jobs/{id}/result")),
                _ => (Method::POST, format!("/v1/jobs/{id}/cancel")),
            };
            let status = match caller.call(method, &path, None, None).await {
                Answer::Done(_) => 200,
                Answer::Refused(status, _) => status.as_u16(),
                // Without a reply nothing is known.
                Answer::Unknown(..) => continue,
            };
            self.journal.write(caller.event(Kind::Ok, "cross").job(id).v(json!({"status": status})));
        }
    }
}

/// Polls a batch's counts until it ends: often while its lines end, because a sum that is wrong for a moment is wrong.
async fn look(caller: Caller, id: String) {
    let (mut pause, mut succeeded) = (LOOK_FIRST, HashSet::new());
    loop {
        let before = succeeded.len();
        if look_once(&caller, &id, &mut succeeded).await {
            return;
        }
        pause = if succeeded.len() > before { LOOK_FIRST } else { (pause + LOOK_STEP).min(LOOK_LAST) };
        sleep(pause).await;
    }
}

/// Reads a batch's lines once, and then its counts, which must include every line that was already seen as succeeded.
/// Returns whether the batch has ended. Lines are listed from the newest on, and end about in the order of their
/// creation. The listing stops at the first known line: the sooner the counts are read after it, the less late they may
/// be.
async fn look_once(caller: &Caller, id: &str, succeeded: &mut HashSet<String>) -> bool {
    let lines = format!("/v1/jobs?batch={id}&state=succeeded&limit={LINES_PER_PAGE}");
    let mut path = lines.clone();
    for _ in 0..LINES_PAGES {
        let Answer::Done(page) = caller.call(Method::GET, &path, None, None).await else { break };
        let ids: Vec<&str> =
            page["jobs"].as_array().into_iter().flatten().filter_map(|job| job["id"].as_str()).collect();
        let is_known = ids.iter().any(|id| succeeded.contains(*id));
        succeeded.extend(ids.iter().map(|id| (*id).to_owned()));
        match page["next_cursor"].as_str() {
            Some(cursor) if ids.len() == LINES_PER_PAGE && !is_known => path = format!("{lines}&cursor={cursor}"),
            _ => break,
        }
    }
    let Answer::Done(batch) = caller.call(Method::GET, &format!("/v1/batches/{id}"), None, None).await else {
        return false;
    };
    let event = caller.event(Kind::Ok, "batch_poll").key(id);
    caller.journal.write(event.v(json!({"state": batch["state"], "counts": batch["counts"], "seen": succeeded.len()})));
    !batch["ended_at"].is_null()
}

async fn list(caller: &Caller) {
    if let Answer::Done(page) = caller.call(Method::GET, "/v1/jobs?limit=100", None, None).await {
        let ids: Vec<&Value> = page["jobs"].as_array().into_iter().flatten().map(|job| &job["id"]).collect();
        let event: Event = caller.event(Kind::Ok, "list");
        caller.journal.write(event.v(json!({"tenant": caller.tenant, "ids": ids})));
    }
}

/// The input of a job. Where the queue is nearly empty, the fraction `long` (0 to 1) of the jobs takes about as long as
/// a pause that outlasts a lease: these jobs exist to be killed, and to come back late.
fn input(rng: &mut StdRng, tag: &str, deep: bool, long: f64) -> Value {
    let ms = match (deep, rng.random_range(0..100)) {
        (true, 0..90) => 0,
        (true, _) => rng.random_range(1..20),
        (false, _) if rng.random_bool(long) => rng.random_range(1_500..4_000),
        (false, 0..60) => rng.random_range(0..20),
        (false, 60..97) => rng.random_range(20..150),
        (false, _) => rng.random_range(150..600),
    };
    let mut input = json!({"tag": tag, "ms": ms});
    match rng.random_range(0..1_000) {
        0..6 => input["fails"] = 1_000.into(),
        6..20 => input["fails"] = 1.into(),
        20..32 => input["fill"] = 20_000.into(),
        _ => {}
    }
    input
}

/// The position in the run (0 to 1) of `part` of the shallow or the deep stretches.
fn place(part: f64, deep: bool) -> f64 {
    let mine = f64::from(STRETCHES / 2);
    let stretch = (part * mine).floor().min(mine - 1.0);
    let within = part * mine - stretch;
    (2.0 * stretch + if deep { 1.0 } else { 0.0 } + within) / f64::from(STRETCHES)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a part of a count"
)]
fn part_of(jobs: u64, part: f64) -> u64 {
    (jobs as f64 * part) as u64
}

fn escaped(url: &str) -> String {
    url.replace(':', "%3A").replace('/', "%2F")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shallow_and_deep_take_turns_and_fill_the_run() {
        assert_eq!((place(0.0, false), place(0.0, true)), (0.0, 0.125));
        assert_eq!((place(0.25, false), place(0.25, true)), (0.25, 0.375));
        assert_eq!((place(1.0, false), place(1.0, true)), (0.875, 1.0));
        assert_eq!(place(0.125, false), 0.0625);
    }

    #[test]
    fn of_what_was_acknowledged_lately_the_newest_are_picked() {
        let (recent, mut rng) = (Recent::default(), StdRng::seed_from_u64(1));
        assert_eq!(recent.pick(&mut rng, 5), None);
        recent.add(&(0..2 * RECENT_MAX).map(|n| n.to_string()).collect::<Vec<_>>());
        for _ in 0..100 {
            let picked: usize = recent.pick(&mut rng, 5).unwrap().parse().unwrap();
            assert!(picked >= 2 * RECENT_MAX - 5);
        }
    }
}
