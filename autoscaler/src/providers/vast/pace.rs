//! Vast.ai requires a minimum interval between two requests of a kind, separately for each kind, and counts refused
//! requests as well. Time is tokio's, so that tests and simulations can control it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use rand::Rng as _;
use tokio::time::{Instant, sleep_until};

use crate::sync::lock;

/// Margin between two requests, because they may come closer together on their way.
const MARGIN: Duration = Duration::from_millis(100);

/// Pause after the first refusal; it doubles with each further one.
const BACK_OFF: Duration = Duration::from_secs(15);

/// Maximum pause after a refusal, regardless of the response.
const BACK_OFF_MAX: Duration = Duration::from_secs(120);

/// Time between two tries while the quota is exhausted, if the response has no reset time. Quotas reset at midnight.
const QUOTA_RETRY: Duration = Duration::from_secs(3_600);

/// Maximum time until a quota resets; longer times in a response are ignored.
const QUOTA_MAX: Duration = Duration::from_secs(86_400);

/// Kinds of request, each with its own interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Endpoint {
    /// `PUT /asks/{id}/`.
    Rent,
    /// `DELETE /instances/{id}/`.
    Destroy,
    /// `GET /api/v1/instances/`.
    List,
    /// `GET /instances/{id}/`.
    Show,
    /// `PUT /instances/{id}/`: run, stop.
    State,
    /// `GET /charges/`.
    Charges,
    /// `POST /bundles/`: ten a minute.
    Search,
    /// `GET /users/current`.
    User,
}

impl Endpoint {
    /// Minimum interval between two requests.
    fn interval(self) -> Duration {
        Duration::from_millis(match self {
            Self::Rent => 4_500,
            Self::Destroy => 3_000,
            Self::Show => 2_000,
            Self::List | Self::State | Self::Charges | Self::User => 1_000,
            Self::Search => 6_000,
        })
    }
}

/// Reason why a request may not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum PaceError {
    /// The next turn is too late.
    #[error("rate limit: the next request may be sent in {} s", .0.as_secs())]
    TooLate(Duration),
    /// There is no turn before the quota resets.
    #[error("the quota is exhausted for another {} s", .0.as_secs())]
    Quota(Duration),
}

#[derive(Debug, Default, Clone, Copy)]
struct Lane {
    /// Time of the next free turn.
    free_at: Option<Instant>,
    /// Turns before this time are void.
    blocked_until: Option<Instant>,
    /// Whether requests are blocked because the quota is exhausted.
    is_quota: bool,
    /// Number of refusals in a row.
    refusals: u32,
}

/// Schedules requests.
#[derive(Debug, Default)]
pub(super) struct Pacer {
    lanes: Mutex<BTreeMap<Endpoint, Lane>>,
}

impl Pacer {
    /// Completes when the caller may send, within this time.
    pub(super) async fn turn(&self, endpoint: Endpoint, within: Duration) -> Result<(), PaceError> {
        let until = Instant::now() + within;
        loop {
            let at = self.take(endpoint, until)?;
            sleep_until(at).await;
            // Another request may have been refused in the meantime.
            let is_blocked = |lane: &Lane| lane.blocked_until.is_some_and(|blocked| blocked > at);
            if !self.lock().get(&endpoint).is_some_and(is_blocked) {
                return Ok(());
            }
        }
    }

    /// Whether a request could be sent at once.
    pub(super) fn is_free(&self, endpoint: Endpoint) -> bool {
        let now = Instant::now();
        self.lock().get(&endpoint).is_none_or(|lane| lane.next(now) <= now)
    }

    /// Records a response other than a refusal for sending too soon.
    pub(super) fn was_let_in(&self, endpoint: Endpoint) {
        self.lock().entry(endpoint).or_default().refusals = 0;
    }

    /// Records a refusal for sending too soon.
    pub(super) fn was_refused(&self, endpoint: Endpoint, retry_after_s: Option<f64>) {
        let mut lanes = self.lock();
        let lane = lanes.entry(endpoint).or_default();
        let doubled = BACK_OFF.saturating_mul(1 << lane.refusals.min(10)).min(BACK_OFF_MAX);
        let jittered = || doubled.mul_f64(rand::rng().random_range(0.8..1.2));
        let wait = asked(retry_after_s).unwrap_or_else(jittered).clamp(endpoint.interval(), BACK_OFF_MAX);
        lane.refusals = lane.refusals.saturating_add(1);
        lane.block(wait, false);
    }

    /// Records that the quota is exhausted.
    pub(super) fn is_used_up(&self, endpoint: Endpoint, resets_in_s: Option<f64>) {
        let wait = asked(resets_in_s).unwrap_or(QUOTA_RETRY).clamp(endpoint.interval(), QUOTA_MAX);
        self.lock().entry(endpoint).or_default().block(wait, true);
    }

    /// Reserves the next turn for the caller.
    fn take(&self, endpoint: Endpoint, until: Instant) -> Result<Instant, PaceError> {
        let now = Instant::now();
        let mut lanes = self.lock();
        let lane = lanes.entry(endpoint).or_default();
        let at = lane.next(now);
        if at > until {
            let wait = at - now;
            return Err(if lane.is_quota && lane.is_blocked(now) {
                PaceError::Quota(wait)
            } else {
                PaceError::TooLate(wait)
            });
        }
        lane.free_at = Some(at + endpoint.interval() + MARGIN);
        Ok(at)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Endpoint, Lane>> {
        lock(&self.lanes)
    }
}

impl Lane {
    fn next(&self, now: Instant) -> Instant {
        now.max(self.free_at.unwrap_or(now)).max(self.blocked_until.unwrap_or(now))
    }

    fn is_blocked(&self, now: Instant) -> bool {
        self.blocked_until.is_some_and(|until| until > now)
    }

    fn block(&mut self, wait: Duration, is_quota: bool) {
        let until = Instant::now() + wait;
        if self.blocked_until.is_none_or(|blocked| blocked < until) {
            (self.blocked_until, self.is_quota) = (Some(until), is_quota);
        }
    }
}

/// Duration given in a response. Any number is accepted, because it is bounded later.
fn asked(seconds: Option<f64>) -> Option<Duration> {
    let seconds = seconds.filter(|seconds| !seconds.is_nan())?;
    Some(Duration::from_secs_f64(seconds.clamp(0.0, QUOTA_MAX.as_secs_f64())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::sync::Arc;

    use futures::future::join_all;

    use super::*;

    const LONG: Duration = Duration::from_secs(3_600);

    /// The times at which these requests are sent, milliseconds. All of them are requested at once.
    async fn sent_ms(pacer: &Pacer, endpoint: Endpoint, count: usize) -> Vec<u128> {
        let began = Instant::now();
        let turns = (0..count).map(|_| async move {
            pacer.turn(endpoint, LONG).await.unwrap();
            began.elapsed().as_millis()
        });
        let mut sent = join_all(turns).await;
        sent.sort_unstable();
        sent
    }

    #[tokio::test(start_paused = true)]
    async fn requests_of_a_kind_keep_their_distance_and_others_do_not_wait_for_them() {
        let thresholds = [
            (Endpoint::Rent, 4_500),
            (Endpoint::Destroy, 3_000),
            (Endpoint::List, 1_000),
            (Endpoint::Show, 2_000),
            (Endpoint::State, 1_000),
            (Endpoint::Charges, 1_000),
            (Endpoint::Search, 6_000),
            (Endpoint::User, 1_000),
        ];
        let pacer = Pacer::default();
        let all = thresholds.map(|(endpoint, _)| sent_ms(&pacer, endpoint, 20));
        for ((endpoint, least_ms), sent) in thresholds.into_iter().zip(join_all(all).await) {
            assert_eq!(sent[0], 0, "{endpoint:?} waits for others");
            let nearest = sent.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap();
            assert!((least_ms..=least_ms + 110).contains(&nearest), "{endpoint:?}: {nearest} ms");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_would_wait_for_too_long_is_told_so_and_takes_nobodys_turn() {
        let pacer = Pacer::default();
        let limit = Duration::from_secs(10);
        let turns: Vec<_> = join_all((0..5).map(|_| pacer.turn(Endpoint::Rent, limit))).await;
        assert_eq!(turns.iter().filter(|turn| turn.is_ok()).count(), 3);
        assert!(matches!(turns[4], Err(PaceError::TooLate(wait)) if wait > limit));
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_double_the_wait_to_two_minutes_and_one_that_gets_through_ends_them() {
        let pacer = Pacer::default();
        let mut waits = Vec::new();
        for _ in 0..6 {
            let began = Instant::now();
            pacer.was_refused(Endpoint::List, None);
            pacer.turn(Endpoint::List, LONG).await.unwrap();
            waits.push(began.elapsed().as_secs_f64());
        }
        for (wait, expected) in waits.iter().zip([15.0, 30.0, 60.0, 120.0, 120.0, 120.0]) {
            assert!((0.79 * expected..=1.21 * expected).contains(wait), "{waits:?}");
        }
        pacer.was_let_in(Endpoint::List);
        let began = Instant::now();
        pacer.was_refused(Endpoint::List, Some(2.0));
        pacer.turn(Endpoint::List, LONG).await.unwrap();
        assert_eq!(began.elapsed().as_secs(), 2);
        pacer.was_refused(Endpoint::List, Some(f64::MAX));
        let Err(PaceError::TooLate(wait)) = pacer.turn(Endpoint::List, Duration::ZERO).await else { panic!() };
        assert_eq!(wait.as_secs(), BACK_OFF_MAX.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_wait_when_one_is_refused_wait_on() {
        let pacer = Arc::new(Pacer::default());
        pacer.turn(Endpoint::Destroy, LONG).await.unwrap();
        let began = Instant::now();
        let waiting = tokio::spawn({
            let pacer = Arc::clone(&pacer);
            async move { pacer.turn(Endpoint::Destroy, LONG).await }
        });
        tokio::task::yield_now().await;
        pacer.was_refused(Endpoint::Destroy, Some(20.0));
        waiting.await.unwrap().unwrap();
        assert!(began.elapsed() >= Duration::from_secs(20), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_used_up_quota_is_left_alone_until_it_is_new() {
        let pacer = Pacer::default();
        pacer.is_used_up(Endpoint::Search, Some(7_200.0));
        assert!(matches!(pacer.turn(Endpoint::Search, LONG).await, Err(PaceError::Quota(_))));
        assert!(!pacer.is_free(Endpoint::Search) && pacer.is_free(Endpoint::List));
        tokio::time::advance(Duration::from_secs(7_201)).await;
        pacer.turn(Endpoint::Search, Duration::ZERO).await.unwrap();
        pacer.is_used_up(Endpoint::Search, Some(1e300));
        assert!(matches!(pacer.turn(Endpoint::Search, LONG).await, Err(PaceError::Quota(wait)) if wait <= QUOTA_MAX));
    }
}
