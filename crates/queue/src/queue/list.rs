//! Lists: the jobs of a tenant, and the depth of lanes.

use crate::job::{ErrorCode, Job, JobSpec, JobState, Priority};

/// The jobs to list.
#[derive(Debug, Clone, Default)]
pub struct ListFilter {
    /// Only jobs in this state.
    pub state: Option<JobState>,
    /// Only jobs of this endpoint.
    pub endpoint: Option<String>,
    /// Only jobs with all of these labels.
    pub metadata: Vec<(String, String)>,
    /// Only lines of this batch.
    pub batch: Option<String>,
    /// Only jobs of this schedule.
    pub schedule: Option<String>,
    /// Only jobs of this priority.
    pub priority: Option<Priority>,
    /// Only jobs that failed with this error code.
    pub error_code: Option<ErrorCode>,
}

impl ListFilter {
    /// Whether every job matches.
    #[must_use]
    pub fn takes_all(&self) -> bool {
        let Self { state, endpoint, metadata, batch, schedule, priority, error_code } = self;
        state.is_none()
            && endpoint.is_none()
            && metadata.is_empty()
            && batch.is_none()
            && schedule.is_none()
            && priority.is_none()
            && error_code.is_none()
    }

    /// Whether a job with this state, spec and last error matches.
    #[must_use]
    pub fn matches(&self, state: JobState, spec: &JobSpec, error_code: Option<ErrorCode>) -> bool {
        let Self { state: wanted, endpoint, metadata, batch, schedule, priority, error_code: code } = self;
        wanted.is_none_or(|wanted| wanted == state)
            && endpoint.as_ref().is_none_or(|wanted| *wanted == spec.endpoint)
            && metadata.iter().all(|(key, value)| spec.metadata.get(key) == Some(value))
            && batch.as_ref().is_none_or(|wanted| spec.batch.as_ref().is_some_and(|line| line.id == *wanted))
            && schedule.as_ref().is_none_or(|wanted| spec.schedule.as_ref() == Some(wanted))
            && priority.is_none_or(|wanted| wanted == spec.priority)
            && code.is_none_or(|wanted| error_code == Some(wanted))
    }
}

/// One page of a list, newest first.
#[derive(Debug, Clone)]
pub struct JobPage {
    /// The jobs.
    pub jobs: Vec<Job>,
    /// The cursor of the next page; `None` at the end. A page can be short or empty even if more pages follow.
    pub next_cursor: Option<String>,
}

/// The depth of one lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneDepth {
    /// The name: `<priority digit>:<class>:<tenant>:<endpoint>`.
    pub lane: String,
    /// Number of ready jobs.
    pub jobs: u64,
    /// Time at which the first of them became ready, Unix milliseconds; `None` if all wait for a concurrency key.
    pub since_ms: Option<u64>,
}
