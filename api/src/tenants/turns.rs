//! Sharing of a replica among tenants: the requests of one tenant do not delay those of another.
//!
//! A replica that only one tenant uses serves it as fast as it can. Within [`SHARED_FOR`] of a request of another
//! tenant, these limits apply to each tenant:
//!
//! - Its requests use at most one part in [`PARTS`] of the processors' time, measured as the time for which they are
//!   polled. After a tenant has used more, its next requests wait until that time is made up for.
//! - At most [`LIGHT_AT_ONCE`] light requests are served at a time.
//! - Requests that read, write or check many things are served one at a time, because they keep Redis or a processor
//!   busy for milliseconds. After such a request, the tenant's next one waits for as long as it took.
//!
//! Requests wait in the order of their arrival. Their bodies are read before they take one of those places.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::{MatchedPath, Request};
use axum::http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::Response;
use moka::sync::Cache;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout};

use crate::error::{Code, Problem};
use crate::metrics;

/// Time after its last request for which a tenant counts as active.
const SHARED_FOR: Duration = Duration::from_secs(1);

/// While other tenants are active, a tenant may use `1 / PARTS` of the processors' time.
const PARTS: u32 = 4;

/// Processor time that a tenant may use ahead of its part. Timers are no finer than a millisecond.
const AHEAD: Duration = Duration::from_millis(4);

/// Cost of a request that polling does not include: reading it from its connection and writing the response.
const OVERHEAD: Duration = Duration::from_micros(50);

/// Light requests of one tenant that are served at a time while other tenants are active.
const LIGHT_AT_ONCE: usize = 8;

/// Longest wait of a light request for a place. After that it proceeds without one: the requests before it wait for a
/// queue that is slow or unreachable, which takes no processor time of this replica.
const LIGHT_WAIT_MAX: Duration = Duration::from_millis(200);

/// Largest body of a light request, bytes. A request with a larger body is heavy.
const LIGHT_BODY_MAX: usize = 8 << 10;

/// The longest rest after a heavy request.
const REST_MAX: Duration = Duration::from_millis(250);

/// Maximum number of waiting requests of one tenant, and the longest wait of one.
const WAITING_MAX: usize = 1_000;
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Maximum number of tenants in the cache, and the time after which an unused entry expires.
const TENANTS_MAX: u64 = 10_000;
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// Routes that read, write or check many things in one request.
const HEAVY: [(Method, &str); 24] = [
    (Method::GET, "/v1/jobs"),
    (Method::POST, "/v1/jobs/bulk"),
    (Method::POST, "/v1/jobs/cancel"),
    (Method::POST, "/v1/jobs/retry"),
    (Method::GET, "/v1/dead-letters"),
    (Method::GET, "/v1/feedback"),
    (Method::GET, "/v1/costs"),
    (Method::GET, "/v1/audit"),
    (Method::GET, "/v1/series"),
    (Method::GET, "/v1/schedules"),
    (Method::GET, "/v1/batches"),
    (Method::POST, "/v1/batches/estimate"),
    (Method::POST, "/v1/batches/{id}/retry-failed"),
    (Method::POST, "/v1/endpoints"),
    (Method::GET, "/v1/endpoints/{name}/stats"),
    (Method::DELETE, "/v1/endpoints/{name}"),
    (Method::DELETE, "/v1/endpoints/{name}/versions/{version}"),
    (Method::GET, "/v1/files"),
    (Method::DELETE, "/v1/files/{id}"),
    (Method::GET, "/openai/v1/batches"),
    (Method::GET, "/openai/v1/files"),
    (Method::DELETE, "/openai/v1/files/{id}"),
    (Method::GET, "/v1/requirement-sets"),
    (Method::DELETE, "/v1/requirement-sets/{id}"),
];

/// Share of a replica that a request takes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Weight {
    /// Handles one job or one record.
    Light,
    /// Handles many jobs or records, or has a large body.
    Heavy,
}

/// The requests of all tenants at one replica.
pub(crate) struct Turns {
    /// Tenant of the most recent request, and the most recent one of another tenant.
    recent: Mutex<[Option<(String, Instant)>; 2]>,
    lines: Cache<String, Arc<Line>>,
}

/// The requests of one tenant.
struct Line {
    /// Held by the one request that waits for [`Account::paid_until`]; the others queue for it.
    entrance: Semaphore,
    light: Arc<Semaphore>,
    heavy: Arc<Semaphore>,
    waiting: AtomicUsize,
    account: Mutex<Account>,
}

/// Processor time that a tenant has used.
struct Account {
    /// Time at which the tenant's part of the processors' time has made up for its use.
    paid_until: Instant,
    /// Moving average of the processor time of one request; charged in advance.
    mean: Duration,
    /// Time at which the next heavy request may begin.
    heavy_from: Instant,
}

/// A request that has been admitted.
#[derive(Clone)]
pub(crate) struct Entry {
    line: Arc<Line>,
    is_shared: bool,
}

/// A request's place among those that are served. Dropping it frees the place.
#[derive(Clone)]
pub(crate) struct Turn(Arc<TurnState>);

struct TurnState {
    entry: Entry,
    weight: Weight,
    served: Mutex<Option<Served>>,
}

struct Served {
    weight: Weight,
    since: Instant,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Turns {
    pub(crate) fn new() -> Self {
        let lines = Cache::builder().max_capacity(TENANTS_MAX).time_to_idle(FORGET_AFTER).build();
        Self { recent: Mutex::default(), lines }
    }

    /// Admits a request of a tenant once the tenant has used no more than its part.
    ///
    /// # Errors
    /// [`Code::RateLimited`] when too many requests of the tenant wait, or this one has waited too long.
    pub(crate) async fn enter(&self, tenant: &str, parts: &Parts) -> Result<Entry, Problem> {
        let line = self.lines.get_with_by_ref(tenant, || Arc::new(Line::new()));
        let is_shared = self.is_shared(tenant, Instant::now());
        if is_shared {
            let charged = line.wait(line.pass()).await?;
            if let Some(meter) = parts.extensions.get::<Meter>() {
                // `admitted` admits each request once; a second call would keep the first charge.
                let _ = meter.0.payer.set((line.clone(), charged));
            }
        }
        Ok(Entry { line, is_shared })
    }

    /// Returns whether another tenant is active, and records this tenant as active from now on.
    fn is_shared(&self, tenant: &str, now: Instant) -> bool {
        let mut recent = lock(&self.recent);
        match &mut recent[0] {
            Some((latest, at)) if latest == tenant => *at = now,
            _ => {
                recent.swap(0, 1);
                recent[0] = Some((tenant.to_owned(), now));
            }
        }
        recent[1].as_ref().is_some_and(|(_, at)| now.duration_since(*at) < SHARED_FOR)
    }
}

impl Line {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            entrance: Semaphore::new(1),
            light: Arc::new(Semaphore::new(LIGHT_AT_ONCE)),
            heavy: Arc::new(Semaphore::new(1)),
            waiting: AtomicUsize::new(0),
            account: Mutex::new(Account { paid_until: now, mean: OVERHEAD, heavy_from: now }),
        }
    }

    /// Waits until the tenant has used no more than its part. Returns the charge made in advance.
    async fn pass(&self) -> Duration {
        let _first = self.entrance.acquire().await;
        let paid_until = lock(&self.account).paid_until;
        if paid_until > Instant::now() + AHEAD {
            sleep_until(paid_until - AHEAD).await;
        }
        let mut account = lock(&self.account);
        let mean = account.mean;
        account.paid_until = account.paid_until.max(Instant::now()) + due(mean);
        mean
    }

    async fn place(&self, weight: Weight) -> Option<OwnedSemaphorePermit> {
        match weight {
            Weight::Light => timeout(LIGHT_WAIT_MAX, self.light.clone().acquire_owned()).await.ok()?.ok(),
            Weight::Heavy => {
                let permit = self.heavy.clone().acquire_owned().await.ok();
                let heavy_from = lock(&self.account).heavy_from;
                sleep_until(heavy_from).await;
                permit
            }
        }
    }

    async fn wait<T>(&self, what: impl Future<Output = T>) -> Result<T, Problem> {
        let too_many = || {
            let detail =
                "too many requests of this tenant are waiting on this replica; nothing was done. Send fewer at once";
            Problem::new(Code::RateLimited, detail)
        };
        let _waits = JobWatchers::one_more(&self.waiting).ok_or_else(too_many)?;
        let begun = Instant::now();
        let done = timeout(WAIT_MAX, what).await.map_err(|_| too_many());
        if begun.elapsed() >= Duration::from_millis(1) {
            metrics::request_held_back();
        }
        done
    }
}

impl Account {
    /// Charges the processor time that a request has used, less the charge made in advance.
    fn settle(&mut self, charged: Duration, used: Duration) {
        self.mean = (self.mean * 7 + used) / 8;
        let now = Instant::now();
        self.paid_until = (self.paid_until.max(now) + due(used)).checked_sub(due(charged)).unwrap_or(now);
    }
}

/// Time in which a tenant's part of all processors amounts to `used` of one processor.
fn due(used: Duration) -> Duration {
    static CPUS: LazyLock<u32> =
        LazyLock::new(|| std::thread::available_parallelism().map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(1)));
    used * PARTS / *CPUS
}

impl Entry {
    /// Returns a turn for the request. A request without a body waits for its place here; a request with a body waits
    /// in [`Turn::begin`], after its body has been read.
    ///
    /// # Errors
    /// See [`Turn::begin`].
    pub(crate) async fn turn(self, parts: &Parts) -> Result<Turn, Problem> {
        let turn = Turn(Arc::new(TurnState { entry: self, weight: weight(parts), served: Mutex::default() }));
        if !has_body(&parts.headers) {
            turn.begin(0).await?;
        }
        Ok(turn)
    }
}

impl Turn {
    /// Waits for a place. Call this once the whole body has been read; `body_bytes` is its length.
    ///
    /// # Errors
    /// See [`Turns::enter`].
    pub(crate) async fn begin(&self, body_bytes: usize) -> Result<(), Problem> {
        let TurnState { entry, weight, served } = &*self.0;
        let weight = if body_bytes > LIGHT_BODY_MAX { Weight::Heavy } else { *weight };
        let permit = if entry.is_shared { entry.line.wait(entry.line.place(weight)).await? } else { None };
        *lock(served) = Some(Served { weight, since: Instant::now(), _permit: permit });
        Ok(())
    }

    /// Frees the place before the request ends. From here on the request only waits, or sends its response.
    pub(crate) fn end(&self) {
        self.0.end();
    }
}

impl TurnState {
    fn end(&self) {
        let served = lock(&self.served).take();
        if let Some(Served { weight: Weight::Heavy, since, .. }) = &served {
            let rest = since.elapsed().min(REST_MAX);
            lock(&self.entry.line.account).heavy_from = Instant::now() + rest;
        }
    }
}

impl Drop for TurnState {
    fn drop(&mut self) {
        self.end();
    }
}

/// Meter of the processor time of one request. The tenant to charge is set once it is known.
#[derive(Clone, Default)]
pub(crate) struct Meter(Arc<Reading>);

#[derive(Default)]
struct Reading {
    /// Tenant to charge, and the charge made in advance. Not set while no other tenant is active.
    payer: OnceLock<(Arc<Line>, Duration)>,
    polled: Mutex<Duration>,
}

impl Meter {
    /// Counts the time for which a part of the request is polled.
    pub(crate) fn count<F: Future>(&self, part: F) -> impl Future<Output = F::Output> + use<F> {
        Counted { reading: self.0.clone(), part: Box::pin(part) }
    }
}

/// Runs when all parts of the request have ended.
impl Drop for Reading {
    fn drop(&mut self) {
        if let Some((line, charged)) = self.payer.get() {
            let used = *lock(&self.polled) + OVERHEAD;
            lock(&line.account).settle(*charged, used);
        }
    }
}

struct Counted<F> {
    reading: Arc<Reading>,
    part: Pin<Box<F>>,
}

impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let begun = Instant::now();
        let polled = self.part.as_mut().poll(context);
        *lock(&self.reading.polled) += begun.elapsed();
        polled
    }
}

/// Middleware around every route: counts the processor time of the request.
pub(crate) async fn count(mut request: Request, next: Next) -> Response {
    let meter = Meter::default();
    request.extensions_mut().insert(meter.clone());
    meter.count(next.run(request)).await
}

/// Counter of waiting requests: adds one until it is dropped.
struct JobWatchers<'a>(&'a AtomicUsize);

impl<'a> JobWatchers<'a> {
    fn one_more(waiting: &'a AtomicUsize) -> Option<Self> {
        let waits = Self(waiting);
        (waiting.fetch_add(1, Ordering::Relaxed) < WAITING_MAX).then_some(waits)
    }
}

impl Drop for JobWatchers<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn weight(parts: &Parts) -> Weight {
    let route = parts.extensions.get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let is_heavy = HEAVY.iter().any(|(method, path)| *method == parts.method && *path == route);
    if is_heavy { Weight::Heavy } else { Weight::Light }
}

fn has_body(headers: &HeaderMap) -> bool {
    headers.contains_key(TRANSFER_ENCODING) || headers.get(CONTENT_LENGTH).is_some_and(|length| length != "0")
}

/// Locks the mutex. A poisoned lock is safe to use: no holder leaves the value half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
