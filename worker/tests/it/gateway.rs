//! A gateway for tests: the routes of `/worker/v1` as a worker sees them. It records requests, and fails on demand.

mod routes;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use sha2::{Digest, Sha256};
use stokehold_protocol::endpoint::{EndpointSpec, EndpointVersion};
use stokehold_protocol::gateway::{
    EventsReply, EventsRequest, ExtendAnswer, ExtendReply, ExtendRequest, FinishAnswer, FinishReply, FinishReport,
    FinishRequest, JobMessage, JoinReply, JoinRequest, LearnedNeed, LeaseRef, LeaseReply, LeaseRequest, LeasedJob,
    ModelRef, OutputHandling, ReleaseReply, ReleaseRequest, RunnerSpec, Secrets, SecretsReply, SecretsRequest, Upload,
    UploadsReply, UploadsRequest, WarmModel, WorkerStatus,
};
use stokehold_protocol::{Fence, JobId, nonce};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use routes::{endpoint, events, extend, finish, guard, join, lease, object, package, release, secrets, uploads};

/// Timeout of all waits; far longer than any step here takes, so that a failed test ends with an error instead of
/// hanging.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A lease that heartbeats have not named for this long is requeued; longer than any step keeps one out of them.
const REAP_AFTER: Duration = Duration::from_secs(15);

/// Duration of leases and heartbeat interval in these tests.
#[derive(Clone, Copy)]
pub(crate) struct HeartbeatConfig {
    pub(crate) lease: Duration,
    pub(crate) every: Duration,
}

impl Default for HeartbeatConfig {
    fn default() -> Self {
        Self { lease: Duration::from_secs(60), every: Duration::from_millis(100) }
    }
}

/// State of the gateway.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) joins: Vec<JoinRequest>,
    /// Join tokens used or tried, in order.
    pub(crate) joined_with: Vec<String>,
    /// Used join tokens, and the next join token in the answer to a join.
    pub(crate) spent: HashSet<String>,
    pub(crate) rejoin_token: Option<String>,
    /// Status in the most recent heartbeat.
    pub(crate) status: WorkerStatus,
    /// Measured needs of models from all heartbeats.
    pub(crate) learned: Vec<LearnedNeed>,
    pub(crate) reach_gib: u32,
    /// The loaded models of the last lease call, as `name@version`.
    pub(crate) warm: Vec<String>,
    /// Directives in each heartbeat's answer: models to keep loaded, and models with waiting jobs.
    pub(crate) keep: Vec<ModelRef>,
    pub(crate) next: Vec<ModelRef>,
    /// Leases in the most recent heartbeat.
    pub(crate) extended: Vec<LeaseRef>,
    /// Outcome of each finished job: the first report counts.
    pub(crate) finished: HashMap<JobId, FinishReport>,
    pub(crate) released: Vec<JobId>,
    /// See [`Gateway::lose_running`].
    pub(crate) lost: HashSet<JobId>,
    pub(crate) events: HashMap<JobId, Vec<JobMessage>>,
    /// Outputs that were only passed on to readers.
    pub(crate) relayed: HashMap<JobId, Vec<JobMessage>>,
    /// Whether relayed outputs are asked for.
    pub(crate) has_new_reader: bool,
    /// Stored objects, by key.
    pub(crate) objects: HashMap<String, Bytes>,
    /// Number of received puts.
    pub(crate) puts: usize,
    /// Keys of received or announced puts.
    pub(crate) put: HashSet<String>,
    /// Number of package downloads.
    pub(crate) fetched: usize,
    /// Answered calls, by route.
    pub(crate) calls: HashMap<String, usize>,
    queued: VecDeque<LeasedJob>,
    held: HashMap<LeaseRef, LeasedJob>,
    /// When each of these leases was granted or extended.
    extended_at: HashMap<LeaseRef, Instant>,
    endpoints: HashMap<String, RunnerSpec>,
    /// Deleted endpoints.
    deleted: HashSet<String>,
    packages: HashMap<String, Vec<u8>>,
    /// The only valid token; none before the first join.
    token: String,
    /// The next call of this route is refused for its token, and so is each later call until the worker has joined
    /// again.
    expires_at: Option<&'static str>,
    /// Whether joins are held.
    joins_held: bool,
    /// Calls refused for their token, by route.
    pub(crate) unauthorized: HashMap<String, usize>,
    /// Tokens of calls other than joins.
    pub(crate) called_with: HashSet<String>,
    /// Answer of the secrets route.
    pub(crate) secrets: Secrets,
    /// Routes that answer 503.
    down: HashSet<&'static str>,
    /// Faults of the next puts.
    put_faults: VecDeque<PutFault>,
    /// Whether the store is unavailable.
    away: bool,
}

/// Fault of a put.
pub(crate) enum PutFault {
    /// The store answers 503.
    Busy,
    /// The object is stored, but the answer is lost.
    Lost,
}

struct Inner {
    url: String,
    heartbeat: HeartbeatConfig,
    seen: Mutex<Seen>,
    changed: watch::Sender<()>,
}

/// A gateway on a free port. It stops when dropped.
pub(crate) struct Gateway {
    inner: Arc<Inner>,
    server: JoinHandle<()>,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Gateway {
    pub(crate) async fn start(heartbeat: HeartbeatConfig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let inner = Arc::new(Inner { url, heartbeat, seen: Mutex::default(), changed: watch::channel(()).0 });
        let guarded = Router::new()
            .route("/worker/v1/lease", post(lease))
            .route("/worker/v1/extend", post(extend))
            .route("/worker/v1/finish", post(finish))
            .route("/worker/v1/release", post(release))
            .route("/worker/v1/events", post(events))
            .route("/worker/v1/uploads", post(uploads))
            .route("/worker/v1/secrets", post(secrets))
            .route("/worker/v1/endpoints/{tenant}/{name}/{version}", get(endpoint))
            .layer(from_fn_with_state(Arc::clone(&inner), guard));
        let router = guarded
            .route("/worker/v1/join", post(join))
            .route("/packages/{sha256}", get(package))
            .route("/objects/{*key}", put(object))
            .layer(DefaultBodyLimit::disable())
            .with_state(Arc::clone(&inner));
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { inner, server }
    }

    pub(crate) fn url(&self) -> &str {
        &self.inner.url
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.inner.seen.lock().unwrap()
    }

    /// Deploys a package as version 1 of an endpoint.
    pub(crate) fn deploy(&self, name: &str, package: Vec<u8>, spec: EndpointSpec) {
        let package_sha256 = hex::encode(Sha256::digest(&package));
        let spec =
            EndpointSpec { package_sha256: package_sha256.clone(), package_size_bytes: package.len() as u64, ..spec };
        let version = EndpointVersion { name: name.to_owned(), version: 1, created_ms: 0, spec };
        let package_url = format!("{}/packages/{package_sha256}", self.url());
        let mut seen = self.seen();
        seen.packages.insert(package_sha256, package);
        seen.endpoints.insert(
            name.to_owned(),
            RunnerSpec { version, package_url, weight_urls: Vec::new(), needs_mib: BTreeMap::new() },
        );
    }

    /// Deletes an endpoint, even if it has jobs.
    pub(crate) fn undeploy(&self, name: &str) {
        let mut seen = self.seen();
        seen.endpoints.remove(name);
        seen.deleted.insert(name.to_owned());
    }

    /// Replaces the deployed package in the store by another one.
    pub(crate) fn swap_package(&self, name: &str, package: Vec<u8>) {
        let mut seen = self.seen();
        let sha256 = seen.endpoints[name].version.spec.package_sha256.clone();
        seen.packages.insert(sha256, package);
    }

    /// Queues a job.
    pub(crate) fn submit(&self, endpoint: &str, input: &serde_json::Value, timeout: Duration) -> LeaseRef {
        self.queue(endpoint, input, timeout, 1).remove(0)
    }

    /// Queues many jobs at once: none is leased before all are queued.
    pub(crate) fn submit_many(&self, endpoint: &str, input: &serde_json::Value, jobs: usize) -> Vec<LeaseRef> {
        self.queue(endpoint, input, TIMEOUT, jobs)
    }

    fn queue(&self, endpoint: &str, input: &serde_json::Value, timeout: Duration, jobs: usize) -> Vec<LeaseRef> {
        let job = |_| LeasedJob {
            job_id: JobId::new(0),
            tenant: "default".to_owned(),
            endpoint: endpoint.to_owned(),
            version: 1,
            attempt: 1,
            fence: Fence::new(1, &nonce()),
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap(),
            input: serde_json::value::to_raw_value(input).unwrap(),
            input_file: None,
            files: BTreeMap::new(),
            traceparent: None,
            behind: 0,
        };
        let jobs: Vec<LeasedJob> = (0..jobs).map(job).collect();
        let leases = jobs.iter().map(lease_of).collect();
        self.change(|seen| seen.queued.extend(jobs));
        leases
    }

    /// Revokes a lease: the next heartbeat's answer says so.
    pub(crate) fn lose(&self, lease: &LeaseRef) {
        assert!(self.seen().held.remove(lease).is_some(), "the lease is not held");
    }

    /// Moves the leases of these running jobs, as of the last heartbeat, to another worker.
    pub(crate) fn lose_running(&self, jobs: &HashSet<JobId>) {
        let mut seen = self.inner.seen.lock().unwrap();
        let running: Vec<LeaseRef> =
            seen.extended.iter().filter(|lease| jobs.contains(&lease.job_id)).cloned().collect();
        for lease in running {
            if seen.held.remove(&lease).is_some() {
                seen.lost.insert(lease.job_id);
            }
        }
    }

    /// Changes with every call of a worker.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.inner.changed.subscribe()
    }

    /// Makes exactly these routes answer 503.
    pub(crate) fn down(&self, routes: &[&'static str]) {
        self.seen().down = routes.iter().copied().collect();
    }

    /// Sets the faults of the next puts, in order.
    pub(crate) fn fail_puts(&self, put_faults: impl IntoIterator<Item = PutFault>) {
        self.seen().put_faults.extend(put_faults);
    }

    /// Makes the store answer 503 until it is available again.
    pub(crate) fn store_away(&self, away: bool) {
        self.seen().away = away;
    }

    /// Refuses the most recently issued token.
    pub(crate) fn forget_token(&self) {
        self.seen().token = nonce();
    }

    /// Refuses the worker's token, starting with the next call of this route.
    pub(crate) fn expire_at(&self, route: &'static str) {
        self.seen().expires_at = Some(route);
    }

    /// Holds joins, or releases them.
    pub(crate) fn hold_joins(&self, held: bool) {
        self.change(|seen| seen.joins_held = held);
    }

    /// Waits until `look` returns a value.
    pub(crate) async fn until<T>(&self, what: &str, mut look: impl FnMut(&Seen) -> Option<T>) -> T {
        let mut changes = self.inner.changed.subscribe();
        let looking = async {
            loop {
                if let Some(found) = look(&self.seen()) {
                    return found;
                }
                changes.changed().await.unwrap();
            }
        };
        timeout(TIMEOUT, looking).await.unwrap_or_else(|_| {
            let seen = self.seen();
            let (calls, ends): (_, Vec<_>) = (&seen.calls, seen.finished.values().map(|end| &end.outcome).collect());
            let (held, models, extended) = (seen.held.len(), &seen.status.models, seen.extended.len());
            panic!("waited too long for {what}; calls: {calls:?}, held: {held}, extended: {extended}, ends: {ends:?}, models: {models:#?}")
        })
    }

    /// Waits for the job's outcome.
    pub(crate) async fn end(&self, lease: &LeaseRef) -> FinishReport {
        self.until("the end of a job", |seen| seen.finished.get(&lease.job_id).cloned()).await
    }

    /// Waits for the job's first output.
    pub(crate) async fn first_log(&self, lease: &LeaseRef) -> String {
        let log = |message: &JobMessage| match message {
            JobMessage::Log { text, .. } => Some(text.clone()),
            JobMessage::Progress { .. } | JobMessage::Output { .. } | JobMessage::Outputs { .. } => None,
        };
        self.until("a line of log", |seen| seen.events.get(&lease.job_id)?.iter().find_map(log)).await
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Seen) -> T) -> T {
        self.inner.change(change)
    }
}

impl Inner {
    fn change<T>(&self, change: impl FnOnce(&mut Seen) -> T) -> T {
        let changed = change(&mut self.seen.lock().unwrap());
        self.changed.send_replace(());
        changed
    }
}

impl Seen {
    /// Number of active leases.
    pub(crate) fn active_leases(&self) -> usize {
        self.held.len()
    }

    /// Requeues what the worker has not extended for [`REAP_AFTER`]: the answer that granted it was lost with its call.
    fn reap(&mut self, extended: &[LeaseRef]) {
        let now = Instant::now();
        self.extended_at.extend(extended.iter().map(|lease| (lease.clone(), now)));
        let is_expired = |lease: &LeaseRef| self.extended_at.get(lease).is_some_and(|at| at.elapsed() > REAP_AFTER);
        let expired: Vec<LeaseRef> = self.held.keys().filter(|lease| is_expired(lease)).cloned().collect();
        for lease in expired {
            self.requeue(&lease);
        }
    }

    /// Puts a leased job first in the queue, under another fence. `None` if the lease is not held.
    fn requeue(&mut self, lease: &LeaseRef) -> Option<JobId> {
        let job = self.held.remove(lease)?;
        let fence = Fence::new(job.fence.counter() + 1, &nonce());
        self.queued.push_front(LeasedJob { fence, ..job });
        Some(lease.job_id)
    }

    fn finish(&mut self, reports: Vec<FinishReport>) -> Vec<FinishAnswer> {
        let finish = |report: FinishReport| {
            let lease = LeaseRef { job_id: report.job_id, fence: report.fence.clone() };
            if self.finished.contains_key(&report.job_id) {
                FinishAnswer::AlreadyEnded
            } else if self.held.remove(&lease).is_some() {
                self.finished.insert(report.job_id, report);
                FinishAnswer::Ok
            } else {
                FinishAnswer::StaleFence
            }
        };
        reports.into_iter().map(finish).collect()
    }
}

fn lease_of(job: &LeasedJob) -> LeaseRef {
    LeaseRef { job_id: job.job_id, fence: job.fence.clone() }
}
