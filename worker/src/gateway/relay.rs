//! Merges calls that relay outputs: the sequences of an engine make their tokens at the same time, and each of their
//! runs relays its own.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use stokehold_protocol::gateway::{EVENTS_MAX, EventsRequest, JobEventReport, OutputHandling, RELAYED_BYTES_MAX};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::yield_now;
use tokio::time::timeout;

use super::Gateway;
use crate::messages::size;

/// Calls at a time. Outputs that come during them wait and share the next one, for at most `HOLD`: a gateway may be far
/// away.
const CALLS: usize = 2;
const HOLD: Duration = Duration::from_millis(5);

/// The outputs that wait for a call.
pub(super) struct Relay {
    waiting: Mutex<VecDeque<Waiting>>,
    calls: Semaphore,
}

struct Waiting {
    outputs: JobEventReport,
    /// Dropped if the call fails.
    reply: oneshot::Sender<bool>,
}

impl Default for Relay {
    fn default() -> Self {
        Self { waiting: Mutex::default(), calls: Semaphore::new(CALLS) }
    }
}

impl Relay {
    fn add(&self, outputs: JobEventReport) -> oneshot::Receiver<bool> {
        let (reply, receiver) = oneshot::channel();
        self.waiting.lock().push_back(Waiting { outputs, reply });
        receiver
    }

    /// The outputs of the next call.
    fn next(&self) -> Vec<Waiting> {
        let mut waiting = self.waiting.lock();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(first) = waiting.front() {
            bytes += size(&first.outputs.event);
            if batch.len() == EVENTS_MAX || (bytes > RELAYED_BYTES_MAX && !batch.is_empty()) {
                break;
            }
            batch.extend(waiting.pop_front());
        }
        batch
    }
}

impl Gateway {
    /// Relays outputs of one run to its readers. A run waits for the reply before it relays the next ones. Returns
    /// whether what it relayed so far should be stored; `None` if these could not be relayed.
    pub(crate) async fn relay(&self, outputs: JobEventReport) -> Option<bool> {
        let mut reply = self.relay.add(outputs);
        // Runs that send at the same moment come first.
        yield_now().await;
        loop {
            let permit = tokio::select! {
                biased;
                store = &mut reply => return store.ok(),
                permit = timeout(HOLD, self.relay.calls.acquire()) => permit,
            };
            let batch = self.relay.next();
            // Another run's call has these.
            if batch.is_empty() {
                drop(permit);
                return reply.await.ok();
            }
            self.relay_together(batch).await;
        }
    }

    async fn relay_together(&self, batch: Vec<Waiting>) {
        let (events, replies): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|Waiting { outputs, reply }| (outputs, reply)).unzip();
        let request = EventsRequest { events, outputs: OutputHandling::Relay };
        match self.events(&request).await {
            Ok(answer) => {
                for (outputs, reply) in request.events.iter().zip(replies) {
                    // The run may have been aborted.
                    let _ = reply.send(answer.store.contains(&outputs.job_id));
                }
            }
            Err(error) => tracing::debug!(%error, runs = replies.len(), "cannot relay outputs; storing them"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;
    use stokehold_protocol::gateway::JobMessage;
    use stokehold_protocol::{Fence, JobId};

    use super::*;

    #[test]
    fn a_call_has_what_waits_within_its_bounds() {
        let relay = Relay::default();
        let mut replies = Vec::new();
        let mut add = |bytes: usize| {
            let values = vec![RawValue::from_string(format!("\"{}\"", "x".repeat(bytes - 2))).unwrap()];
            let event = JobMessage::Outputs { index: 0, values };
            let outputs = JobEventReport { job_id: JobId::new(1), fence: Fence("1.a".to_owned()), event };
            replies.push(relay.add(outputs));
        };
        (0..5).for_each(|_| add(RELAYED_BYTES_MAX / 4));
        (0..EVENTS_MAX).for_each(|_| add(10));
        assert_eq!(relay.next().len(), 4);
        assert_eq!(relay.next().len(), EVENTS_MAX, "the fifth large one, and small ones");
        assert_eq!((relay.next().len(), relay.next().len()), (1, 0));
    }
}
