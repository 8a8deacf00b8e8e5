//! The calls to the gateway with the messages of one run.
//!
//! Outputs are relayed to connected readers as they come, and stored for later ones together, because the gateway and
//! Redis need not process each token of a language model.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use stokehold_protocol::gateway::{EventsRequest, JobEventReport, JobMessage, LeaseRef, OutputHandling};
use tokio::time::{Instant, sleep_until};

use super::{BATCH, MERGED_BYTES, MERGED_OUTPUTS, Pending, merged};
use crate::gateway::{Error, Gateway};

/// Longest time from the relay of an output until it is stored.
const STORE_EVERY: Duration = Duration::from_secs(5);

/// Outputs are stored earlier if none follows for this time, at this size, and when the gateway asks for them. The
/// gateway accepts 64 KiB in one message.
const QUIET: Duration = Duration::from_secs(1);
const STORE_BYTES: usize = 48 << 10;

/// Sends the messages of a run until it has ended.
pub(super) async fn forward(gateway: Arc<Gateway>, lease: LeaseRef, pending: Arc<Pending>) {
    let mut sender = Sender { gateway, lease, knows_several: true, relayed: None, shown: 0 };
    loop {
        let due = sender.relayed.as_ref().map(Relayed::due);
        let batch = tokio::select! {
            batch = pending.batch() => batch,
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                sender.store().await;
                continue;
            }
        };
        let Some(batch) = batch else { break };
        match (relayable(batch), pending.end()) {
            (Ok((index, values)), None) if sender.knows_several => sender.relay(index, values).await,
            (Ok((index, values)), end) => {
                let outputs = JobMessage::Outputs { index, values };
                sender.send([outputs].into_iter().chain(end).collect()).await;
            }
            (Err(batch), end) => sender.send(merged(batch).into_iter().chain(end).collect()).await,
        }
    }
    // The last outputs are missing, and no later message reveals that.
    let relayed = sender.relayed.as_ref().map_or(0, |relayed| relayed.index + relayed.values.len() as u64);
    let end = pending.end().filter(|end| shows(std::slice::from_ref(end)) > sender.shown.max(relayed));
    if sender.relayed.is_some() || (end.is_some() && sender.knows_several) {
        sender.send(end.into_iter().collect()).await;
    }
}

/// The outputs of a batch of one message of them, else the batch. Larger ones are stored at once.
fn relayable(mut batch: Vec<JobMessage>) -> Result<(u64, Vec<Box<RawValue>>), Vec<JobMessage>> {
    match batch.pop() {
        Some(JobMessage::Outputs { index, values }) if batch.is_empty() && bytes(&values) <= MERGED_BYTES => {
            Ok((index, values))
        }
        other => {
            batch.extend(other);
            Err(batch)
        }
    }
}

fn bytes(values: &[Box<RawValue>]) -> usize {
    values.iter().map(|value| value.get().len()).sum()
}

/// Outputs that were relayed and are not stored yet.
struct Relayed {
    index: u64,
    values: Vec<Box<RawValue>>,
    bytes: usize,
    /// When the first and the last of them were relayed.
    first_at: Instant,
    last_at: Instant,
}

impl Relayed {
    /// When to store them.
    fn due(&self) -> Instant {
        (self.first_at + STORE_EVERY).min(self.last_at + QUIET)
    }
}

struct Sender {
    gateway: Arc<Gateway>,
    lease: LeaseRef,
    /// A gateway of the first release only supports single outputs.
    knows_several: bool,
    relayed: Option<Relayed>,
    /// The number of outputs that readers know of, received or known to be missing.
    shown: u64,
}

impl Sender {
    /// Relays outputs. If the gateway cannot, they are stored at once.
    async fn relay(&mut self, index: u64, values: Vec<Box<RawValue>>) {
        let size = bytes(&values);
        let follows = |relayed: &Relayed| relayed.index + relayed.values.len() as u64 == index;
        let fits = |relayed: &Relayed| {
            relayed.bytes + size <= STORE_BYTES && relayed.values.len() + values.len() <= MERGED_OUTPUTS
        };
        if self.relayed.as_ref().is_some_and(|relayed| !follows(relayed) || !fits(relayed)) {
            self.store().await;
        }
        let outputs = JobMessage::Outputs { index, values: values.clone() };
        let Some(is_needed) = self.gateway.relay(self.report(outputs)).await else {
            self.send(vec![JobMessage::Outputs { index, values }]).await;
            return;
        };
        let now = Instant::now();
        let none = || Relayed { index, values: Vec::new(), bytes: 0, first_at: now, last_at: now };
        let relayed = self.relayed.get_or_insert_with(none);
        relayed.values.extend(values);
        relayed.bytes += size;
        relayed.last_at = now;
        if is_needed {
            self.store().await;
        }
    }

    /// Stores the outputs that were relayed.
    async fn store(&mut self) {
        if let Some(Relayed { index, values, .. }) = self.relayed.take() {
            self.call(vec![JobMessage::Outputs { index, values }], OutputHandling::StoreRelayed).await;
        }
    }

    /// Stores messages, after the outputs that were relayed before them.
    async fn send(&mut self, messages: Vec<JobMessage>) {
        let before = self.relayed.take().map(|Relayed { index, values, .. }| JobMessage::Outputs { index, values });
        self.call(before.into_iter().chain(messages).collect(), OutputHandling::Store).await;
    }

    async fn call(&mut self, messages: Vec<JobMessage>, outputs: OutputHandling) {
        let shows = shows(&messages);
        if self.try_call(messages, outputs).await {
            self.shown = self.shown.max(shows);
        }
    }

    /// Returns whether the gateway accepted the messages.
    async fn try_call(&mut self, messages: Vec<JobMessage>, outputs: OutputHandling) -> bool {
        let lost = |error: Error| {
            tracing::warn!(job.id = %self.lease.job_id, %error, "cannot send messages of a job; they are lost");
        };
        if self.knows_several {
            match self.gateway.events(&self.request(&messages, outputs)).await {
                // The gateway kept none of them, because it does not support merged outputs.
                Err(Error::Refused { .. }) if messages.iter().any(|one| matches!(one, JobMessage::Outputs { .. })) => {
                    self.knows_several = false;
                }
                outcome => return outcome.map_err(lost).is_ok(),
            }
        }
        let mut are_taken = true;
        for part in singly(messages).chunks(BATCH) {
            are_taken &= self.gateway.events(&self.request(part, OutputHandling::Store)).await.map_err(lost).is_ok();
        }
        are_taken
    }

    fn request(&self, messages: &[JobMessage], outputs: OutputHandling) -> EventsRequest {
        EventsRequest { events: messages.iter().map(|event| self.report(event.clone())).collect(), outputs }
    }

    fn report(&self, event: JobMessage) -> JobEventReport {
        let LeaseRef { job_id, fence } = &self.lease;
        JobEventReport { job_id: *job_id, fence: fence.clone(), event }
    }
}

/// The number of outputs that readers know of after these messages, received or known to be missing.
fn shows(messages: &[JobMessage]) -> u64 {
    let shows = |message: &JobMessage| match message {
        JobMessage::Output { index, .. } => index + 1,
        JobMessage::Outputs { index, values } => index + values.len() as u64,
        JobMessage::Log { .. } | JobMessage::Progress { .. } => 0,
    };
    messages.iter().map(shows).max().unwrap_or(0)
}

/// Splits merged outputs into single ones.
pub(super) fn singly(messages: Vec<JobMessage>) -> Vec<JobMessage> {
    let mut out = Vec::with_capacity(messages.len());
    for message in messages {
        match message {
            JobMessage::Outputs { index, values } => {
                out.extend((index..).zip(values).map(|(index, value)| JobMessage::Output { index, value }));
            }
            other => out.push(other),
        }
    }
    out
}
