//! What a running job says, on its way to the gateway: in batches, never in the run's way.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stokehold_queue::gateway::{EventsRequest, JobEventReport, JobMessage, LeaseRef};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::gateway::Gateway;

/// Waiting messages of one run; more are lost.
const BACKLOG: usize = 1_000;

/// What goes into one call, and how long the first waits for the others.
const BATCH: usize = 200;
const LINGER: Duration = Duration::from_millis(100);

/// How long a finished run waits for its last messages to be told: after its end they would be refused.
const LAST_CALL: Duration = Duration::from_secs(10);

/// The way of one run's messages. Most runs never say anything, so it begins with the first one.
pub(crate) struct Messages {
    heard_by: Hearer,
    way: Mutex<Option<(mpsc::Sender<JobMessage>, JoinHandle<()>)>>,
}

/// Whom they are told.
enum Hearer {
    /// The gateway, for this lease.
    Gateway(Arc<Gateway>, LeaseRef),
    /// Whoever has the other end.
    Here(mpsc::UnboundedSender<JobMessage>),
    /// Of a model that warms up.
    Nobody,
}

impl Messages {
    pub(crate) fn new(gateway: Arc<Gateway>, lease: LeaseRef) -> Self {
        Self::to(Hearer::Gateway(gateway, lease))
    }

    /// Of a run that nobody listens to.
    pub(crate) fn unheard() -> Self {
        Self::to(Hearer::Nobody)
    }

    /// Of a run that whoever started it listens to.
    pub(crate) fn heard_here(ear: mpsc::UnboundedSender<JobMessage>) -> Self {
        Self::to(Hearer::Here(ear))
    }

    fn to(heard_by: Hearer) -> Self {
        Self { heard_by, way: Mutex::default() }
    }

    /// Takes one, unless too many wait already.
    pub(crate) fn take(&self, message: JobMessage) -> bool {
        let (gateway, lease) = match &self.heard_by {
            Hearer::Gateway(gateway, lease) => (gateway, lease),
            Hearer::Here(ear) => return ear.send(message).is_ok(),
            Hearer::Nobody => return true,
        };
        let mut way = self.lock();
        let (sender, _) = way.get_or_insert_with(|| {
            let (sender, inbox) = mpsc::channel(BACKLOG);
            (sender, tokio::spawn(forward(Arc::clone(gateway), lease.clone(), inbox)))
        });
        sender.try_send(message).is_ok()
    }

    /// Waits until what was said has been told, for a while. Nothing may be said afterwards.
    pub(crate) async fn told(&self) {
        let Some((sender, task)) = self.lock().take() else { return };
        drop(sender);
        let abort = task.abort_handle();
        if timeout(LAST_CALL, task).await.is_err() {
            tracing::warn!("the last messages of a run could not be told in time");
            abort.abort();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(mpsc::Sender<JobMessage>, JoinHandle<()>)>> {
        self.way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn forward(gateway: Arc<Gateway>, lease: LeaseRef, mut inbox: mpsc::Receiver<JobMessage>) {
    while let Some(first) = inbox.recv().await {
        let (mut batch, by) = (vec![first], Instant::now() + LINGER);
        while batch.len() < BATCH {
            match timeout_at(by, inbox.recv()).await {
                Ok(Some(message)) => batch.push(message),
                Ok(None) | Err(_) => break,
            }
        }
        let events = merged(batch)
            .into_iter()
            .map(|event| JobEventReport { job_id: lease.job_id, fence: lease.fence.clone(), event })
            .collect();
        if let Err(error) = gateway.events(&EventsRequest { events }).await {
            tracing::warn!(job.id = %lease.job_id, %error, "messages lost");
        }
    }
}

/// Neighbouring pieces of the same stream become one, within the bound of a message; of progress only the latest counts.
fn merged(messages: Vec<JobMessage>) -> Vec<JobMessage> {
    const TEXT_BYTES_MAX: usize = 64 * 1024;
    let mut out: Vec<JobMessage> = Vec::with_capacity(messages.len());
    for message in messages {
        match (out.last_mut(), message) {
            (Some(JobMessage::Log { stream: last, text }), JobMessage::Log { stream, text: more })
                if *last == stream && text.len() + more.len() <= TEXT_BYTES_MAX =>
            {
                text.push_str(&more);
            }
            (Some(last @ JobMessage::Progress { .. }), newer @ JobMessage::Progress { .. }) => *last = newer,
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
mod tests {
    use stokehold_queue::gateway::LogStream;

    use super::*;

    fn log(text: &str) -> JobMessage {
        JobMessage::Log { stream: LogStream::Stdout, text: text.to_owned() }
    }

    #[test]
    fn neighbours_merge_and_order_stays() {
        let progress = |fraction| JobMessage::Progress { fraction, message: String::new() };
        let merged = merged(vec![log("a\n"), log("b\n"), progress(0.1), progress(0.2), log("c\n")]);
        assert_eq!(merged.len(), 3);
        assert!(matches!(&merged[0], JobMessage::Log { text, .. } if text == "a\nb\n"));
        assert!(matches!(merged[1], JobMessage::Progress { fraction, .. } if fraction > 0.15));
    }

    #[test]
    fn a_long_text_is_cut_at_characters() {
        let text = "é".repeat(100_000);
        let merged = merged(vec![log(&text)]);
        let joined: String = merged
            .iter()
            .filter_map(|m| if let JobMessage::Log { text, .. } = m { Some(text.as_str()) } else { None })
            .collect();
        assert!(merged.len() > 2);
        assert_eq!(joined, text);
    }
}
