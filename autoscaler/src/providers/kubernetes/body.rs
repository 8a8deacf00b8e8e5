//! Objects of a machine: a Job with one pod, and a Secret with the join token of its worker. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{
    Container, EmptyDirVolumeSource, EnvVar, EnvVarSource, LocalObjectReference, PodSpec, PodTemplateSpec,
    ResourceRequirements, Secret, SecretKeySelector, Toleration, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::names;
use super::settings::{Pool, Toleration as Borne};
use crate::provider::Order;
use crate::secret;

/// Default termination grace period, seconds: somewhat longer than the worker's own drain period.
const GRACE_S: u32 = 40;

/// Default time for which an ended Job is kept for inspection, seconds.
const KEEP_S: u32 = 600;

/// Default resource name of a GPU.
const CARD: &str = "nvidia.com/gpu";

/// Key of the join token in the Secret.
const TOKEN_KEY: &str = "join-token";

/// Environment variables that the settings of a pool may not set.
const OURS: [&str; 3] = ["STOKE_GATEWAY_URL", "STOKE_JOIN_TOKEN", "STOKE_WORKER_NAME"];

/// The Job of a machine.
pub(super) fn job(owner: &str, gateway_url: &str, pool: &Pool, order: &Order) -> Job {
    let labels = names::labels(owner, &pool.name, &order.label);
    let settings = &pool.pod;
    let of_shm = |medium| EmptyDirVolumeSource { medium, size_limit: quantity(&settings.shm) };
    let shm = || quantity(&settings.shm).map(|_| "shm".to_owned());
    let pod = PodSpec {
        automount_service_account_token: Some(false),
        containers: vec![Container {
            name: "worker".to_owned(),
            image: Some(settings.image.clone()),
            command: list(&settings.command),
            env: Some(env(gateway_url, pool, &order.label)),
            resources: Some(resources(pool)),
            volume_mounts: shm()
                .map(|name| vec![VolumeMount { name, mount_path: "/dev/shm".to_owned(), ..VolumeMount::default() }]),
            ..Container::default()
        }],
        enable_service_links: Some(false),
        image_pull_secrets: list(&settings.image_pull_secrets)
            .map(|names| names.into_iter().map(|name| LocalObjectReference { name }).collect()),
        node_selector: Some(settings.node_selector.clone()).filter(|labels| !labels.is_empty()),
        priority_class_name: word(&settings.priority_class),
        restart_policy: Some("Never".to_owned()),
        runtime_class_name: word(&settings.runtime_class),
        service_account_name: word(&settings.service_account),
        termination_grace_period_seconds: Some(grace_s(pool)),
        tolerations: list(&settings.tolerations).map(|borne| borne.iter().map(toleration).collect()),
        volumes: shm()
            .map(|name| vec![Volume { name, empty_dir: Some(of_shm(Some("Memory".to_owned()))), ..Volume::default() }]),
        ..PodSpec::default()
    };
    let meta = ObjectMeta { labels: Some(labels), ..ObjectMeta::default() };
    Job {
        metadata: ObjectMeta { name: Some(order.label.clone()), ..meta.clone() },
        spec: Some(JobSpec {
            // A failed machine is given back, and the planner decides whether to rent another one.
            backoff_limit: Some(0),
            completions: Some(1),
            parallelism: Some(1),
            template: PodTemplateSpec { metadata: Some(meta), spec: Some(pod) },
            ttl_seconds_after_finished: Some(seconds(settings.keep_s, KEEP_S)),
            ..JobSpec::default()
        }),
        status: None,
    }
}

/// Secret with the join token of a machine's worker; deleted with its Job.
pub(super) fn secret(owner: &str, pool: &Pool, label: &str, job_uid: &str, token: &secret::Secret) -> Secret {
    Secret {
        immutable: Some(true),
        metadata: ObjectMeta {
            name: Some(label.to_owned()),
            labels: Some(names::labels(owner, &pool.name, label)),
            owner_references: Some(vec![OwnerReference {
                api_version: "batch/v1".to_owned(),
                kind: "Job".to_owned(),
                name: label.to_owned(),
                uid: job_uid.to_owned(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        string_data: Some([(TOKEN_KEY.to_owned(), token.expose().to_owned())].into()),
        ..Secret::default()
    }
}

/// Termination grace period of the machine's pod, seconds.
pub(super) fn grace_s(pool: &Pool) -> i64 {
    i64::from(seconds(pool.pod.grace_s, GRACE_S))
}

fn env(gateway_url: &str, pool: &Pool, label: &str) -> Vec<EnvVar> {
    let given = |(name, value): (&String, &String)| EnvVar {
        name: name.clone(),
        value: Some(value.clone()),
        ..EnvVar::default()
    };
    let is_free = |(name, _): &(&String, &String)| !OURS.contains(&name.as_str());
    let mut env: Vec<EnvVar> = pool.pod.env.iter().filter(is_free).map(given).collect();
    let [gateway, token, name] = OURS.map(str::to_owned);
    env.push(EnvVar { name: gateway, value: Some(gateway_url.to_owned()), ..EnvVar::default() });
    let key = SecretKeySelector { key: TOKEN_KEY.to_owned(), name: label.to_owned(), ..SecretKeySelector::default() };
    let from = EnvVarSource { secret_key_ref: Some(key), ..EnvVarSource::default() };
    env.push(EnvVar { name: token, value_from: Some(from), ..EnvVar::default() });
    env.push(EnvVar { name, value: Some(label.to_owned()), ..EnvVar::default() });
    env
}

/// Resources of a machine. The requests for GPUs, memory and disk are also limits; processors have no limit.
fn resources(pool: &Pool) -> ResourceRequirements {
    let settings = &pool.pod;
    let mut limits = BTreeMap::new();
    let asked = [("memory", &settings.memory), ("ephemeral-storage", &settings.ephemeral_storage)];
    limits.extend(asked.into_iter().filter_map(|(name, text)| Some((name.to_owned(), quantity(text)?))));
    if pool.cards > 0 {
        let card = word(&settings.card_resource).unwrap_or_else(|| CARD.to_owned());
        limits.insert(card, Quantity(pool.cards.to_string()));
    }
    let mut requests = limits.clone();
    requests.extend(quantity(&settings.cpu).map(|cpu| ("cpu".to_owned(), cpu)));
    let some = |of: BTreeMap<String, Quantity>| Some(of).filter(|of| !of.is_empty());
    ResourceRequirements { limits: some(limits), requests: some(requests), ..ResourceRequirements::default() }
}

fn toleration(borne: &Borne) -> Toleration {
    let operator = if borne.value.is_empty() { "Exists" } else { "Equal" };
    Toleration {
        effect: word(&borne.effect),
        key: word(&borne.key),
        operator: Some(operator.to_owned()),
        toleration_seconds: None,
        value: word(&borne.value),
    }
}

fn word(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn quantity(text: &str) -> Option<Quantity> {
    word(text).map(Quantity)
}

fn list<T: Clone>(items: &[T]) -> Option<Vec<T>> {
    (!items.is_empty()).then(|| items.to_vec())
}

/// The setting, or the default if the setting is 0.
fn seconds(said: u32, or: u32) -> i32 {
    i32::try_from(if said == 0 { or } else { said }).unwrap_or(i32::MAX)
}
