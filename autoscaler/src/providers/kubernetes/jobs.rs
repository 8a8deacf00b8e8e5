//! The mode `jobs`: each machine is a Job of one pod.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, Preconditions};
use serde::de::IgnoredAny;

use super::answer::CallError;
use super::call::{Call, Calls, JOBS, PODS, SECRETS, Verb};
use super::names::{self, MACHINE, OWNER, Rented};
use super::settings::Pool;
use super::{Owner, body};
use crate::provider::{Order, ProviderError};

/// Creates a Job, and then the Secret that it owns. The pod waits for the Secret.
pub(super) async fn rent(calls: &Calls, owner: &Owner, pool: &Pool, order: &Order) -> Result<(), ProviderError> {
    let job = body::job(&owner.prefix, &owner.gateway_url, pool, order);
    let made = calls.call::<Job>(&Call::new(Verb::Create, JOBS).sending(&job)).await;
    let made = match made {
        // An earlier call of unknown outcome may have created the Job.
        Err(CallError::Exists(why)) => ours(calls, owner, order, why).await?,
        made => made?,
    };
    let left = |why: String| ProviderError::Made { rental: Rented::Job { label: order.label.clone() }.id(), why };
    let Some(uid) = made.metadata.uid else { return Err(left("the cluster created a Job without a uid".to_owned())) };
    let secret = body::secret(&owner.prefix, pool, &order.label, &uid, &order.join_token);
    match calls.call::<IgnoredAny>(&Call::new(Verb::Create, SECRETS).sending(&secret)).await {
        Ok(_) | Err(CallError::Exists(_)) => Ok(()),
        // Without the Secret, the worker would never join.
        Err(fault) => Err(left(fault.to_string())),
    }
}

/// Checks the existing Job.
async fn ours(calls: &Calls, owner: &Owner, order: &Order, why: String) -> Result<Job, ProviderError> {
    let found: Job = match calls.call(&Call::new(Verb::Get, JOBS).named(&order.label)).await {
        Ok(found) => found,
        // The Job exists, but it could not be read.
        Err(fault) => return Err(ProviderError::Unknown(fault.to_string())),
    };
    let is = |name, value: &str| names::label_of(&found.metadata, name) == Some(value);
    if is(MACHINE, &order.label) && is(OWNER, &owner.prefix) && found.metadata.deletion_timestamp.is_none() {
        return Ok(found);
    }
    Err(ProviderError::Refused(format!("{why}; it belongs to another installation")))
}

/// Deletes a Job, and with it its pod and its Secret.
pub(super) async fn release(calls: &Calls, owner: &Owner, label: &str, grace_s: i64) -> Result<(), ProviderError> {
    let options = DeleteOptions {
        grace_period_seconds: Some(grace_s),
        propagation_policy: Some("Background".to_owned()),
        ..DeleteOptions::default()
    };
    let gone = calls.call::<IgnoredAny>(&Call::new(Verb::Delete, JOBS).named(label).sending(&options)).await;
    match gone {
        Ok(_) => Ok(()),
        // A pod that has outlived its Job still counts as a machine.
        Err(CallError::Missing(_)) => release_pods(calls, owner, label, Some(grace_s)).await,
        Err(fault) => Err(fault.into()),
    }
}

/// Deletes the pods of a machine: those that were read, and no other pods of the same names.
pub(super) async fn release_pods(
    calls: &Calls,
    owner: &Owner,
    label: &str,
    grace_s: Option<i64>,
) -> Result<(), ProviderError> {
    let pods: Vec<Pod> = calls.list(PODS, &format!("{OWNER}={},{MACHINE}={label}", owner.prefix)).await?;
    for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        let options = DeleteOptions {
            grace_period_seconds: grace_s,
            preconditions: Some(Preconditions { uid: pod.metadata.uid.clone(), resource_version: None }),
            ..DeleteOptions::default()
        };
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        match calls.call::<IgnoredAny>(&Call::new(Verb::Delete, PODS).named(name).sending(&options)).await {
            Ok(_) | Err(CallError::Missing(_) | CallError::Conflict(_)) => {}
            Err(fault) => return Err(fault.into()),
        }
    }
    Ok(())
}
