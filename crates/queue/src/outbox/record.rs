//! The record of a webhook delivery, as it is stored and shown.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::id::JobId;
use crate::job::HookEvent;

/// The fields that a list reads: all but the body and the claim.
pub(super) const SHOWN: [&str; 9] = ["event", "subject", "tenant", "url", "created", "state", "tries", "held", "log"];

/// The state of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// Waits for its next try. A deliverer moves it on.
    Pending,
    /// The receiver accepted the message.
    Delivered,
    /// The last try failed. `replay` makes it pending again, like in the state below.
    Exhausted,
    /// The receiver answered that it accepts no more messages.
    Disabled,
}

impl DeliveryState {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Delivered, Self::Exhausted, Self::Disabled];

    /// The name of the state in Redis and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Exhausted => "exhausted",
            Self::Disabled => "disabled",
        }
    }

    /// Parses a state.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// One try at a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Try {
    /// Start of the try, Unix milliseconds.
    #[serde(rename = "at")]
    pub at_ms: u64,
    /// Status of the receiver's response.
    #[serde(default)]
    pub status: Option<u16>,
    /// The reason why there is no response, or why it does not count; written for the receiver's owner.
    #[serde(default)]
    pub error: Option<String>,
    /// Duration, milliseconds.
    pub duration_ms: u64,
}

/// A delivery's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The `webhook-id` of every try: `msg_...`.
    pub id: String,
    /// The event.
    pub event: HookEvent,
    /// Id of the job or the batch.
    pub subject: String,
    /// The tenant.
    pub tenant: String,
    /// URL of the receiver.
    pub url: String,
    /// Time of the event, Unix milliseconds.
    pub created_ms: u64,
    /// The state.
    pub state: DeliveryState,
    /// Time of the next try, or of the expiry of the current claim, Unix milliseconds; `None` once the delivery has
    /// ended.
    pub next_try_ms: Option<u64>,
    /// Number of tries since its creation or its last replay.
    pub tried: u32,
    /// Total time for which it was deferred since then, milliseconds.
    pub held_ms: u64,
    /// The latest tries, oldest first.
    pub tries: Vec<Try>,
}

/// The content of a delivery, the same on every try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The body.
    pub body: String,
    /// The trace context of the job; `None` if the event is not about a job.
    pub traceparent: Option<String>,
}

/// A delivery that the caller may try now.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// The record.
    pub delivery: Delivery,
    /// The content, once a try has fixed it.
    pub message: Option<Message>,
    /// The claim, which gives the right to report.
    pub claim: String,
}

/// The result of a claim.
#[derive(Debug, Clone, Default)]
pub struct Claims {
    /// The deliveries.
    pub deliveries: Vec<Claimed>,
    /// Time at which the next delivery is due, Unix milliseconds.
    pub next_due_ms: Option<u64>,
}

/// The outcome of a claimed delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The try succeeded.
    Delivered,
    /// The try failed; the next one follows after a delay.
    Retry {
        /// The delay, milliseconds.
        delay_ms: u64,
    },
    /// There was no try; the delivery is deferred.
    PutOff {
        /// The delay, milliseconds.
        delay_ms: u64,
    },
    /// The last try failed.
    Exhausted,
    /// The receiver accepts no more messages.
    Disabled,
}

/// The report on one delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Id of the delivery.
    pub id: String,
    /// The claim, which gives the right to report.
    pub claim: String,
    /// The outcome.
    pub outcome: Outcome,
    /// The try, if there was one.
    pub tried: Option<Try>,
}

/// Filter of a list of deliveries.
#[derive(Debug, Clone, Default)]
pub struct DeliveryFilter {
    /// Only those of this job.
    pub job: Option<JobId>,
    /// Only those of this batch.
    pub batch: Option<String>,
    /// Only those in this state.
    pub state: Option<DeliveryState>,
}

impl DeliveryFilter {
    /// The common prefix of the ids of a subject's messages. A list by subject reads no other records.
    pub(super) fn id_prefix(&self) -> Option<String> {
        self.job.map(|job| format!("msg_{job}_")).or_else(|| self.batch.as_ref().map(|batch| format!("msg_{batch}_")))
    }
}

/// One page of deliveries, newest first.
#[derive(Debug, Clone, Default)]
pub struct DeliveryPage {
    /// The deliveries.
    pub deliveries: Vec<Delivery>,
    /// Cursor of the next page. A page can be short or empty even if more pages follow.
    pub next_cursor: Option<String>,
}

pub(super) fn corrupt(id: &str, why: String) -> Error {
    Error::Corrupt { key: format!("webhook delivery {id}"), why }
}

/// Decodes a row of `hook_claim.lua`.
pub(super) fn decode_claimed(row: Vec<Option<String>>, claim: &str) -> Result<Claimed, Error> {
    let mut row = row.into_iter();
    let id = row.next().flatten().unwrap_or_default();
    let next_try_ms = row.next().flatten().and_then(|text| text.parse().ok());
    let mut row: Vec<Option<String>> = row.collect();
    let mut sent = row.split_off(SHOWN.len().min(row.len())).into_iter();
    let (body, trace) = (sent.next().flatten(), sent.next().flatten());
    let message = body.map(|body| Message { body, traceparent: trace.filter(|trace| !trace.is_empty()) });
    Ok(Claimed { delivery: decode(&id, next_try_ms, row)?, message, claim: claim.to_owned() })
}

/// Decodes the fields of [`SHOWN`].
pub(super) fn decode(id: &str, next_try_ms: Option<u64>, row: Vec<Option<String>>) -> Result<Delivery, Error> {
    let row: [Option<String>; 9] = row.try_into().map_err(|_| corrupt(id, "a field is missing".to_owned()))?;
    let [event, subject, tenant, url, created, state, tries, held, log] = row;
    let text = |name: &str, value: Option<String>| value.ok_or_else(|| corrupt(id, format!("no {name}")));
    let event = text("event", event)?;
    let state = text("state", state)?;
    let number = |text: Option<String>| text.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let tries_kept = log
        .unwrap_or_default()
        .lines()
        .map(|line| serde_json::from_str(line).map_err(|error| corrupt(id, error.to_string())))
        .collect::<Result<_, _>>()?;
    Ok(Delivery {
        event: HookEvent::from_word(&event).ok_or_else(|| corrupt(id, format!("no such event: {event}")))?,
        subject: text("subject", subject)?,
        tenant: text("tenant", tenant)?,
        url: text("url", url)?,
        created_ms: number(created),
        state: DeliveryState::from_word(&state).ok_or_else(|| corrupt(id, format!("no such state: {state}")))?,
        next_try_ms,
        tried: u32::try_from(number(tries)).unwrap_or(u32::MAX),
        held_ms: number(held),
        tries: tries_kept,
        id: id.to_owned(),
    })
}
