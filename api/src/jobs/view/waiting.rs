//! Views of the reasons for which a job has not started.

use serde::Serialize;
use utoipa::ToSchema;

use crate::workers::fleet::Waiting;

/// Why a job has not started.
#[derive(Serialize, ToSchema)]
#[schema(as = Waiting)]
pub(crate) struct WaitingView {
    reason: WaitingReason,
    /// The reason in words.
    message: String,
}

/// The reasons why a job waits.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WaitingReason {
    /// No worker that is here could ever run it.
    Unschedulable,
    /// Workers that could run it are occupied.
    Busy,
    /// The budget of its tenant, or of its endpoint, is spent for today.
    Budget,
    /// A limit of its tenant, or of its endpoint, is reached: `max_running` or `starts_per_minute`; or its tenant is disabled.
    Limit,
    /// As many jobs with its concurrency key run as may.
    ConcurrencyKey,
    /// A job that it waits for, or one of its steps, has not ended.
    Dependency,
    /// It is about to start.
    Soon,
}

impl From<Waiting> for WaitingView {
    fn from(waiting: Waiting) -> Self {
        let (reason, message) = match waiting {
            Waiting::Unschedulable(why) => (WaitingReason::Unschedulable, why),
            Waiting::Busy(why) => (WaitingReason::Busy, why),
            Waiting::Budget(why) => (WaitingReason::Budget, why),
            Waiting::Limit(why) => (WaitingReason::Limit, why),
            Waiting::Key(why) => (WaitingReason::ConcurrencyKey, why),
            Waiting::Dependency(why) => (WaitingReason::Dependency, why),
            Waiting::Soon => (WaitingReason::Soon, "a worker that can run it is free".to_owned()),
        };
        Self { reason, message }
    }
}
