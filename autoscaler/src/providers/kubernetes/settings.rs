//! What the operator says of a cluster: how to reach it, and pools of machines that may be had there.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use stokehold_queue::demands::{SandboxLevel, Trust, Version};

use crate::observation::{Offer, Traits};
use crate::secret::Secret;

/// The longest that a name or the value of a label may be there, bytes.
const NAME_MAX: usize = 63;

/// A cluster.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KubernetesSettings {
    /// Where its API answers; empty: what kubeconfig says, else where this runs.
    pub url: String,
    /// What to show it, where `url` is given.
    pub token: Secret,
    /// The file that holds that, read again as it changes, where `url` is given.
    pub token_file: PathBuf,
    /// Who signs for `url`, a file of PEM; empty: whom this machine trusts.
    pub ca_file: PathBuf,
    /// The namespace of the machines; empty: that of the credentials.
    pub namespace: String,
    /// A machine whose worker has not joined by then is given back, seconds.
    pub join_limit_s: u64,
    /// A call that takes longer is of unknown outcome, milliseconds.
    pub call_limit_ms: u64,
    /// Before a call is made again, milliseconds, twice as long each time and less a random part.
    pub retry_ms: u64,
    /// How many objects are asked for at once.
    pub page: u32,
    /// What there is to be had.
    pub pools: Vec<Pool>,
}

/// How the machines of a pool come to be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Each is a Job of one pod.
    #[default]
    Jobs,
    /// They are the pods of a Deployment of the operator's.
    Deployment,
}

/// Machines that are alike.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// How its machines come to be.
    #[serde(default)]
    pub mode: Mode,
    /// The Deployment, in that mode.
    #[serde(default)]
    pub deployment: String,
    /// At most so many.
    pub max: u32,
    /// Its kind of card, as `RTX 4090`; `CPU` has none.
    #[serde(default = "cpu")]
    pub kind: String,
    /// How many cards a machine has.
    #[serde(default)]
    pub cards: u32,
    /// What one has of memory, GiB.
    #[serde(default)]
    pub vram_gb: f64,
    /// Jobs at once on a card, or in all where it has none; 0: as many as their memory allows.
    #[serde(default)]
    pub slots: u32,
    /// How fast it is, until that is measured; 1.0 is an RTX 4090.
    #[serde(default = "one")]
    pub speed: f64,
    /// How long it takes until its worker has joined, seconds, until that is measured.
    #[serde(default = "two_minutes")]
    pub boot_s: f64,
    /// What an hour costs, dollars; 0: it is the operator's own.
    #[serde(default)]
    pub usd_per_hour: f64,
    /// Who owns the nodes.
    #[serde(default)]
    pub trust: Trust,
    /// Where they stand.
    #[serde(default)]
    pub region: String,
    /// CUDA's, of the cards.
    #[serde(default)]
    pub compute_capability: Option<Version>,
    /// The newest CUDA that their driver serves.
    #[serde(default)]
    pub cuda: Option<Version>,
    /// How far workers there shut handlers in.
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
    /// The image that has the worker.
    pub image: String,
    /// What to run of it; empty: what the image says.
    pub command: Vec<String>,
    /// The worker's environment; no secrets, they would be read by whoever may read Jobs.
    pub env: BTreeMap<String, String>,
    /// Labels that its node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Taints that it bears.
    pub tolerations: Vec<Toleration>,
    /// As `nvidia`; empty: the cluster's default.
    pub runtime_class: String,
    /// Who goes first where there is no room; empty: the cluster's default.
    pub priority_class: String,
    /// As whom it runs; its token is not mounted. Empty: the namespace's default.
    pub service_account: String,
    /// Secrets of the operator's that images are fetched with.
    pub image_pull_secrets: Vec<String>,
    /// What a card is asked for as; empty: `nvidia.com/gpu`.
    pub card_resource: String,
    /// As `4` or `500m`; empty: none is asked for.
    pub cpu: String,
    /// As `16Gi`; also the limit.
    pub memory: String,
    /// As `100Gi`; also the limit.
    pub ephemeral_storage: String,
    /// Shared memory, as `8Gi`; it counts as memory. Empty: what the runtime gives, mostly 64 MiB.
    pub shm: String,
    /// How long its worker may take to end, seconds; 0: 40, some more than the worker's own `drain_grace_ms`.
    pub grace_s: u32,
    /// A Job that has ended deletes itself after that, seconds; 0: 600.
    pub keep_s: u32,
}

/// A taint that is borne.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Toleration {
    /// Its key; empty: any.
    pub key: String,
    /// Its value; empty: any.
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
    /// What cannot be meant, in words; `prefix` is that of the queue, which machines are labelled with.
    #[must_use]
    pub fn fault(&self, prefix: &str) -> Option<String> {
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
        self.pools.iter().find_map(|pool| pool.fault().map(|fault| format!("pool {:?} {fault}", pool.name)))
    }
}

impl Pool {
    fn fault(&self) -> Option<&'static str> {
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

    /// What it has to offer.
    pub(super) fn offer(&self, count: u32) -> Offer {
        Offer {
            id: self.name.as_str().into(),
            provider: super::NAME.into(),
            kind: self.kind.as_str().into(),
            host: "".into(),
            count,
            cards: self.cards,
            gpu_ids: Vec::new(),
            vram_gb: self.vram_gb,
            slots: self.slots,
            speed: self.speed,
            usd_per_hour: self.usd_per_hour,
            min_bid_usd_per_hour: None,
            losses_per_hour: 0.0,
            stopped_usd_per_hour: None,
            boot_s: self.boot_s,
            inbound_usd_per_gb: 0.0,
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

/// Whether it can be the value of a label and a part of a name.
fn is_label(text: &str) -> bool {
    let is_end = |end: Option<char>| end.is_some_and(|end| end.is_ascii_alphanumeric());
    let is_inner = |inner: char| inner.is_ascii_alphanumeric() || "-_.".contains(inner);
    text.len() <= NAME_MAX && is_end(text.chars().next()) && is_end(text.chars().last()) && text.chars().all(is_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn fault(pools: &str, prefix: &str) -> Option<String> {
        let text = "url = ''\ntoken = ''\ntoken_file = ''\nca_file = ''\nnamespace = ''\njoin_limit_s = 1\ncall_limit_ms = 1\nretry_ms = 1\npage = 1\n";
        let settings: Result<KubernetesSettings, _> = toml::from_str(&format!("{text}{pools}"));
        match settings {
            Ok(settings) => settings.fault(prefix),
            Err(error) => Some(error.to_string()),
        }
    }

    #[test]
    fn a_pool_that_cannot_be_is_refused_by_name() {
        let pool = "[[pools]]\nname = 'a'\nmax = 1\n";
        assert_eq!(fault(&format!("{pool}image = 'x'"), "stoke"), None);
        assert_eq!(fault(&format!("{pool}mode = 'deployment'\ndeployment = 'd'"), "stoke"), None);
        let refused = |pools: String, prefix: &str| fault(&pools, prefix).unwrap();
        assert!(refused(pool.to_owned(), "stoke").contains("\"a\" needs an image"));
        assert!(refused(format!("{pool}mode = 'deployment'"), "stoke").contains("needs a deployment"));
        assert!(refused(format!("{pool}image = 'x'\n{pool}image = 'x'"), "stoke").contains("two pools"));
        assert!(refused(format!("{pool}image = 'x'"), "a:b").contains("redis.prefix"));
        assert!(refused(format!("{pool}imgae = 'x'"), "stoke").contains("imgae"));
        let said_twice = format!("{pool}mode = 'deployment'\ndeployment = 'd'\nimage = 'x'");
        assert!(refused(said_twice, "stoke").contains("the Deployment describes it"));
    }
}
