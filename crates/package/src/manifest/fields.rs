// Generated from api/openapi.json by `make models`; do not edit.
//! The fields of `stoke.toml`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::value::{Decimal, PythonVersion, TwoNumbers, Whole};
use super::{Retry, Server, Step, WeightSource};
use crate::kind::Kind;
use crate::requirements::Declared;

/// Fields that the deploy request groups under `demands`.
pub(super) const DEMANDS: [&str; 7] =
    ["gpu_models", "gpus", "min_compute_capability", "min_cuda", "min_sandbox", "min_trust", "regions"];

/// The contents of `stoke.toml`. A missing field has the handler's value, or the default.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    #[serde(skip_serializing)]
    pub(crate) name: Option<String>,
    #[serde(skip_serializing)]
    pub(crate) kind: Option<Kind>,
    #[serde(skip_serializing)]
    pub(crate) handler: Option<String>,
    #[serde(skip_serializing)]
    pub(crate) command: Option<Vec<String>>,
    #[serde(skip_serializing)]
    pub(crate) server: Option<Server>,
    #[serde(skip_serializing)]
    pub(crate) python: Option<PythonVersion>,
    #[serde(skip_serializing)]
    pub(crate) requirements: Option<Declared>,
    #[serde(skip_serializing)]
    pub(crate) input_schema: Option<PathBuf>,
    #[serde(skip_serializing)]
    pub(crate) output_schema: Option<PathBuf>,
    #[serde(skip_serializing)]
    pub(crate) weights: Option<Vec<WeightSource>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) after: Option<Vec<Step>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) allow_pickle: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) before: Option<Vec<Step>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) env: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) keep_warm_s: Option<Whole<0, 86_400>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_attempts: Option<Whole<1, 100>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_batch_size: Option<Whole<1, 256>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_concurrency: Option<Whole<1, 1_000>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_wait_ms: Option<Decimal<0, 10_000>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) min_warm: Option<Whole<0, 1_000>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) network: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) openai: Option<OpenAiApi>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) openai_models: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) openai_served_model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) priority: Option<Priority>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) queue_timeout_s: Option<Whole<1, 2_592_000>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) retry: Option<Retry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) secrets: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timeout_s: Option<Whole<1, 604_800>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) vram_fraction: Option<Decimal<0, 1>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) vram_gib: Option<Decimal<0, 384>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) warmup: Option<Vec<Map<String, Value>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gpu_models: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gpus: Option<Whole<1, 16>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) min_compute_capability: Option<TwoNumbers>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) min_cuda: Option<TwoNumbers>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) min_sandbox: Option<SandboxLevel>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) min_trust: Option<Trust>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) regions: Option<Vec<String>>,
}

impl Manifest {
    /// This manifest with the fields that it lacks from `base`. Variables are merged one by one.
    pub(crate) fn over(self, base: Self) -> Self {
        Self {
            name: self.name.or(base.name),
            kind: self.kind.or(base.kind),
            handler: self.handler.or(base.handler),
            command: self.command.or(base.command),
            server: self.server.or(base.server),
            python: self.python.or(base.python),
            requirements: self.requirements.or(base.requirements),
            input_schema: self.input_schema.or(base.input_schema),
            output_schema: self.output_schema.or(base.output_schema),
            weights: self.weights.or(base.weights),
            after: self.after.or(base.after),
            allow_pickle: self.allow_pickle.or(base.allow_pickle),
            before: self.before.or(base.before),
            env: base.env.into_iter().chain(self.env).collect(),
            keep_warm_s: self.keep_warm_s.or(base.keep_warm_s),
            max_attempts: self.max_attempts.or(base.max_attempts),
            max_batch_size: self.max_batch_size.or(base.max_batch_size),
            max_concurrency: self.max_concurrency.or(base.max_concurrency),
            max_wait_ms: self.max_wait_ms.or(base.max_wait_ms),
            min_warm: self.min_warm.or(base.min_warm),
            network: self.network.or(base.network),
            openai: self.openai.or(base.openai),
            openai_models: self.openai_models.or(base.openai_models),
            openai_served_model: self.openai_served_model.or(base.openai_served_model),
            priority: self.priority.or(base.priority),
            queue_timeout_s: self.queue_timeout_s.or(base.queue_timeout_s),
            retry: self.retry.or(base.retry),
            secrets: self.secrets.or(base.secrets),
            timeout_s: self.timeout_s.or(base.timeout_s),
            vram_fraction: self.vram_fraction.or(base.vram_fraction),
            vram_gib: self.vram_gib.or(base.vram_gib),
            warmup: self.warmup.or(base.warmup),
            gpu_models: self.gpu_models.or(base.gpu_models),
            gpus: self.gpus.or(base.gpus),
            min_compute_capability: self.min_compute_capability.or(base.min_compute_capability),
            min_cuda: self.min_cuda.or(base.min_cuda),
            min_sandbox: self.min_sandbox.or(base.min_sandbox),
            min_trust: self.min_trust.or(base.min_trust),
            regions: self.regions.or(base.regions),
        }
    }
}

#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
pub(super) enum OpenAiApi {
    #[serde(rename = "chat")]
    Chat,
    #[serde(rename = "embeddings")]
    Embeddings,
    #[serde(rename = "images")]
    Images,
    #[serde(rename = "none")]
    None,
}

#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
pub(super) enum Priority {
    #[serde(rename = "interactive")]
    Interactive,
    #[serde(rename = "standard")]
    Standard,
    #[serde(rename = "batch")]
    Batch,
}

#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
pub(super) enum SandboxLevel {
    #[serde(rename = "L0")]
    L0,
    #[serde(rename = "L1")]
    L1,
    #[serde(rename = "L2")]
    L2,
}

#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
pub(super) enum Trust {
    #[serde(rename = "community")]
    Community,
    #[serde(rename = "datacenter")]
    Datacenter,
    #[serde(rename = "owned")]
    Owned,
}
