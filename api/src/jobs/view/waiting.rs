//! Views of the reasons for which a job has not started.

use serde::Serialize;
use utoipa::ToSchema;

use crate::jobs::waiting::Explanation;
use crate::workers::fleet::Waiting;

/// Why a job has not started.
#[derive(Serialize, ToSchema)]
#[schema(as = Waiting)]
pub(crate) struct WaitingView {
    reason: WaitingReason,
    /// The reason in words.
    message: String,
    /// Seconds until the job is expected to start; absent if unknown, or if a step takes longer than usual.
    #[serde(skip_serializing_if = "Option::is_none")]
    estimate_s: Option<u64>,
    /// The number of jobs that are expected to start before it; absent if there are none, and in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    ahead: Option<u64>,
    /// Seconds since this phase began; absent if unknown, and in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    phase_s: Option<u64>,
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
    /// Workers that could run it are occupied, and other jobs start before it.
    BehindOthers,
    /// An instance for it is being rented.
    Renting,
    /// An instance for it boots: its worker has not joined yet.
    Booting,
    /// Its worker builds the Python environment.
    Environment,
    /// Its worker downloads the weights or loads the model.
    Loading,
    /// It is about to start.
    Soon,
}

impl WaitingView {
    /// The reason in words.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }
}

impl From<Waiting> for WaitingView {
    fn from(waiting: Waiting) -> Self {
        Explanation::from(waiting).into()
    }
}

impl From<Explanation> for WaitingView {
    fn from(Explanation { waiting, estimate_s, ahead, phase_s }: Explanation) -> Self {
        let (reason, message) = match waiting {
            Waiting::Unschedulable(why) => (WaitingReason::Unschedulable, why),
            Waiting::Busy(why) => (WaitingReason::Busy, why),
            Waiting::Budget(why) => (WaitingReason::Budget, why),
            Waiting::Limit(why) => (WaitingReason::Limit, why),
            Waiting::Key(why) => (WaitingReason::ConcurrencyKey, why),
            Waiting::Dependency(why) => (WaitingReason::Dependency, why),
            Waiting::Behind(why) => (WaitingReason::BehindOthers, why),
            Waiting::Renting(why) => (WaitingReason::Renting, why),
            Waiting::Booting(why) => (WaitingReason::Booting, why),
            Waiting::Environment(why) => (WaitingReason::Environment, why),
            Waiting::Loading(why) => (WaitingReason::Loading, why),
            Waiting::Soon => (WaitingReason::Soon, "a worker that can run it is free".to_owned()),
        };
        Self { reason, message, estimate_s, ahead, phase_s }
    }
}
