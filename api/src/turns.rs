//! How much of a replica a tenant gets while others ask as well: no tenant's requests keep those of another waiting.
//!
//! A replica that only one tenant uses serves it as fast as it can. While another one has asked within [`SHARED_FOR`],
//!
//! - a tenant's requests use at most one part in [`PARTS`] of the processors' time, measured as the time for which they are polled: a
//!   tenant that has used more has its next requests wait until that time is made up for,
//! - [`LIGHT_AT_ONCE`] of them are served at a time, and
//! - one at a time of those that read, write or check many things: these keep Redis or a processor busy for milliseconds. After such a
//!   request the tenant's next one waits for as long as it took.
//!
//! Requests wait in the order of their arrival, and their bodies are read before they take one of those places.

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

/// So long after its last request a tenant counts as one that asks.
const SHARED_FOR: Duration = Duration::from_secs(1);

/// One of so many parts of the processors' time is a tenant's while others ask.
const PARTS: u32 = 4;

/// What a tenant may use ahead of its part. Timers are no finer than a millisecond.
const AHEAD: Duration = Duration::from_millis(4);

/// What a request costs beside being polled: reading it from its connection and writing the answer.
const OVERHEAD: Duration = Duration::from_micros(50);

/// Light requests of one tenant that are served at a time while others ask.
const LIGHT_AT_ONCE: usize = 8;

/// A body of more bytes makes a request a heavy one.
const LIGHT_BODY_MAX: usize = 8 << 10;

/// The longest rest after a heavy request.
const REST_MAX: Duration = Duration::from_millis(250);

/// Requests of one tenant that wait, and how long one waits.
const WAITING_MAX: usize = 1_000;
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Tenants that are remembered at a time, and for how long.
const TENANTS_MAX: u64 = 10_000;
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// What reads, writes or checks many things in one request.
const HEAVY: [(Method, &str); 17] = [
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
];

/// How much of a replica a request takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Weight {
    /// One job or one record.
    Light,
    /// Many of them, or a large body.
    Heavy,
}

/// The requests of all tenants at one replica.
pub(crate) struct Turns {
    /// Who asked last, and who asked last of the others.
    recent: Mutex<[Option<(String, Instant)>; 2]>,
    lines: Cache<String, Arc<Line>>,
}

/// The requests of one tenant.
struct Line {
    /// One at a time looks whether the tenant has used its part up.
    door: Semaphore,
    light: Arc<Semaphore>,
    heavy: Arc<Semaphore>,
    waiting: AtomicUsize,
    account: Mutex<Account>,
}

/// What a tenant has used.
struct Account {
    /// When its part of the processors' time will be what it has used.
    even: Instant,
    /// What one request uses, as its latest ones did.
    usual: Duration,
    /// When its next heavy request may begin.
    rested: Instant,
}

/// A request that has been let in.
#[derive(Clone)]
pub(crate) struct Entry {
    line: Arc<Line>,
    is_shared: bool,
}

/// A request's place among those that are served. It is given back when this is dropped.
#[derive(Clone)]
pub(crate) struct Turn(Arc<Place>);

struct Place {
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

    /// Lets a request of a tenant in, once the tenant has not used more than its part.
    ///
    /// # Errors
    /// [`Code::RateLimited`] when too many of its requests wait, or this one has waited too long.
    pub(crate) async fn enter(&self, tenant: &str, parts: &Parts) -> Result<Entry, Problem> {
        let line = self.lines.get_with_by_ref(tenant, || Arc::new(Line::new()));
        let is_shared = self.is_shared(tenant, Instant::now());
        if is_shared {
            let taken = line.wait(line.pass()).await?;
            if let Some(meter) = parts.extensions.get::<Meter>() {
                let _ = meter.0.payer.set((line.clone(), taken));
            }
        }
        let entry = Entry { line, is_shared };
        Ok(entry)
    }

    /// Whether another tenant asks as well. This one does from now on.
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
            door: Semaphore::new(1),
            light: Arc::new(Semaphore::new(LIGHT_AT_ONCE)),
            heavy: Arc::new(Semaphore::new(1)),
            waiting: AtomicUsize::new(0),
            account: Mutex::new(Account { even: now, usual: OVERHEAD, rested: now }),
        }
    }

    /// Waits until the tenant has used no more than its part, and takes what a request usually uses: so much.
    async fn pass(&self) -> Duration {
        let _door = self.door.acquire().await;
        let even = lock(&self.account).even;
        if even > Instant::now() + AHEAD {
            sleep_until(even - AHEAD).await;
        }
        let mut account = lock(&self.account);
        let usual = account.usual;
        account.even = account.even.max(Instant::now()) + due(usual);
        usual
    }

    async fn place(&self, weight: Weight) -> Option<OwnedSemaphorePermit> {
        match weight {
            Weight::Light => self.light.clone().acquire_owned().await.ok(),
            Weight::Heavy => {
                let permit = self.heavy.clone().acquire_owned().await.ok();
                let rested = lock(&self.account).rested;
                sleep_until(rested).await;
                permit
            }
        }
    }

    async fn wait<T>(&self, what: impl Future<Output = T>) -> Result<T, Problem> {
        let too_many = || {
            let detail = "too many requests of this tenant wait here while others are served; nothing was done, send fewer at once";
            Problem::new(Code::RateLimited, detail)
        };
        let _waits = Waits::one_more(&self.waiting).ok_or_else(too_many)?;
        let begun = Instant::now();
        let done = timeout(WAIT_MAX, what).await.map_err(|_| too_many());
        if begun.elapsed() >= Duration::from_millis(1) {
            metrics::request_held_back();
        }
        done
    }
}

impl Account {
    /// A request that took so much in advance has used so much.
    fn settle(&mut self, taken: Duration, used: Duration) {
        self.usual = (self.usual * 7 + used) / 8;
        let now = Instant::now();
        self.even = (self.even.max(now) + due(used)).checked_sub(due(taken)).unwrap_or(now);
    }
}

/// How long a tenant's part of the processors takes for as much work as one processor does in this time.
fn due(used: Duration) -> Duration {
    static CPUS: LazyLock<u32> =
        LazyLock::new(|| std::thread::available_parallelism().map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(1)));
    used * PARTS / *CPUS
}

impl Entry {
    /// A turn for the request, which waits for it at once unless it brings a body: that is read before.
    ///
    /// # Errors
    /// See [`Turn::begin`].
    pub(crate) async fn turn(self, parts: &Parts) -> Result<Turn, Problem> {
        let turn = Turn(Arc::new(Place { entry: self, weight: weight(parts), served: Mutex::default() }));
        if !has_body(&parts.headers) {
            turn.begin(0).await?;
        }
        Ok(turn)
    }
}

impl Turn {
    /// Waits for a place for a request whose body of so many bytes has come.
    ///
    /// # Errors
    /// As [`Turns::enter`].
    pub(crate) async fn begin(&self, body_bytes: usize) -> Result<(), Problem> {
        let Place { entry, weight, served } = &*self.0;
        let weight = if body_bytes > LIGHT_BODY_MAX { Weight::Heavy } else { *weight };
        let permit = if entry.is_shared { entry.line.wait(entry.line.place(weight)).await? } else { None };
        *lock(served) = Some(Served { weight, since: Instant::now(), _permit: permit });
        Ok(())
    }

    /// Gives the place back before the request ends: from here on it only waits, or sends what it has.
    pub(crate) fn end(&self) {
        self.0.end();
    }
}

impl Place {
    fn end(&self) {
        let served = lock(&self.served).take();
        if let Some(Served { weight: Weight::Heavy, since, .. }) = &served {
            let rest = since.elapsed().min(REST_MAX);
            lock(&self.entry.line.account).rested = Instant::now() + rest;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.end();
    }
}

/// What a request uses, for the tenant that it turns out to be of.
#[derive(Clone, Default)]
pub(crate) struct Meter(Arc<Reading>);

#[derive(Default)]
struct Reading {
    /// Whose account it is for, and what was taken from it in advance. Set once, so a request that is let in twice is paid for once.
    payer: OnceLock<(Arc<Line>, Duration)>,
    polled: Mutex<Duration>,
}

impl Meter {
    /// Counts the time for which a part of the request is polled.
    pub(crate) fn count<F: Future>(&self, part: F) -> impl Future<Output = F::Output> + use<F> {
        Counted { reading: self.0.clone(), part: Box::pin(part) }
    }
}

/// All parts of the request have ended.
impl Drop for Reading {
    fn drop(&mut self) {
        if let Some((line, taken)) = self.payer.get() {
            let used = *lock(&self.polled) + OVERHEAD;
            lock(&line.account).settle(*taken, used);
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

/// The middleware around every route.
pub(crate) async fn count(mut request: Request, next: Next) -> Response {
    let meter = Meter::default();
    request.extensions_mut().insert(meter.clone());
    meter.count(next.run(request)).await
}

/// One request more that waits, until it is dropped.
struct Waits<'a>(&'a AtomicUsize);

impl<'a> Waits<'a> {
    fn one_more(waiting: &'a AtomicUsize) -> Option<Self> {
        let waits = Self(waiting);
        (waiting.fetch_add(1, Ordering::Relaxed) < WAITING_MAX).then_some(waits)
    }
}

impl Drop for Waits<'_> {
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

/// Nothing is half done where a holder has panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tokio::time::advance;

    use super::*;

    fn parts(method: Method) -> Parts {
        let mut request = Request::builder().method(method).body(axum::body::Body::empty()).unwrap();
        request.extensions_mut().insert(Meter::default());
        request.into_parts().0
    }

    /// A request that is being served with this weight.
    async fn served(turns: &Turns, tenant: &str, weight: Weight) -> Turn {
        let entry = turns.enter(tenant, &parts(Method::GET)).await.unwrap();
        let turn = Turn(Arc::new(Place { entry, weight, served: Mutex::default() }));
        turn.begin(0).await.unwrap();
        turn
    }

    fn use_up(turn: &Turn, used: Duration) {
        lock(&turn.0.entry.line.account).settle(Duration::ZERO, used);
    }

    /// Whether something is done without time going by.
    async fn is_at_once(what: impl Future) -> bool {
        timeout(Duration::ZERO, what).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_that_is_alone_is_served_as_fast_as_it_asks() {
        let turns = Turns::new();
        let mut all = Vec::new();
        for _ in 0..100 {
            all.push(served(&turns, "a", Weight::Heavy).await);
        }
        use_up(&all[0], Duration::from_secs(10));
        assert!(is_at_once(served(&turns, "a", Weight::Light)).await);
    }

    #[tokio::test(start_paused = true)]
    async fn beside_another_a_tenant_has_its_places_and_rests_after_what_is_heavy() {
        let turns = Turns::new();
        let other = served(&turns, "b", Weight::Heavy).await;
        let heavy = served(&turns, "a", Weight::Heavy).await;
        assert!(!is_at_once(served(&turns, "a", Weight::Heavy)).await, "one at a time");
        let mut light = Vec::new();
        for _ in 0..LIGHT_AT_ONCE {
            light.push(served(&turns, "a", Weight::Light).await);
        }
        assert!(!is_at_once(served(&turns, "a", Weight::Light)).await, "all its places are taken");
        assert!(is_at_once(served(&turns, "b", Weight::Light)).await, "the other has its own");
        light[0].end();
        assert!(is_at_once(served(&turns, "a", Weight::Light)).await);

        advance(Duration::from_millis(40)).await;
        drop(heavy);
        assert!(!is_at_once(served(&turns, "a", Weight::Heavy)).await);
        advance(Duration::from_millis(41)).await;
        assert!(is_at_once(served(&turns, "a", Weight::Heavy)).await, "it has rested");

        drop(other);
        advance(SHARED_FOR).await;
        let _both = (served(&turns, "a", Weight::Heavy).await, served(&turns, "a", Weight::Heavy).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_that_has_used_more_than_its_part_waits_and_the_other_does_not() {
        let turns = Turns::new();
        let (first, _other) = (served(&turns, "a", Weight::Light).await, served(&turns, "b", Weight::Light).await);
        use_up(&first, Duration::from_secs(8));
        assert!(!is_at_once(served(&turns, "a", Weight::Light)).await);
        assert!(is_at_once(served(&turns, "b", Weight::Light)).await);
        let began = Instant::now();
        while !is_at_once(served(&turns, "a", Weight::Light)).await {
            let _ = served(&turns, "b", Weight::Light).await;
            advance(Duration::from_millis(50)).await;
        }
        let (waited, cpus) =
            (began.elapsed(), u32::try_from(std::thread::available_parallelism().unwrap().get()).unwrap());
        let wanted = Duration::from_secs(8) * PARTS / cpus;
        assert!(waited > wanted.mul_f64(0.9) && waited < wanted.mul_f64(1.1), "{waited:?} of {wanted:?}");
    }

    #[tokio::test]
    async fn the_time_for_which_a_request_is_polled_is_counted_for_its_tenant() {
        let turns = Turns::new();
        let _other = served(&turns, "b", Weight::Light).await;
        let request = parts(Method::GET);
        let entry = turns.enter("a", &request).await.unwrap();
        let meter = request.extensions.get::<Meter>().unwrap().clone();
        let even = || lock(&entry.line.account).even;
        let before = even();
        meter.count(async { std::thread::sleep(Duration::from_millis(20)) }).await;
        meter.count(tokio::time::sleep(Duration::from_millis(1))).await;
        assert_eq!(even(), before, "it has not ended");
        drop((meter, request));
        assert!(even() > before.max(Instant::now()), "20 ms of work are to be made up for");
    }

    #[tokio::test(start_paused = true)]
    async fn a_bounded_number_waits_and_no_longer_than_it_may() {
        let turns = Arc::new(Turns::new());
        let _served = (served(&turns, "b", Weight::Heavy).await, served(&turns, "a", Weight::Heavy).await);
        let waits = |_| {
            let turns = turns.clone();
            tokio::spawn(async move {
                let turn = Turn(Arc::new(Place {
                    entry: turns.enter("a", &parts(Method::GET)).await.map_err(|problem| problem.code())?,
                    weight: Weight::Heavy,
                    served: Mutex::default(),
                }));
                turn.begin(0).await.map_err(|problem| problem.code())
            })
        };
        let all: Vec<_> = (0..=WAITING_MAX).map(waits).collect();
        for waiting in all {
            assert_eq!(waiting.await.unwrap().unwrap_err(), Code::RateLimited);
        }
    }

    #[test]
    fn every_route_that_is_called_heavy_is_there() {
        let document: Value = serde_json::from_str(crate::openapi::json()).unwrap();
        for (method, path) in HEAVY {
            assert!(document["paths"][path].get(method.as_str().to_lowercase()).is_some(), "{method} {path}");
        }
    }
}
