//! Sends the messages of running jobs to the gateway in batches, without slowing down the run.

mod send;

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use stokehold_protocol::gateway::{JobMessage, LeaseRef};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use crate::gateway::Gateway;

/// Maximum number and size of waiting messages of one run; more are dropped. Merged outputs count as one message.
const BACKLOG: usize = 1_000;
const BACKLOG_BYTES: usize = 8 << 20;

/// Maximum number and size of messages in one call, and how long the first waits for others.
const BATCH: usize = 200;
const BATCH_BYTES: usize = 1 << 20;
const LINGER: Duration = Duration::from_millis(50);

/// Outputs are sent at moments this far apart, which are the same for all runs of the worker, so that they share calls.
/// The first calls of a run do not wait, because an engine may send a head without text before its first token, and
/// neither does the first output since the last such moment.
const OUTPUTS_EVERY: Duration = Duration::from_millis(20);
const CALLS_AT_ONCE: u32 = 3;

/// Maximum size and number of outputs that are merged into one message: readers see them slightly later, but the gateway
/// and Redis need not process each token.
const MERGED_BYTES: usize = 16 << 10;
const MERGED_OUTPUTS: usize = 500;

/// Maximum time that a finished run waits for its last messages to be sent: after its end they would be rejected.
const LAST_CALL: Duration = Duration::from_secs(10);

/// The message queue of one run. It starts with the first message, because most runs send none.
pub(crate) struct Messages {
    recipient: Recipient,
    way: Mutex<Option<(Arc<Pending>, JoinHandle<()>)>>,
}

/// Destination of messages.
enum Recipient {
    /// The gateway, for this lease.
    Gateway(Arc<Gateway>, LeaseRef),
    /// A channel of the caller.
    Local(mpsc::UnboundedSender<JobMessage>),
    /// None, for warm-up runs.
    Discard,
}

impl Messages {
    pub(crate) fn new(gateway: Arc<Gateway>, lease: LeaseRef) -> Self {
        Self::to(Recipient::Gateway(gateway, lease))
    }

    /// For a run whose messages are discarded.
    pub(crate) fn discarded() -> Self {
        Self::to(Recipient::Discard)
    }

    /// For a run whose messages go to the caller's channel.
    pub(crate) fn local(sender: mpsc::UnboundedSender<JobMessage>) -> Self {
        Self::to(Recipient::Local(sender))
    }

    fn to(recipient: Recipient) -> Self {
        Self { recipient, way: Mutex::default() }
    }

    /// Adds a message. `false` if too many are waiting.
    pub(crate) fn take(&self, message: JobMessage) -> bool {
        let (gateway, lease) = match &self.recipient {
            Recipient::Gateway(gateway, lease) => (gateway, lease),
            Recipient::Local(sender) => return sender.send(message).is_ok(),
            Recipient::Discard => return true,
        };
        let mut way = self.way.lock();
        let (pending, _) = way.get_or_insert_with(|| {
            let pending = Arc::new(Pending::default());
            (Arc::clone(&pending), tokio::spawn(send::forward(Arc::clone(gateway), lease.clone(), pending)))
        });
        pending.put(message)
    }

    /// Records an output that is not sent as a message, so that readers can detect that it is missing.
    pub(crate) fn leave_out(&self, index: u64) {
        if let Some((pending, _)) = &*self.way.lock() {
            let mut waiting = pending.waiting.lock();
            waiting.outputs = waiting.outputs.max(index + 1);
        }
    }

    /// Waits until all messages are sent, up to a timeout. No message may be added afterwards.
    pub(crate) async fn flush(&self) {
        let Some((pending, task)) = self.way.lock().take() else { return };
        pending.close();
        let abort = task.abort_handle();
        if timeout(LAST_CALL, task).await.is_err() {
            tracing::warn!("the last messages of a run could not be sent in time");
            abort.abort();
        }
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        if let Some((pending, _)) = &*self.way.lock() {
            pending.close();
        }
    }
}

/// Messages that wait to be sent.
#[derive(Default)]
struct Pending {
    waiting: Mutex<Waiting>,
    bell: Notify,
}

#[derive(Default)]
struct Waiting {
    messages: VecDeque<JobMessage>,
    bytes: usize,
    /// Size of the newest message.
    newest_bytes: usize,
    /// Number of outputs that the run has yielded, whether added, left out or dropped.
    outputs: u64,
    /// Whether outputs are among the messages, and when the last ones were handed over.
    has_outputs: bool,
    outputs_sent: Option<Instant>,
    /// Number of calls with outputs, up to those that do not wait.
    calls: u32,
    closed: bool,
}

impl Waiting {
    /// Time at which the messages are sent at the latest, of which the first was seen at `since`.
    fn due(&self, since: Instant) -> Instant {
        if !self.has_outputs {
            return since + LINGER;
        }
        self.outputs_sent.filter(|_| self.calls >= CALLS_AT_ONCE).map_or(since, next_moment)
    }
}

/// The first moment after this one at which outputs are sent.
fn next_moment(after: Instant) -> Instant {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let every = OUTPUTS_EVERY.as_nanos();
    let past = after.saturating_duration_since(*START).as_nanos() % every;
    after + Duration::from_nanos(u64::try_from(every - past).unwrap_or_default())
}

impl Pending {
    fn put(&self, message: JobMessage) -> bool {
        let mut waiting = self.waiting.lock();
        let size = size(&message);
        if let JobMessage::Output { index, .. } = &message {
            waiting.outputs = waiting.outputs.max(index + 1);
        }
        let message = match message {
            JobMessage::Output { index, value } => {
                waiting.has_outputs = true;
                let fits = waiting.newest_bytes + size <= MERGED_BYTES;
                if let Some(JobMessage::Outputs { index: first, values }) = waiting.messages.back_mut()
                    && fits
                    && *first + values.len() as u64 == index
                    && values.len() < MERGED_OUTPUTS
                {
                    values.push(value);
                    waiting.bytes += size;
                    waiting.newest_bytes += size;
                    return true;
                }
                JobMessage::Outputs { index, values: vec![value] }
            }
            other => other,
        };
        if waiting.messages.len() >= BACKLOG || waiting.bytes + size > BACKLOG_BYTES {
            return false;
        }
        waiting.messages.push_back(message);
        waiting.bytes += size;
        waiting.newest_bytes = size;
        drop(waiting);
        self.bell.notify_one();
        true
    }

    fn close(&self) {
        self.waiting.lock().closed = true;
        self.bell.notify_one();
    }

    /// The messages of the next call, in order; `None` when all are sent.
    async fn batch(&self) -> Option<Vec<JobMessage>> {
        loop {
            let rung = self.bell.notified();
            {
                let waiting = self.waiting.lock();
                if !waiting.messages.is_empty() {
                    break;
                }
                if waiting.closed {
                    return None;
                }
            }
            rung.await;
        }
        let since = Instant::now();
        let due = || {
            let waiting = self.waiting.lock();
            let is_more = !waiting.closed && waiting.messages.len() < BATCH && waiting.bytes < BATCH_BYTES;
            is_more.then(|| waiting.due(since)).filter(|due| *due > Instant::now())
        };
        while let Some(due) = due() {
            tokio::select! {
                () = sleep_until(due) => break,
                () = self.bell.notified() => {}
            }
        }
        let mut waiting = self.waiting.lock();
        if std::mem::take(&mut waiting.has_outputs) {
            waiting.outputs_sent = Some(Instant::now());
            waiting.calls = CALLS_AT_ONCE.min(waiting.calls + 1);
        }
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < BATCH && bytes < BATCH_BYTES {
            let Some(message) = waiting.messages.pop_front() else { break };
            bytes += size(&message);
            batch.push(message);
        }
        waiting.bytes = waiting.bytes.saturating_sub(bytes);
        waiting.has_outputs |= waiting.messages.iter().any(|message| matches!(message, JobMessage::Outputs { .. }));
        Some(batch)
    }

    /// After the last message, a message with the number of outputs, if any, so that readers can detect missing ones.
    fn end(&self) -> Option<JobMessage> {
        let waiting = self.waiting.lock();
        let is_over = waiting.closed && waiting.messages.is_empty() && waiting.outputs > 0;
        is_over.then_some(JobMessage::Outputs { index: waiting.outputs, values: Vec::new() })
    }
}

/// Bytes that count for the bounds of messages.
pub(crate) fn size(message: &JobMessage) -> usize {
    match message {
        JobMessage::Progress { message, .. } => message.len(),
        JobMessage::Log { text, .. } => text.len(),
        JobMessage::Output { value, .. } => value.get().len(),
        JobMessage::Outputs { values, .. } => values.iter().map(|value| value.get().len()).sum(),
    }
}

/// Merges adjacent log pieces of the same stream, up to the maximum size of a message. Keeps progress reports separate,
/// unless there are more than a run normally sends during one batch: then only the latest of adjacent reports is kept.
fn merged(messages: Vec<JobMessage>) -> Vec<JobMessage> {
    const TEXT_BYTES_MAX: usize = 64 * 1024;
    const REPORTS_MAX: usize = 20;
    let reports = messages.iter().filter(|message| matches!(message, JobMessage::Progress { .. })).count();
    let mut out: Vec<JobMessage> = Vec::with_capacity(messages.len());
    for message in messages {
        match (out.last_mut(), message) {
            (Some(JobMessage::Log { stream: last, text }), JobMessage::Log { stream, text: more })
                if *last == stream && text.len() + more.len() <= TEXT_BYTES_MAX =>
            {
                text.push_str(&more);
            }
            (Some(last @ JobMessage::Progress { .. }), newer @ JobMessage::Progress { .. })
                if reports > REPORTS_MAX =>
            {
                *last = newer;
            }
            (_, JobMessage::Log { stream, text }) if text.len() > TEXT_BYTES_MAX => {
                let mut rest = text.as_str();
                while !rest.is_empty() {
                    let (piece, left) = rest.split_at(rest.floor_char_boundary(TEXT_BYTES_MAX));
                    out.push(JobMessage::Log { stream, text: piece.to_owned() });
                    rest = left;
                }
            }
            (_, message) => out.push(message),
        }
    }
    out
}

#[cfg(test)]
mod tests;
