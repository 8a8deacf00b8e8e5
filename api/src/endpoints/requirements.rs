//! The requirements of an endpoint on workers, except memory, in the form of a deploy. They are stored and shown as
//! [`Requirements`].

use serde::Deserialize;
use stokehold_queue::requirements::{GPUS_MAX, NAMES_MAX, Requirements, SandboxLevel, Trust, Version};
use utoipa::ToSchema;

use crate::error::Problem;

const NAME_MAX: usize = 64;

/// An endpoint's requirements for workers besides memory. Absent members require nothing.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = Requirements)]
pub(crate) struct RequirementsRequest {
    /// The number of GPUs in one machine, 1 to 16. Default 1. With several, each GPU is used whole, and `vram_gib`
    /// applies to each.
    #[schema(minimum = 1, maximum = 16)]
    gpus: Option<u32>,
    /// One of these GPU models, e.g. `RTX 4090`: words that appear in this order in the name that the driver reports.
    /// At most 16.
    #[schema(max_items = 16)]
    gpu_models: Vec<String>,
    /// The minimum CUDA compute capability, e.g. `8.0`.
    min_compute_capability: Option<String>,
    /// The minimum CUDA version that the driver supports, e.g. `12.4`.
    min_cuda: Option<String>,
    /// One of these regions, as set on join tokens. At most 16.
    #[schema(max_items = 16)]
    regions: Vec<String>,
    /// The minimum trust in the machine's owner. Default `datacenter`.
    #[schema(value_type = Option<TrustWord>)]
    min_trust: Option<Trust>,
    /// The minimum sandbox level of the handlers: `L0` to `L2`. Default `L0`.
    #[schema(value_type = Option<SandboxWord>)]
    min_sandbox: Option<SandboxLevel>,
}

/// The sandbox level of a worker's handlers.
#[derive(ToSchema)]
#[schema(as = SandboxLevel)]
#[expect(dead_code, reason = "represents `SandboxLevel` in the OpenAPI document")]
pub(crate) enum SandboxWord {
    /// Not at all.
    L0,
    /// By system calls and files.
    L1,
    /// By namespaces as well.
    L2,
}

/// The owner of a machine.
#[derive(ToSchema)]
#[schema(as = Trust, rename_all = "snake_case")]
#[expect(dead_code, reason = "represents `Trust` in the OpenAPI document")]
pub(crate) enum TrustWord {
    /// Anybody's: a rented machine of a stranger, who can read the job.
    Community,
    /// A provider's that is accountable.
    Datacenter,
    /// The operator's own.
    Owned,
}

impl RequirementsRequest {
    /// The demands as they are stored.
    pub(super) fn checked(self) -> Result<Requirements, Problem> {
        let version = |text: Option<String>, name: &str| -> Result<Option<Version>, Problem> {
            let parsed = text.map(|text| text.parse()).transpose();
            parsed.map_err(|_| {
                Problem::field(format!("/demands/{name}"), "must be two numbers separated by a dot, e.g. 8.0")
            })
        };
        let gpus = self.gpus.unwrap_or(1);
        if !(1..=GPUS_MAX).contains(&gpus) {
            return Err(Problem::field("/demands/gpus", format!("must be 1 to {GPUS_MAX}")));
        }
        Ok(Requirements {
            gpus,
            gpu_models: names(self.gpu_models, "gpu_models")?,
            min_compute_capability: version(self.min_compute_capability, "min_compute_capability")?,
            min_cuda: version(self.min_cuda, "min_cuda")?,
            regions: names(self.regions, "regions")?,
            min_trust: self.min_trust.unwrap_or_default(),
            min_sandbox: self.min_sandbox.unwrap_or_default(),
        })
    }
}

/// Checks that only an endpoint that runs on a GPU has requirements on GPUs.
pub(super) fn check_gpu(demands: &Requirements, is_on_gpu: bool) -> Result<(), Problem> {
    if demands.asks_of_gpus() && !is_on_gpu {
        return Err(Problem::field(
            "/demands",
            "requires a GPU, but vram_gib is 0; set vram_gib to the memory the model needs",
        ));
    }
    Ok(())
}

/// Sorts names, so that equal requirements compare equal.
fn names(mut names: Vec<String>, what: &str) -> Result<Vec<String>, Problem> {
    let is_name = |name: &String| {
        name.chars().any(char::is_alphanumeric)
            && name.chars().count() <= NAME_MAX
            && !name.chars().any(char::is_control)
    };
    if names.len() > NAMES_MAX || !names.iter().all(is_name) {
        let message = format!("must be at most {NAMES_MAX} names of 1 to {NAME_MAX} printable characters");
        return Err(Problem::field(format!("/demands/{what}"), message));
    }
    names.sort();
    names.dedup();
    Ok(names)
}
