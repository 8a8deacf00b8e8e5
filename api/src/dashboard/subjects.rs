//! The subjects that clients of this replica follow.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::error::{Code, Problem};
use crate::tenants::shares::{Share, Shares};

/// Maximum number of subjects that one replica polls at a time.
const SUBJECTS_MAX: usize = 1_000;

/// Maximum number of streams of one tenant on one replica.
pub(crate) const STREAMS_MAX: usize = 32;

/// Subjects that a client can follow.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    /// The waiting jobs.
    Queue,
    /// The workers and instances.
    Fleet,
    /// A tenant's jobs.
    Jobs(String),
    /// A tenant's batches.
    Batches(String),
    /// The costs of a tenant's jobs today; `None` means all tenants.
    Costs(Option<String>),
}

/// State of a subject, as JSON; `None` before the first poll.
pub(crate) type Latest = Option<Arc<str>>;

/// The followers of each subject.
pub(crate) struct Live {
    subjects: Mutex<HashMap<Subject, watch::Sender<Latest>>>,
    streams: Shares,
}

impl Default for Live {
    fn default() -> Self {
        Self { subjects: Mutex::default(), streams: Shares::new(STREAMS_MAX) }
    }
}

impl Live {
    /// Takes a permit for another stream of a tenant.
    pub(crate) fn permit(&self, tenant: &str) -> Result<Share, Problem> {
        self.streams.take(tenant).ok_or_else(|| {
            Problem::new(
                Code::RateLimited,
                format!("this tenant already has {STREAMS_MAX} open streams on this replica; close one"),
            )
        })
    }

    /// Stops polling if no client follows.
    pub(super) fn leave(&self, subject: &Subject) -> bool {
        let mut subjects = lock(&self.subjects);
        let is_unfollowed = subjects.get(subject).is_none_or(|sender| sender.receiver_count() == 0);
        if is_unfollowed {
            subjects.remove(subject);
        }
        is_unfollowed
    }

    /// Follows a subject. For its first follower this also returns the sender, which a task must then feed.
    pub(super) fn follow(
        &self,
        subject: &Subject,
    ) -> Result<(watch::Receiver<Latest>, Option<watch::Sender<Latest>>), Problem> {
        let mut subjects = lock(&self.subjects);
        if let Some(sender) = subjects.get(subject) {
            return Ok((sender.subscribe(), None));
        }
        if subjects.len() >= SUBJECTS_MAX {
            return Err(Problem::new(
                Code::RateLimited,
                "too many live streams are open on this replica; try again later",
            ));
        }
        let (sender, receiver) = watch::channel(None);
        subjects.insert(subject.clone(), sender.clone());
        Ok((receiver, Some(sender)))
    }
}

/// Locks the value. It is consistent at every unlock, so a poisoned lock is safe to use.
fn lock<T>(guarded: &Mutex<T>) -> MutexGuard<'_, T> {
    guarded.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_so_many_streams_and_gets_those_back_that_it_closes() {
        let live = Live::default();
        let permits: Vec<Share> = (0..STREAMS_MAX).map(|_| live.permit("acme").unwrap()).collect();
        assert_eq!(live.permit("acme").err().map(|problem| problem.code()), Some(Code::RateLimited));
        assert!(live.permit("rival").is_ok());
        drop(permits);
        assert!(live.permit("acme").is_ok());
    }

    #[test]
    fn what_nobody_follows_is_let_go_of() {
        let live = Live::default();
        let (sender, receiver) = watch::channel(None);
        lock(&live.subjects).insert(Subject::Queue, sender);
        assert!(!live.leave(&Subject::Queue));
        drop(receiver);
        assert!(live.leave(&Subject::Queue) && lock(&live.subjects).is_empty());
    }
}
