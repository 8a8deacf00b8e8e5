//! State of a machine, derived from its Job and its pod. Pure.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;

use crate::provider::RentalState;

/// Reasons of a pod's end without a failure of its own: its node is gone or was shut down, or it was preempted.
const LOST: [&str; 7] = [
    "DeletionByPodGC",
    "DeletionByTaintManager",
    "NodeLost",
    "NodeShutdown",
    "Preempting",
    "PreemptionByScheduler",
    "Terminated",
];

/// Waiting reasons of a container that will not start.
const NEVER: [&str; 7] = [
    "CrashLoopBackOff",
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImageInspectError",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
];

/// State of a pod.
pub(super) fn of_pod(pod: &Pod) -> RentalState {
    if pod.metadata.deletion_timestamp.is_some() {
        return RentalState::Lost;
    }
    let Some(status) = &pod.status else { return RentalState::Starting };
    match status.phase.as_deref().unwrap_or_default() {
        "Failed" => {
            let conditions = status.conditions.iter().flatten().filter(|condition| condition.status == "True");
            let disrupted = conditions.filter(|condition| condition.type_ == "DisruptionTarget");
            let reasons = disrupted.filter_map(|condition| condition.reason.as_deref()).chain(status.reason.as_deref());
            if reasons.into_iter().any(|reason| LOST.contains(&reason)) {
                RentalState::Lost
            } else {
                RentalState::Broken
            }
        }
        "Succeeded" => RentalState::Broken,
        "Unknown" => RentalState::Lost,
        _ if status.reason.as_deref() == Some("NodeLost") => RentalState::Lost,
        phase => {
            let waiting =
                status.container_statuses.iter().flatten().filter_map(|status| status.state.as_ref()?.waiting.as_ref());
            let mut reasons = waiting.filter_map(|waiting| waiting.reason.as_deref());
            match phase {
                _ if reasons.any(|reason| NEVER.contains(&reason)) => RentalState::Broken,
                "Running" => RentalState::Running,
                _ => RentalState::Starting,
            }
        }
    }
}

/// State of a Job with its pods. All are of one machine; the pod in the best state determines the result.
pub(super) fn of_job(job: &Job, pods: &[&Pod]) -> RentalState {
    if job.metadata.deletion_timestamp.is_some() {
        return RentalState::Lost;
    }
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ended = ["Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"];
    let has_ended =
        conditions.into_iter().any(|condition| condition.status == "True" && ended.contains(&condition.type_.as_str()));
    match (has_ended, of_pods(pods)) {
        (true, Some(RentalState::Lost)) => RentalState::Lost,
        (true, _) => RentalState::Broken,
        (false, Some(state)) => state,
        (false, None) => RentalState::Starting,
    }
}

/// State of a machine that has these pods; `None` without any.
pub(super) fn of_pods(pods: &[&Pod]) -> Option<RentalState> {
    let worth = |state: &RentalState| match state {
        RentalState::Running => 4,
        RentalState::Starting => 3,
        RentalState::Lost => 2,
        RentalState::Broken => 1,
        RentalState::Stopped => 0,
    };
    pods.iter().map(|pod| of_pod(pod)).max_by_key(worth)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::{Value, json};

    use super::*;

    fn pod(status: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "m-1-x"}, "status": status})).unwrap()
    }

    fn waiting(phase: &str, reason: &str) -> Value {
        json!({"phase": phase, "containerStatuses": [{"name": "worker", "image": "i", "imageID": "", "ready": false,
            "restartCount": 0, "state": {"waiting": {"reason": reason}}}]})
    }

    fn disrupted(reason: &str) -> Value {
        json!({"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": reason}]})
    }

    #[test]
    fn a_pod_is_what_its_conditions_say() {
        use RentalState::{Broken, Lost, Running, Starting};
        let unschedulable = json!({"phase": "Pending", "conditions":
            [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]});
        for (status, state) in [
            (json!({}), Starting),
            (unschedulable, Starting),
            (waiting("Pending", "ContainerCreating"), Starting),
            (waiting("Pending", "CreateContainerConfigError"), Starting),
            (json!({"phase": "Running"}), Running),
            (waiting("Pending", "ImagePullBackOff"), Broken),
            (waiting("Pending", "ErrImagePull"), Broken),
            (waiting("Running", "CrashLoopBackOff"), Broken),
            (json!({"phase": "Failed"}), Broken),
            (json!({"phase": "Failed", "reason": "Evicted"}), Broken),
            (disrupted("TerminationByKubelet"), Broken),
            (disrupted("DeletionByPodGC"), Lost),
            (disrupted("PreemptionByScheduler"), Lost),
            (json!({"phase": "Running", "reason": "NodeLost"}), Lost),
            (json!({"phase": "Unknown"}), Lost),
            (json!({"phase": "Succeeded"}), Broken),
        ] {
            assert_eq!(of_pod(&pod(status.clone())), state, "{status}");
        }
    }

    #[test]
    fn a_job_that_has_ended_never_runs_and_one_without_a_pod_is_on_its_way() {
        let job = |condition: &str| -> Job {
            let conditions = json!([{"type": condition, "status": "True"}]);
            serde_json::from_value(json!({"metadata": {"name": "m-1"}, "status": {"conditions": conditions}})).unwrap()
        };
        assert_eq!(of_job(&job("Suspended"), &[]), RentalState::Starting);
        assert_eq!(of_job(&job("Failed"), &[]), RentalState::Broken);
        assert_eq!(of_job(&job("Failed"), &[&pod(disrupted("DeletionByPodGC"))]), RentalState::Lost);
        assert_eq!(of_job(&job("Complete"), &[&pod(json!({"phase": "Succeeded"}))]), RentalState::Broken);
        let (lost, runs) = (pod(json!({"phase": "Unknown"})), pod(json!({"phase": "Running"})));
        assert_eq!(of_job(&job("Suspended"), &[&lost, &runs]), RentalState::Running);
    }
}
