//! The signals that API replicas and the autoscaler receive.

use crate::id::JobId;

/// The replica name of the autoscaler, which listens for [`Signal::Unmet`].
pub const AUTOSCALER: &str = "autoscaler";

/// Time for which a replica receives the changes of a job that it watches, milliseconds; reading the job again extends
/// it.
pub(crate) const WATCH_MS: u64 = 60_000;

/// A signal that a replica receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signal {
    /// A parked lease poll may now find a job. A wakeup without a waiter must be passed on
    /// ([`Queue::wake_next`](crate::Queue::wake_next)).
    Wake(u64),
    /// A watched job changed its state or has a new event.
    Job(JobId),
    /// A watched job has new outputs, which are not stored yet.
    Outputs(RelayedOutputs),
    /// There is work that any replica can do; the first one takes it.
    Work(Work),
    /// Work is ready and no worker waits for it: sent only to the replica [`AUTOSCALER`], at most twice a second.
    Unmet,
    /// The connection was lost and is back: signals may have been missed, so check everything again.
    Missed,
}

/// Outputs on their way to a replica. Its text is `<job> <attempt> <index> <values>`, after the word of the signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayedOutputs {
    /// The job.
    pub job_id: JobId,
    /// The attempt that yielded them.
    pub attempt: u32,
    /// The index of the first.
    pub index: u64,
    /// The outputs, as a JSON array.
    pub values: String,
}

impl RelayedOutputs {
    /// The word with which the signal begins.
    pub(crate) const WORD: &str = "outputs";

    /// Parses what follows the word.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(4, ' ');
        let (job_id, attempt, index) =
            (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { job_id, attempt, index, values: parts.next()?.to_owned() })
    }
}

impl std::fmt::Display for RelayedOutputs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { job_id, attempt, index, values } = self;
        write!(f, "{} {job_id} {attempt} {index} {values}", Self::WORD)
    }
}

/// The kinds of work that replicas are notified of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Work {
    /// A webhook is due for delivery.
    Hooks,
    /// A job that others wait for has ended.
    Settle,
    /// A batch has something to feed, collect or complete.
    Batches,
}

impl Work {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Hooks, Self::Settle, Self::Batches];

    /// The name that scripts publish.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hooks => "hooks",
            Self::Settle => "settle",
            Self::Batches => "batches",
        }
    }

    /// Parses a kind.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|work| work.as_str() == word)
    }
}
