//! A delivery as it is stored and shown.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::id::JobId;
use crate::job::HookEvent;

/// What a list reads of a record: all but its body and its claim.
pub(super) const SHOWN: [&str; 9] = ["event", "subject", "tenant", "url", "created", "state", "tries", "held", "log"];

/// The state of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// Waits for its next try. A deliverer moves it on.
    Pending,
    /// The receiver took it.
    Delivered,
    /// The last try failed. `replay` makes it pending again, here and below.
    Exhausted,
    /// The receiver answered that it does not want it.
    Disabled,
}

impl DeliveryState {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Delivered, Self::Exhausted, Self::Disabled];

    /// The word for it, in Redis and JSON alike.
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
    /// When it started, unix milliseconds.
    #[serde(rename = "at")]
    pub at_ms: u64,
    /// What the receiver answered.
    #[serde(default)]
    pub status: Option<u16>,
    /// Why there is no answer, or why it does not count, in words for the receiver's owner.
    #[serde(default)]
    pub error: Option<String>,
    /// How long it took.
    pub duration_ms: u64,
}

/// A delivery's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The webhook-id of every try: `msg_...`.
    pub id: String,
    /// The event.
    pub event: HookEvent,
    /// The job or the batch.
    pub subject: String,
    /// Whose.
    pub tenant: String,
    /// Where to.
    pub url: String,
    /// When the event happened, unix milliseconds.
    pub created_ms: u64,
    /// The state.
    pub state: DeliveryState,
    /// When it is tried next, or taken from who tries it now, unix milliseconds; `None` after its end.
    pub next_try_ms: Option<u64>,
    /// Tries since it was made or replayed.
    pub tried: u32,
    /// How long it was put off in all since then, milliseconds.
    pub held_ms: u64,
    /// The latest tries, oldest first.
    pub tries: Vec<Try>,
}

/// What a delivery sends, the same on every try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The body.
    pub body: String,
    /// Its place in a trace; none if it is not about a job.
    pub traceparent: Option<String>,
}

/// A delivery that the caller may try now.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// The record.
    pub delivery: Delivery,
    /// What to send, once a try has fixed it.
    pub message: Option<Message>,
    /// The right to report.
    pub claim: String,
}

/// What a claim gave.
#[derive(Debug, Clone, Default)]
pub struct Claims {
    /// The deliveries.
    pub deliveries: Vec<Claimed>,
    /// When the next one falls due, unix milliseconds.
    pub next_due_ms: Option<u64>,
}

/// What became of a claimed delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was tried and arrived.
    Delivered,
    /// It was tried and failed, and is tried again after this pause.
    Retry {
        /// Milliseconds.
        delay_ms: u64,
    },
    /// It was not tried, and waits some more.
    PutOff {
        /// Milliseconds.
        delay_ms: u64,
    },
    /// It was tried for the last time and failed.
    Exhausted,
    /// It was tried and the receiver wants no more of it.
    Disabled,
}

/// One report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The delivery.
    pub id: String,
    /// The right to report.
    pub claim: String,
    /// What became of it.
    pub outcome: Outcome,
    /// The try, unless there was none.
    pub tried: Option<Try>,
}

/// Which deliveries to list.
#[derive(Debug, Clone, Default)]
pub struct DeliveryFilter {
    /// Only of this job.
    pub job: Option<JobId>,
    /// Only of this batch.
    pub batch: Option<String>,
    /// Only in this state.
    pub state: Option<DeliveryState>,
}

impl DeliveryFilter {
    /// A message's id starts with its subject's, so that a list by subject reads no other record.
    pub(super) fn id_prefix(&self) -> Option<String> {
        self.job.map(|job| format!("msg_{job}_")).or_else(|| self.batch.as_ref().map(|batch| format!("msg_{batch}_")))
    }
}

/// One page of deliveries, newest first.
#[derive(Debug, Clone, Default)]
pub struct DeliveryPage {
    /// The deliveries.
    pub deliveries: Vec<Delivery>,
    /// Where the next page starts. A page may be short, even empty, and still have a next one.
    pub next_cursor: Option<String>,
}

pub(super) fn corrupt(id: &str, why: String) -> Error {
    Error::Corrupt { key: format!("webhook delivery {id}"), why }
}

/// A row of `hook_claim.lua`.
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

/// The fields of [`SHOWN`].
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
