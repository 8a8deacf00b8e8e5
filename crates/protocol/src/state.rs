//! The table of transitions between job states. The Lua scripts implement the same; `tests/model.rs` checks both
//! against it.

use crate::job::JobState;

/// The events of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobEvent {
    /// A worker leases the job.
    Lease,
    /// The attempt ended with a result.
    Succeed,
    /// The attempt ended with a result that steps must allow first.
    Hold,
    /// The attempt failed and the retry budget allows another: the job waits for the backoff.
    Retry,
    /// The attempt failed, or was lost, and the retry budget is exhausted.
    Fail,
    /// The worker returns the job without running it to its end.
    Release,
    /// The job needs a larger GPU: it is requeued in that class.
    Reshelve,
    /// The lease expired.
    Reap,
    /// The start time has come.
    Promote,
    /// The last dependency has ended.
    Unblock,
    /// Like [`JobEvent::Unblock`], before its start time.
    Defer,
    /// The last step after the job has allowed its result.
    Allow,
    /// The owner cancels the job.
    Cancel,
    /// The deadline passed.
    Expire,
}

impl JobEvent {
    /// Every event.
    pub const ALL: [Self; 14] = [
        Self::Lease,
        Self::Succeed,
        Self::Hold,
        Self::Retry,
        Self::Fail,
        Self::Release,
        Self::Reshelve,
        Self::Reap,
        Self::Promote,
        Self::Unblock,
        Self::Defer,
        Self::Allow,
        Self::Cancel,
        Self::Expire,
    ];
}

/// A transition that is not in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a {} job cannot {event:?}", state.as_str())]
pub struct IllegalMove {
    /// The state of the job.
    pub state: JobState,
    /// The event.
    pub event: JobEvent,
}

/// The state after `event`.
///
/// # Errors
/// [`IllegalMove`] with both values if the table has no such transition.
pub fn next(state: JobState, event: JobEvent) -> Result<JobState, IllegalMove> {
    use JobEvent as E;
    use JobState as S;
    match (state, event) {
        (S::Scheduled, E::Promote) | (S::Blocked, E::Unblock) | (S::Running, E::Release | E::Reshelve | E::Reap) => {
            Ok(S::Queued)
        }
        (S::Queued, E::Lease) => Ok(S::Running),
        (S::Running, E::Succeed) | (S::Blocked, E::Allow) => Ok(S::Succeeded),
        (S::Running, E::Hold) => Ok(S::Blocked),
        (S::Running, E::Retry) | (S::Blocked, E::Defer) => Ok(S::Scheduled),
        (S::Running | S::Blocked, E::Fail) => Ok(S::Failed),
        (S::Scheduled | S::Blocked | S::Queued | S::Running, E::Cancel) => Ok(S::Cancelled),
        (S::Scheduled | S::Blocked | S::Queued | S::Running, E::Expire) => Ok(S::Expired),

        (
            S::Scheduled,
            E::Lease
            | E::Succeed
            | E::Hold
            | E::Retry
            | E::Fail
            | E::Release
            | E::Reshelve
            | E::Reap
            | E::Unblock
            | E::Defer
            | E::Allow,
        )
        | (S::Blocked, E::Lease | E::Succeed | E::Hold | E::Retry | E::Release | E::Reshelve | E::Reap | E::Promote)
        | (
            S::Queued,
            E::Succeed
            | E::Hold
            | E::Retry
            | E::Fail
            | E::Release
            | E::Reshelve
            | E::Reap
            | E::Promote
            | E::Unblock
            | E::Defer
            | E::Allow,
        )
        | (S::Running, E::Lease | E::Promote | E::Unblock | E::Defer | E::Allow)
        | (
            S::Succeeded | S::Failed | S::Cancelled | S::Expired,
            E::Lease
            | E::Succeed
            | E::Hold
            | E::Retry
            | E::Fail
            | E::Release
            | E::Reshelve
            | E::Reap
            | E::Promote
            | E::Unblock
            | E::Defer
            | E::Allow
            | E::Cancel
            | E::Expire,
        ) => Err(IllegalMove { state, event }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_job_never_moves_again() {
        for state in JobState::ALL.into_iter().filter(|state| state.is_terminal()) {
            for event in JobEvent::ALL {
                assert_eq!(next(state, event), Err(IllegalMove { state, event }));
            }
        }
    }

    #[test]
    fn every_open_state_can_still_be_ended_by_its_owner() {
        for state in JobState::ALL.into_iter().filter(|state| !state.is_terminal()) {
            assert_eq!(next(state, JobEvent::Cancel), Ok(JobState::Cancelled));
        }
    }

    #[test]
    fn only_a_running_job_can_get_a_result_and_only_a_held_one_can_be_allowed() {
        for state in JobState::ALL {
            assert_eq!(next(state, JobEvent::Succeed).is_ok(), state == JobState::Running);
            assert_eq!(next(state, JobEvent::Allow).is_ok(), state == JobState::Blocked);
        }
    }
}
