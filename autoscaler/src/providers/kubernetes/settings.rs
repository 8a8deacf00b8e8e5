//! Settings of a cluster: access to it, and its pools of machines.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use stokehold_planner::observation::{Offer, Traits};
use stokehold_queue::requirements::{SandboxLevel, Trust, Version};
use stokehold_units::{Mib, UsdMicros};

use crate::secret::Secret;

/// Maximum length of a name or a label value in Kubernetes, bytes.
const NAME_MAX: usize = 63;

/// A cluster.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KubernetesSettings {
    /// URL of the API server. Empty: from kubeconfig, or else from the cluster in which this process runs.
    pub url: String,
    /// Bearer token for `url`.
    pub token: Secret,
    /// File with the bearer token for `url`, read again when it changes.
    pub token_file: PathBuf,
    /// PEM file with the certificate authorities for `url`. Empty: the system's trusted authorities.
    pub ca_file: PathBuf,
    /// Namespace of the machines. Empty: the namespace of the credentials.
    pub namespace: String,
    /// Time in which a machine's worker has to join before the machine is released, seconds.
    pub join_limit_s: u64,
    /// Timeout of a call, after which its outcome is unknown, milliseconds.
    pub call_limit_ms: u64,
    /// Wait before the first retry of a call, milliseconds. It doubles with each retry, less a random part.
    pub retry_ms: u64,
    /// Number of objects per page of a list.
    pub page: u32,
    /// The pools of machines.
    pub pools: Vec<Pool>,
}

/// Creation method of the machines of a pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Each machine is a Job of one pod.
    #[default]
    Jobs,
    /// Machines are pods of the operator's Deployment.
    Deployment,
}

/// A pool of identical machines.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// Name of the pool.
    pub name: String,
    /// Creation method of the machines.
    #[serde(default)]
    pub mode: Mode,
    /// Name of the Deployment, in mode `deployment`.
    #[serde(default)]
    pub deployment: String,
    /// Maximum number of machines.
    pub max: u32,
    /// Kind of GPU, e.g. `RTX 4090`; `CPU` for machines without one.
    #[serde(default = "cpu")]
    pub kind: String,
    /// Number of GPUs per machine.
    #[serde(default)]
    pub cards: u32,
    /// Memory of one GPU, GiB.
    #[serde(default, alias = "vram_gb")]
    pub vram_gib: f64,
    /// Maximum number of concurrent jobs per GPU, or per machine without GPUs; 0: as many as their memory allows.
    #[serde(default)]
    pub slots: u32,
    /// Assumed speed until it is measured; 1.0 is an RTX 4090.
    #[serde(default = "one")]
    pub speed: f64,
    /// Assumed time until its worker has joined, seconds, until it is measured.
    #[serde(default = "two_minutes")]
    pub boot_s: f64,
    /// Price, dollars per hour; 0 for the operator's own machines.
    #[serde(default)]
    pub usd_per_hour: f64,
    /// Trust level of the owner of the nodes.
    #[serde(default)]
    pub trust: Trust,
    /// Region of the nodes.
    #[serde(default)]
    pub region: String,
    /// CUDA compute capability of the GPUs.
    #[serde(default)]
    pub compute_capability: Option<Version>,
    /// Newest CUDA version that the driver supports.
    #[serde(default)]
    pub cuda: Option<Version>,
    /// Sandbox level of the workers' handlers.
    #[serde(default)]
    pub sandbox: SandboxLevel,
    /// The pod of a Job.
    #[serde(flatten)]
    pub pod: PodSettings,
}

/// The pod of a Job.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodSettings {
    /// Image that contains the worker.
    pub image: String,
    /// Command of the container. Empty: the image's entry point.
    pub command: Vec<String>,
    /// Environment of the worker. It must not contain secrets, since everyone with read access to Jobs can see them.
    pub env: BTreeMap<String, String>,
    /// Labels that the node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations of the pod.
    pub tolerations: Vec<Toleration>,
    /// Runtime class, e.g. `nvidia`. Empty: the cluster's default.
    pub runtime_class: String,
    /// Priority class. Empty: the cluster's default.
    pub priority_class: String,
    /// Service account of the pod; its token is not mounted. Empty: the namespace's default.
    pub service_account: String,
    /// Names of the operator's image pull secrets.
    pub image_pull_secrets: Vec<String>,
    /// Resource name of a GPU. Empty: `nvidia.com/gpu`.
    pub card_resource: String,
    /// CPU request, e.g. `4` or `500m`. Empty: no request.
    pub cpu: String,
    /// Memory request and limit, e.g. `16Gi`.
    pub memory: String,
    /// Ephemeral storage request and limit, e.g. `100Gi`.
    pub ephemeral_storage: String,
    /// Shared memory, e.g. `8Gi`; it counts as memory. Empty: the runtime's default, mostly 64 MiB.
    pub shm: String,
    /// Termination grace period, seconds; 0: 40, somewhat longer than the worker's own `drain_grace_ms`.
    pub grace_s: u32,
    /// Time after its end until a Job is deleted, seconds; 0: 600.
    pub keep_s: u32,
}

/// A toleration of a node's taint.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Toleration {
    /// Key of the taint; empty: any.
    pub key: String,
    /// Value of the taint; empty: any.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`; empty: any.
    pub effect: String,
}

fn cpu() -> String {
    stokehold_queue::vram::KIND_CPU.to_owned()
}

fn one() -> f64 {
    1.0
}

fn two_minutes() -> f64 {
    120.0
}

impl KubernetesSettings {
    /// The first invalid setting. `prefix` is the prefix of the queue, which is a label of the machines.
    #[must_use]
    pub fn why_invalid(&self, prefix: &str) -> Option<String> {
        if self.pools.is_empty() {
            return None;
        }
        if !is_label(prefix) {
            return Some(format!("redis.prefix is the label of machines, and {prefix:?} is not a valid label value"));
        }
        if self.call_limit_ms == 0 || self.page == 0 {
            return Some("call_limit_ms and page must be greater than 0".to_owned());
        }
        if self.url.is_empty() && !(self.token.expose().is_empty() && self.token_file.as_os_str().is_empty()) {
            return Some("a token needs a url; set both or neither".to_owned());
        }
        let twice = |n: usize| self.pools[..n].iter().any(|pool| pool.name == self.pools[n].name);
        if let Some(twice) = (0..self.pools.len()).find(|n| twice(*n)) {
            return Some(format!("two pools have the name {:?}", self.pools[twice].name));
        }
        self.pools.iter().find_map(|pool| pool.why_invalid().map(|fault| format!("pool {:?} {fault}", pool.name)))
    }
}

impl Pool {
    fn why_invalid(&self) -> Option<&'static str> {
        match self.mode {
            _ if !is_label(&self.name) => Some("needs a name of letters, digits and hyphens"),
            Mode::Jobs if self.pod.image.is_empty() => Some("needs an image"),
            Mode::Jobs if !self.deployment.is_empty() => Some("names a deployment; set its mode to `deployment`"),
            Mode::Deployment if !is_label(&self.deployment) => Some("needs a deployment"),
            Mode::Deployment if self.pod != PodSettings::default() => {
                Some("describes a pod; in mode `deployment` the Deployment describes it")
            }
            Mode::Jobs | Mode::Deployment => None,
        }
    }

    /// The offer of the pool.
    pub(super) fn offer(&self, count: u32) -> Offer {
        Offer {
            id: self.name.as_str().into(),
            provider: super::NAME.into(),
            kind: self.kind.as_str().into(),
            host: "".into(),
            count,
            cards: self.cards,
            gpu_ids: Vec::new(),
            vram: Mib::from_gib(self.vram_gib),
            slots: self.slots,
            speed: self.speed,
            usd_per_hour: UsdMicros::from_usd(self.usd_per_hour),
            min_bid_usd_per_hour: None,
            losses_per_hour: 0.0,
            stopped_usd_per_hour: None,
            boot_s: self.boot_s,
            inbound_usd_per_gb: UsdMicros::ZERO,
            inbound_mbit_per_s: 0.0,
            reliability: 1.0,
            listed_for_s: None,
            traits: Traits {
                compute_capability: self.compute_capability,
                cuda: self.cuda,
                region: self.region.clone(),
                trust: self.trust,
                sandbox: self.sandbox,
            },
            is_owned: self.usd_per_hour <= 0.0,
        }
    }
}

/// Whether a text can be the value of a label and a part of a name.
fn is_label(text: &str) -> bool {
    let is_end = |end: Option<char>| end.is_some_and(|end| end.is_ascii_alphanumeric());
    let is_inner = |inner: char| inner.is_ascii_alphanumeric() || "-_.".contains(inner);
    text.len() <= NAME_MAX && is_end(text.chars().next()) && is_end(text.chars().last()) && text.chars().all(is_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn why_invalid(pools: &str, prefix: &str) -> Option<String> {
        let text = "url = ''\ntoken = ''\ntoken_file = ''\nca_file = ''\nnamespace = ''\njoin_limit_s = 1\ncall_limit_ms = 1\nretry_ms = 1\npage = 1\n";
        let settings: Result<KubernetesSettings, _> = toml::from_str(&format!("{text}{pools}"));
        match settings {
            Ok(settings) => settings.why_invalid(prefix),
            Err(error) => Some(error.to_string()),
        }
    }

    #[test]
    fn a_pool_that_cannot_be_is_refused_by_name() {
        let pool = "[[pools]]\nname = 'a'\nmax = 1\n";
        assert_eq!(why_invalid(&format!("{pool}image = 'x'"), "stoke"), None);
        assert_eq!(why_invalid(&format!("{pool}mode = 'deployment'\ndeployment = 'd'"), "stoke"), None);
        let refused = |pools: String, prefix: &str| why_invalid(&pools, prefix).unwrap();
        assert!(refused(pool.to_owned(), "stoke").contains("\"a\" needs an image"));
        assert!(refused(format!("{pool}mode = 'deployment'"), "stoke").contains("needs a deployment"));
        assert!(refused(format!("{pool}image = 'x'\n{pool}image = 'x'"), "stoke").contains("two pools"));
        assert!(refused(format!("{pool}image = 'x'"), "a:b").contains("redis.prefix"));
        assert!(refused(format!("{pool}imgae = 'x'"), "stoke").contains("imgae"));
        let said_twice = format!("{pool}mode = 'deployment'\ndeployment = 'd'\nimage = 'x'");
        assert!(refused(said_twice, "stoke").contains("the Deployment describes it"));
    }
}
