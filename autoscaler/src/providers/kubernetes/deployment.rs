//! The mode `deployment`: machines are pods of the operator's Deployment, which the autoscaler scales.
//!
//! Pods are created with a scheduling gate, so that none runs before it belongs to a machine. Claiming a pod writes the
//! machine's label and removes the gate in one patch. The worker gets its name from the label through the downward API.
//! An unclaimed pod is a spare: it is on no node and costs nothing.
//!
//! Releasing a machine deletes its pod. The Deployment then creates a spare in its place, and the scale-down removes
//! that spare. If the scale-down came first, the cluster would choose the pod, and it removes a booting pod before a
//! running one, whatever the `pod-deletion-cost`.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v1::{Scale, ScaleSpec};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::time::sleep;

use super::Owner;
use super::answer::CallError;
use super::call::{Call, Calls, DEPLOYMENTS, PODS, SCALES, Verb};
use super::names::{self, DEPLOYMENT, GATE, MACHINE, OWNER, POOL};
use super::settings::Pool;
use crate::provider::ProviderError;

/// Number of polls for a new pod; the pause between two polls is a multiple of `retry_ms`.
const LOOKS: u32 = 12;

/// Annotation for the order in which a Deployment deletes pods. Spares go first.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Claims a spare for a machine. Scales the Deployment up if there is none.
pub(super) async fn rent(calls: &Calls, owner: &Owner, pool: &Pool, label: &str) -> Result<(), ProviderError> {
    let name = &pool.deployment;
    let deployment: Deployment = calls.call(&Call::new(Verb::Get, DEPLOYMENTS).named(name)).await?;
    if !is_gated(&deployment) {
        return Err(ProviderError::Refused(format!("the pods of Deployment {name} lack the scheduling gate {GATE}")));
    }
    // After a scale-up was requested, a failure may leave an additional pod.
    let mut asked = false;
    let after =
        |asked: bool, fault: CallError| if asked { ProviderError::Unknown(fault.to_string()) } else { fault.into() };
    for _ in 0..LOOKS {
        let (scale, pods) = look(calls, name).await.map_err(|fault| after(asked, fault))?;
        let is_ours = |pod: &&Pod| names::label_of(&pod.metadata, OWNER) == Some(&owner.prefix);
        if pods.iter().filter(is_ours).any(|pod| names::label_of(&pod.metadata, MACHINE) == Some(label)) {
            return Ok(());
        }
        let mut spares: Vec<&Pod> = pods.iter().filter(|pod| names::is_spare(pod)).collect();
        spares.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        if let Some(spare) = spares.first() {
            match claim(calls, owner, pool, spare, label).await {
                // Another process has changed or deleted the pod.
                Err(CallError::Conflict(_) | CallError::Missing(_)) => continue,
                Err(fault) => return Err(fault.into()),
                Ok(()) => return Ok(()),
            }
        }
        let active = pods.iter().filter(|pod| names::is_active(pod)).count();
        let replicas = replicas(&scale);
        if usize::try_from(replicas).unwrap_or(0) <= active {
            match scale_to(calls, name, &scale, replicas + 1).await {
                Ok(()) => asked = true,
                Err(CallError::Conflict(_)) => continue,
                Err(fault) => return Err(after(asked, fault)),
            }
        }
        sleep(Duration::from_millis(calls.settings().retry_ms * 4)).await;
    }
    Err(ProviderError::Unknown(format!("Deployment {name} has not created a pod yet")))
}

/// Releases a spare, unless it has become a machine: scales the Deployment down, which deletes the spare first.
pub(super) async fn release_spare(calls: &Calls, name: &str, pod: &str) -> Result<(), ProviderError> {
    for _ in 0..LOOKS {
        let (scale, pods) = match look(calls, name).await {
            Err(CallError::Missing(_)) => return Ok(()),
            looked => looked?,
        };
        let is_it = |spare: &&Pod| names::is_spare(spare) && spare.metadata.name.as_deref() == Some(pod);
        let Some(spare) = pods.iter().find(is_it) else { return Ok(()) };
        let active = i32::try_from(pods.iter().filter(|pod| names::is_active(pod)).count()).unwrap_or(i32::MAX);
        if replicas(&scale) < active {
            // The pod is about to be deleted.
            return Ok(());
        }
        let cheapest = json!({"metadata": {
            "resourceVersion": spare.metadata.resource_version,
            "annotations": {DELETION_COST: i32::MIN.to_string()},
        }});
        let marked = calls.call::<IgnoredAny>(&Call::new(Verb::Patch, PODS).named(pod).sending(&cheapest)).await;
        let scaled = match marked {
            Ok(_) => scale_to(calls, name, &scale, active - 1).await,
            Err(fault) => Err(fault),
        };
        match scaled {
            Ok(()) => return Ok(()),
            Err(CallError::Conflict(_) | CallError::Missing(_)) => {}
            Err(fault) => return Err(fault.into()),
        }
    }
    Err(ProviderError::Refused(format!("Deployment {name} changed on every attempt")))
}

/// Spares of a Deployment; none if it does not exist.
pub(super) async fn spares(calls: &Calls, name: &str) -> Result<Vec<Pod>, CallError> {
    match look(calls, name).await {
        Ok((_, pods)) => Ok(pods.into_iter().filter(names::is_spare).collect()),
        Err(CallError::Missing(_)) => Ok(Vec::new()),
        Err(fault) => Err(fault),
    }
}

/// Reads a Deployment's scale and its pods.
async fn look(calls: &Calls, name: &str) -> Result<(Scale, Vec<Pod>), CallError> {
    let scale: Scale = calls.call(&Call::new(Verb::Get, SCALES).named(name)).await?;
    let selector = scale.status.as_ref().and_then(|status| status.selector.clone()).unwrap_or_default();
    if selector.is_empty() {
        // Without a selector, the list would contain every pod.
        return Err(CallError::Denied(format!("Deployment {name} has no usable selector")));
    }
    let pods = calls.list(PODS, &selector).await?;
    Ok((scale, pods))
}

async fn claim(calls: &Calls, owner: &Owner, pool: &Pool, spare: &Pod, label: &str) -> Result<(), CallError> {
    let gates = spare.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    let others: Vec<_> = gates.filter(|gate| gate.name != GATE).collect();
    let claimed = json!({
        "metadata": {
            "resourceVersion": spare.metadata.resource_version,
            "labels": {OWNER: owner.prefix, POOL: pool.name, MACHINE: label, DEPLOYMENT: pool.deployment},
            "annotations": {DELETION_COST: "1"},
        },
        "spec": {"schedulingGates": others},
    });
    let name = spare.metadata.name.as_deref().unwrap_or_default();
    calls.call::<IgnoredAny>(&Call::new(Verb::Patch, PODS).named(name).sending(&claimed)).await.map(drop)
}

/// Scales a Deployment, unless its scale has changed since `read`.
async fn scale_to(calls: &Calls, name: &str, read: &Scale, replicas: i32) -> Result<(), CallError> {
    let ObjectMeta { namespace, resource_version, .. } = read.metadata.clone();
    let metadata = ObjectMeta { name: Some(name.to_owned()), namespace, resource_version, ..ObjectMeta::default() };
    let scale = Scale { metadata, spec: Some(ScaleSpec { replicas: Some(replicas) }), status: None };
    calls.call::<IgnoredAny>(&Call::new(Verb::Update, SCALES).named(name).sending(&scale)).await.map(drop)
}

fn replicas(scale: &Scale) -> i32 {
    scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0)
}

fn is_gated(deployment: &Deployment) -> bool {
    let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    pod.is_some_and(|pod| pod.scheduling_gates.iter().flatten().any(|gate| gate.name == GATE))
}
