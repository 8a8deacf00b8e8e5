//! The loop that delivers webhooks. Every replica runs it; claims in the outbox keep two replicas from sending the same
//! delivery at once.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use axum::http::{HeaderMap, HeaderValue};
use futures::FutureExt;
use stokehold_queue::outbox::{Claimed, Delivery, Message, Outbox, Outcome, Report, Try};
use stokehold_queue::queue::Work;
use stokehold_queue::{Error, RedisQueue, failpoint, now_ms};
use stokehold_supervise::{BoxError, Duty, guard_beside};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use url::Url;

use super::breaker::{Admission, Breakers};
use super::client::{Answer, Client, TRY_MAX};
use super::lanes::{Lanes, Slot};
use super::sign::Secrets;
use super::{payload, schedule};
use crate::state::App;
use crate::{database, metrics};

/// Duration of a claim, milliseconds. It is longer than the wait in a lane, the preparation, the attempt and its report
/// together. After it, another replica takes over the delivery of a killed one.
const CLAIM_MS: u64 = 60_000;

/// Maximum number of deliveries in progress.
const IN_HAND_MAX: usize = 64;

/// Longest pause between two checks of the outbox.
const ROUND: Duration = Duration::from_secs(1);

/// Timeout of one check, and of reading the content of a delivery.
const STEP_MAX: Duration = Duration::from_secs(10);

/// Longest wait for deliveries in progress at shutdown. Another replica repeats those that are cut off.
const GRACE: Duration = Duration::from_secs(5);

/// Pause of a delivery whose receiver's lane is full, milliseconds. It is multiplied by a random factor from 1 to 2.
const LANE_PAUSE_MS: u64 = 2_000;

/// Longest total delay of a delivery by a breaker, milliseconds. After it, the delivery is attempted regardless of the
/// breaker, so that a large backlog of deliveries to a failed receiver also ends.
const HELD_MAX_MS: u64 = 24 * 60 * 60 * 1000;

/// Result of one check of the outbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// Deliveries that were started.
    pub(crate) started: usize,
    /// Deliveries that were postponed, because their receiver is failing or its lane is full.
    pub(crate) put_off: usize,
    /// Set when more may be due than this replica can take.
    pub(crate) full: bool,
    /// Time at which the next delivery is due, Unix milliseconds, if any is known.
    pub(crate) next_due_ms: Option<u64>,
}

/// The delivery loop.
pub(crate) struct Deliverer {
    shared: Arc<Shared>,
    in_hand: JoinSet<()>,
    /// Set when the last check found more deliveries than this replica can take.
    full: bool,
}

impl Deliverer {
    /// Creates the loop for the outbox of one shard.
    ///
    /// # Errors
    /// When the system's certificates cannot be read.
    pub(crate) fn new(app: App, shard: &RedisQueue) -> anyhow::Result<Self> {
        let client =
            Client::new(&app.config.webhooks).context("failed to set up the HTTP client that sends webhooks")?;
        let (outbox, number) = (shard.outbox(), shard.number());
        let shared = Shared { app, outbox, shard: number, client, breakers: Mutex::default(), lanes: Lanes::default() };
        Ok(Self { shared: Arc::new(shared), in_hand: JoinSet::new(), full: false })
    }

    /// Claims due deliveries, as many as this replica can take, and starts them.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: claimed deliveries become due again when their claims expire.
    pub(crate) async fn run_once(&mut self) -> Result<Summary, Error> {
        while self.in_hand.try_join_next().is_some() {}
        let hands = IN_HAND_MAX - self.in_hand.len();
        if hands == 0 {
            return Ok(Summary { full: true, ..Summary::default() });
        }
        let claims = self.shared.outbox.claim(hands, CLAIM_MS).await?;
        let mut summary =
            Summary { full: claims.deliveries.len() == hands, next_due_ms: claims.next_due_ms, ..Summary::default() };
        let mut put_off = Vec::new();
        for claimed in claims.deliveries {
            match self.shared.admit(&claimed.delivery) {
                Ok(place) => {
                    summary.started += 1;
                    let delivery = deliver(self.shared.clone(), place, claimed);
                    // The claim of a delivery that panicked expires.
                    self.in_hand.spawn(guard_beside(Self::NAME, delivery).map(drop));
                }
                Err(delay_ms) => put_off.push(report(&claimed, Outcome::PutOff { delay_ms }, None)),
            }
        }
        summary.put_off = put_off.len();
        self.shared.outbox.report(&put_off).await?;
        Ok(summary)
    }
}

impl Duty for Deliverer {
    const NAME: &'static str = "webhooks";
    const ROUND_TIMEOUT: Duration = STEP_MAX;

    async fn round(&mut self) -> Result<Duration, BoxError> {
        self.full = false;
        let summary = self.run_once().await?;
        self.full = summary.full;
        Ok(self.shared.pause(&summary))
    }

    async fn wait(&mut self, pause: Duration) {
        tokio::select! {
            () = self.shared.app.wakeups.wait(Work::Hooks, self.shared.shard, pause) => {}
            // A free place matters only when more deliveries are due.
            Some(_) = self.in_hand.join_next(), if self.full => {}
        }
    }

    async fn shut_down(&mut self) {
        let _ = timeout(GRACE, async { while self.in_hand.join_next().await.is_some() {} }).await;
    }
}

/// State that all attempts share.
struct Shared {
    app: App,
    outbox: Outbox,
    shard: u8,
    client: Client,
    breakers: Mutex<Breakers>,
    lanes: Lanes,
}

impl Shared {
    /// The queue's time, so that a test which moves the queue's clock also moves this one.
    fn now_ms(&self) -> u64 {
        self.app.config.redis.clock.now_ms()
    }

    /// Pause until the next check.
    fn pause(&self, summary: &Summary) -> Duration {
        let due = summary.next_due_ms.map(|due_ms| Duration::from_millis(due_ms.saturating_sub(self.now_ms())));
        // An overdue delivery that was not claimed, or clocks that differ, must not cause a busy loop.
        due.map_or(ROUND, |due| due.clamp(Duration::from_millis(10), ROUND))
    }

    /// Returns a place in the receiver's lane, or the time for which to postpone the delivery, milliseconds.
    fn admit(&self, delivery: &Delivery) -> Result<Slot, u64> {
        let receiver = receiver(delivery);
        let spread_ms = rand::random_range(0..=LANE_PAUSE_MS);
        let place = self.lanes.enter(&receiver).ok_or(LANE_PAUSE_MS + spread_ms)?;
        let now_ms = self.now_ms();
        let gate = self.breakers.lock().unwrap_or_else(PoisonError::into_inner).ask(&receiver, now_ms);
        match gate {
            Admission::Until(until_ms) if delivery.held_ms < HELD_MAX_MS => {
                Err(until_ms.saturating_sub(now_ms) + spread_ms)
            }
            Admission::Go | Admission::Until(_) => Ok(place),
        }
    }

    /// The message to send, the same at each attempt. `None` when the claim was lost meanwhile.
    async fn message(&self, claimed: &Claimed) -> Result<Option<Message>, payload::Error> {
        if let Some(message) = &claimed.message {
            return Ok(Some(message.clone()));
        }
        let message = payload::build(&self.app, &claimed.delivery).await?;
        Ok(self.outbox.fix(&claimed.delivery.id, &claimed.claim, &message).await.map_err(database::Error::from)?)
    }

    /// Builds the body, the headers with its signature, and its trace context.
    async fn request(&self, claimed: &Claimed) -> Result<Option<(HeaderMap, String)>, payload::Error> {
        let delivery = &claimed.delivery;
        let Some(Message { body, traceparent }) = self.message(claimed).await? else { return Ok(None) };
        let generation =
            self.app.db.registry.webhook_generation(&delivery.tenant).await.map_err(database::Error::from)?;
        // The receiver compares with its own clock, so this is wall-clock time.
        let now_ms = now_ms();
        let secrets = Secrets::of(&self.app.config.token_key, &delivery.tenant, generation, now_ms);
        let timestamp_s = now_ms / 1_000;
        let mut headers = HeaderMap::new();
        let signature = secrets.sign(&delivery.id, timestamp_s, &body);
        let said = [("webhook-id", delivery.id.as_str()), ("webhook-signature", &signature)];
        for (name, text) in said.into_iter().chain(traceparent.as_deref().map(|place| ("traceparent", place))) {
            let value = HeaderValue::from_str(text).map_err(|error| {
                let key = format!("{name} of {}", delivery.id);
                database::Error::from(Error::Corrupt { key, why: error.to_string() })
            })?;
            headers.insert(name, value);
        }
        headers.insert("webhook-timestamp", timestamp_s.into());
        Ok(Some((headers, body)))
    }

    /// Reports the outcome, with two retries. If all fail, the claim expires and the delivery is repeated.
    async fn report(&self, report: Report) {
        let reports = [report];
        for _ in 0..3 {
            match self.outbox.report(&reports).await {
                Ok(_) => return,
                Err(error) => {
                    let (error, webhook) = (&error as &dyn std::error::Error, &reports[0].id);
                    tracing::warn!(error, webhook, "the outcome of a webhook delivery cannot be stored");
                }
            }
            sleep(Duration::from_millis(200)).await;
        }
    }
}

/// Runs one delivery, from its lane to its report.
async fn deliver(shared: Arc<Shared>, place: Slot, claimed: Claimed) {
    let Some(_turn) = place.turn().await else { return };
    failpoint::reach("hook.claimed").await;
    let delivery = &claimed.delivery;
    let (headers, body) = match timeout(STEP_MAX, shared.request(&claimed)).await {
        Ok(Ok(Some(message))) => message,
        Ok(Ok(None)) => return,
        Ok(Err(error)) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                webhook = delivery.id,
                "a webhook's body cannot be built, trying again"
            );
            return shared.report(report(&claimed, Outcome::PutOff { delay_ms: LANE_PAUSE_MS }, None)).await;
        }
        // The delivery is due again when its claim expires.
        Err(_) => return tracing::warn!(webhook = delivery.id, "building the webhook's body timed out"),
    };
    let (at_ms, started) = (now_ms(), Instant::now());
    let answer = Box::pin(shared.client.post(&delivery.url, headers, body)).await;
    failpoint::reach("hook.posted").await;
    let duration_ms = u64::try_from(started.elapsed().min(2 * TRY_MAX).as_millis()).unwrap_or_default();
    shared.breakers.lock().unwrap_or_else(PoisonError::into_inner).record(
        place.receiver(),
        is_failure(&answer),
        shared.now_ms(),
    );
    let (status, retry_after, error) = told(&answer);
    let outcome =
        schedule::decide(&shared.app.config.webhooks.waits, delivery.tried, status, retry_after, rand::random());
    metrics::webhook_tried(match outcome {
        Outcome::Delivered => "delivered",
        Outcome::Retry { .. } | Outcome::PutOff { .. } => "failed",
        Outcome::Exhausted => "exhausted",
        Outcome::Disabled => "disabled",
    });
    shared.report(report(&claimed, outcome, Some(Try { at_ms, status, error, duration_ms }))).await;
}

fn report(claimed: &Claimed, outcome: Outcome, tried: Option<Try>) -> Report {
    Report { id: claimed.delivery.id.clone(), claim: claimed.claim.clone(), outcome, tried }
}

/// Key of a lane and its breaker: one tenant's deliveries to one host. Many tenants use the same hosts, and the failing
/// webhook of one must not delay the events of the others.
fn receiver(delivery: &Delivery) -> String {
    let origin = Url::parse(&delivery.url).map(|url| url.origin().ascii_serialization()).unwrap_or_default();
    format!("{} {origin}", delivery.tenant)
}

/// Returns whether the receiver is failing, so that a pause helps. A receiver that answers 404 is not failing.
fn is_failure(answer: &Answer) -> bool {
    match answer {
        Answer::Status { status, .. } => matches!(status, 429 | 500..),
        Answer::Refused(_) | Answer::Failed(_) => true,
    }
}

/// An answer in the form used for the decision and the log.
fn told(answer: &Answer) -> (Option<u16>, Option<Duration>, Option<String>) {
    match answer {
        Answer::Status { status, retry_after } => {
            let redirect = (300..400).contains(status).then(|| "redirects are not followed".to_owned());
            (Some(*status), *retry_after, redirect)
        }
        Answer::Refused(refused) => (None, None, Some(format!("not sent: the URL {refused}"))),
        Answer::Failed(failure) => (None, None, Some(failure.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webhooks::client::SendError;
    use crate::webhooks::guard::Refused;

    #[test]
    fn a_receiver_that_answers_is_in_no_trouble() {
        let status = |status| Answer::Status { status, retry_after: None };
        for answer in [200, 307, 400, 404, 410].map(status) {
            assert!(!is_failure(&answer), "{answer:?}");
        }
        for answer in [status(429), status(500), Answer::Failed(SendError::Timeout), Answer::Refused(Refused::Address)]
        {
            assert!(is_failure(&answer), "{answer:?}");
        }
    }

    #[test]
    fn the_log_says_why_without_saying_where() {
        let error = |answer: Answer| told(&answer).2.unwrap_or_default();
        assert_eq!(error(Answer::Refused(Refused::Address)), "not sent: the URL must resolve to a public address");
        assert_eq!(error(Answer::Failed(SendError::Timeout)), "no answer within 15 s");
        assert_eq!(error(Answer::Status { status: 302, retry_after: None }), "redirects are not followed");
        assert_eq!(error(Answer::Status { status: 500, retry_after: None }), "");
    }
}
