//! Work to settle: jobs that have ended or wait for nothing more, and the decisions on them.

use serde_json::value::RawValue;

use crate::id::JobId;
use crate::job::{JobError, NewJob, StepRun};

/// Work for `settle`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Due {
    /// A job has ended and others may wait for it: [`Queue::unblock`](crate::Queue::unblock).
    Ended(JobId),
    /// A blocked job waits for nothing more: [`Queue::settle`](crate::Queue::settle).
    Ready(JobId),
}

impl Due {
    /// The job.
    #[must_use]
    pub fn id(self) -> JobId {
        match self {
            Self::Ended(id) | Self::Ready(id) => id,
        }
    }
}

/// The decision on a blocked job.
#[derive(Debug, Clone)]
pub struct Settlement {
    /// The job.
    pub id: JobId,
    /// [`Job::revision`](crate::job::Job::revision) at the time of the decision.
    pub revision: String,
    /// The job's new steps.
    pub steps: Vec<StepRun>,
    /// The verdict.
    pub verdict: Verdict,
}

/// The verdict on a blocked job.
#[derive(Debug, Clone)]
pub enum Verdict {
    /// The job may run, with this input if it changed.
    Queue {
        /// The input, JSON.
        input: Option<Box<RawValue>>,
    },
    /// A step of the job runs next; the job waits for it.
    Step {
        /// The job's own input, if it changed.
        input: Option<Box<RawValue>>,
        /// The job that runs the step.
        job: Box<NewJob>,
    },
    /// The job has succeeded, with this result if it differs from its attempt's.
    Succeed {
        /// The result, JSON, at most [`crate::job::INLINE_RESULT_BYTES`].
        result: Option<Box<RawValue>>,
    },
    /// The job has failed.
    Fail {
        /// The error.
        error: JobError,
    },
}
