//! The requirements of an endpoint on workers, except memory, and the check of workers and GPUs against them. Pure
//! functions.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::gpus::{Gpu, is_model};

/// Maximum number of names in one list.
pub const NAMES_MAX: usize = 16;

/// The owner of the host that a job runs on, in ascending order of trust.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// Anyone: an instance rented from an unknown host.
    Community,
    /// A provider that can be held accountable.
    #[default]
    Datacenter,
    /// The operator.
    Owned,
}

impl Trust {
    /// The name of the value.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Community => "community",
            Self::Datacenter => "datacenter",
            Self::Owned => "owned",
        }
    }
}

/// A version of two numbers, e.g. of CUDA or a compute capability. `8.9` is less than `8.10`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version {
    major: u32,
    minor: u32,
}

/// Error for a text that is not a [`Version`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a version; write two numbers, e.g. 8.9")]
pub struct NoVersion(String);

impl FromStr for Version {
    type Err = NoVersion;

    fn from_str(text: &str) -> Result<Self, NoVersion> {
        let parts = || {
            let (major, minor) = text.split_once('.')?;
            Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
        };
        parts().ok_or_else(|| NoVersion(text.to_owned()))
    }
}

impl TryFrom<String> for Version {
    type Error = NoVersion;

    fn try_from(text: String) -> Result<Self, NoVersion> {
        text.parse()
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.to_string()
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Maximum number of GPUs for one job.
pub const GPUS_MAX: u32 = 16;

/// The requirements of an endpoint on workers, except memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Requirements {
    /// Number of GPUs of one host. If more than one, the job has them to itself.
    #[serde(skip_serializing_if = "is_one")]
    pub gpus: u32,
    /// Accepted GPU models, e.g. `RTX 4090`; empty accepts any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpu_models: Vec<String>,
    /// Minimum compute capability.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_compute_capability: Option<Version>,
    /// Minimum CUDA version that the driver supports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_cuda: Option<Version>,
    /// Accepted regions; empty accepts any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<String>,
    /// Minimum trust.
    #[serde(skip_serializing_if = "is_usual")]
    pub min_trust: Trust,
    /// Minimum sandbox level.
    #[serde(skip_serializing_if = "is_any")]
    pub min_sandbox: SandboxLevel,
}

impl Default for Requirements {
    fn default() -> Self {
        Self {
            gpus: 1,
            gpu_models: Vec::new(),
            min_compute_capability: None,
            min_cuda: None,
            regions: Vec::new(),
            min_trust: Trust::default(),
            min_sandbox: SandboxLevel::default(),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_one(number: &u32) -> bool {
    *number == 1
}

fn is_usual(trust: &Trust) -> bool {
    *trust == Trust::default()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_any(level: &SandboxLevel) -> bool {
    *level == SandboxLevel::default()
}

/// The properties of a worker that requirements apply to, as reported when it joined.
#[derive(Debug, Clone, Copy)]
pub struct Offer<'a> {
    /// GPUs of the worker.
    pub gpus: &'a [Gpu],
    /// Newest CUDA version that the worker's driver supports.
    pub cuda: Option<Version>,
    /// Region of the worker.
    pub region: &'a str,
    /// Owner of the worker's host.
    pub trust: Trust,
    /// Sandbox level of the worker.
    pub sandbox: SandboxLevel,
}

/// A requirement that a worker does not meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmet {
    /// [`Requirements::min_trust`].
    Trust,
    /// [`Requirements::min_sandbox`].
    Sandbox,
    /// [`Requirements::regions`].
    Region,
    /// [`Requirements::min_cuda`], with the required version.
    Cuda(Version),
    /// [`Requirements::gpus`], [`Requirements::gpu_models`] or [`Requirements::min_compute_capability`].
    Cards,
}

impl Requirements {
    /// Whether every worker meets these requirements.
    #[must_use]
    pub fn ask_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// The reason why the worker cannot run the endpoint even if all its GPUs were free; `None` if it can.
    #[must_use]
    pub fn refusal(&self, offer: &Offer<'_>) -> Option<String> {
        let met = offer.gpus.iter().filter(|gpu| self.is_met_by(gpu)).count();
        Some(match self.unmet(offer, met)? {
            Unmet::Trust => format!("it needs a machine with trust {}", self.min_trust.as_str()),
            Unmet::Sandbox => format!("it needs sandbox level {} or higher", self.min_sandbox),
            Unmet::Region => format!("it needs region {}", self.regions.join(" or ")),
            Unmet::Cuda(wanted) => format!("it needs CUDA {wanted} or newer"),
            Unmet::Cards => self.asked_of_gpus(),
        })
    }

    /// The first requirement that an offer does not meet. `met_gpus` is the number of its GPUs that match
    /// ([`Requirements::is_met_by_kind`]).
    #[must_use]
    pub fn unmet(&self, offer: &Offer<'_>, met_gpus: usize) -> Option<Unmet> {
        if offer.trust < self.min_trust {
            return Some(Unmet::Trust);
        }
        if offer.sandbox < self.min_sandbox {
            return Some(Unmet::Sandbox);
        }
        if !self.regions.is_empty() && self.regions.iter().all(|region| region != offer.region) {
            return Some(Unmet::Region);
        }
        if let Some(wanted) = self.min_cuda
            && offer.cuda.is_none_or(|cuda| cuda < wanted)
        {
            return Some(Unmet::Cuda(wanted));
        }
        (self.asks_of_gpus() && met_gpus < self.gpus as usize).then_some(Unmet::Cards)
    }

    /// Whether a GPU meets the requirements on GPUs.
    #[must_use]
    pub fn is_met_by(&self, gpu: &Gpu) -> bool {
        self.is_met_by_kind(&gpu.name, || gpu.compute_capability.as_deref()?.parse().ok())
    }

    /// Whether a GPU meets the requirements on GPUs, given its compute capability and its name in the driver or a
    /// provider's list.
    #[must_use]
    pub fn is_met_by_kind(&self, name: &str, capability: impl FnOnce() -> Option<Version>) -> bool {
        (self.gpu_models.is_empty() || self.gpu_models.iter().any(|model| is_model(name, model)))
            && self.min_compute_capability.is_none_or(|wanted| capability().is_some_and(|it| it >= wanted))
    }

    /// Whether there are requirements on GPUs.
    #[must_use]
    pub fn asks_of_gpus(&self) -> bool {
        self.gpus > 1 || !self.gpu_models.is_empty() || self.min_compute_capability.is_some()
    }

    fn asked_of_gpus(&self) -> String {
        let mut asked = match self.gpus {
            0 | 1 => "it needs a GPU".to_owned(),
            gpus => format!("it needs {gpus} GPUs in one machine"),
        };
        if !self.gpu_models.is_empty() {
            asked.push_str(&format!(" of model {}", self.gpu_models.join(" or ")));
        }
        if let Some(capability) = self.min_compute_capability {
            asked.push_str(&format!(" with compute capability {capability} or higher"));
        }
        asked
    }
}

/// Sandbox levels: how strictly a worker confines its handlers. `docs/explanation/sandbox.md` describes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub enum SandboxLevel {
    /// Not confined.
    #[default]
    L0,
    /// Confined by system call filters and file permissions.
    L1,
    /// Additionally confined by namespaces.
    L2,
}

impl fmt::Display for SandboxLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::L0 => "L0",
            Self::L1 => "L1",
            Self::L2 => "L2",
        })
    }
}

impl FromStr for SandboxLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_ascii_uppercase().as_str() {
            "L0" => Ok(Self::L0),
            "L1" => Ok(Self::L1),
            "L2" => Ok(Self::L2),
            _ => Err("must be auto, L0, L1 or L2".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(name: &str, capability: &str) -> Gpu {
        Gpu { name: name.to_owned(), compute_capability: Some(capability.to_owned()), ..Gpu::default() }
    }

    fn refusal(demands: &Requirements, gpus: &[Gpu]) -> Option<String> {
        demands.refusal(&Offer {
            gpus,
            cuda: "12.8".parse().ok(),
            region: "eu",
            trust: Trust::Datacenter,
            sandbox: SandboxLevel::L1,
        })
    }

    #[test]
    fn versions_are_numbers_and_not_texts() {
        let version = |text: &str| text.parse::<Version>().unwrap();
        assert!(version("8.9") < version("8.10") && version("9.0") > version("8.10"));
        assert!("12".parse::<Version>().is_err() && "a.b".parse::<Version>().is_err());
        assert_eq!(serde_json::to_string(&version("12.4")).unwrap(), "\"12.4\"");
    }

    #[test]
    fn what_is_not_met_is_told() {
        let cards = [gpu("NVIDIA GeForce RTX 4090", "8.9"), gpu("NVIDIA GeForce GTX 1080", "6.1")];
        let refused = |demands: Requirements| refusal(&demands, &cards);
        assert_eq!(refused(Requirements::default()), None);
        let models = |names: &[&str]| Requirements {
            gpu_models: names.iter().map(|name| (*name).to_owned()).collect(),
            ..Requirements::default()
        };
        assert_eq!(refused(models(&["H100", "RTX 4090"])), None);
        assert_eq!(refused(models(&["H100"])).unwrap(), "it needs a GPU of model H100");
        let several = |gpus| Requirements { gpus, ..Requirements::default() };
        assert_eq!(refused(several(2)), None);
        assert_eq!(refused(several(3)).unwrap(), "it needs 3 GPUs in one machine");
        let both = Requirements { gpus: 2, ..models(&["RTX 4090"]) };
        assert_eq!(refused(both).unwrap(), "it needs 2 GPUs in one machine of model RTX 4090");
        let capable = |capability: &str| Requirements {
            min_compute_capability: capability.parse().ok(),
            ..Requirements::default()
        };
        assert_eq!(refused(capable("8.0")), None);
        assert_eq!(refused(capable("9.0")).unwrap(), "it needs a GPU with compute capability 9.0 or higher");
        assert_eq!(
            refused(Requirements { min_cuda: "13.0".parse().ok(), ..Requirements::default() }).unwrap(),
            "it needs CUDA 13.0 or newer"
        );
        assert_eq!(
            refused(Requirements { regions: vec!["us".to_owned()], ..Requirements::default() }).unwrap(),
            "it needs region us"
        );
        assert_eq!(
            refused(Requirements { min_trust: Trust::Owned, ..Requirements::default() }).unwrap(),
            "it needs a machine with trust owned"
        );
        assert_eq!(refused(Requirements { min_trust: Trust::Community, ..Requirements::default() }), None);
        let shut_in = |min_sandbox| Requirements { min_sandbox, ..Requirements::default() };
        assert_eq!(refused(shut_in(SandboxLevel::L1)), None);
        assert_eq!(refused(shut_in(SandboxLevel::L2)).unwrap(), "it needs sandbox level L2 or higher");
    }

    #[test]
    fn what_is_not_asked_for_is_not_written() {
        assert_eq!(serde_json::to_string(&Requirements::default()).unwrap(), "{}");
        let read: Requirements = serde_json::from_str(r#"{"min_cuda": "12.4", "min_trust": "owned"}"#).unwrap();
        assert_eq!((read.min_cuda.map(String::from).as_deref(), read.min_trust), (Some("12.4"), Trust::Owned));
    }
}
