//! Endpoints and their versions as the API shows them.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use stokehold_queue::endpoint::EndpointVersion;
use stokehold_queue::job::Priority;
use utoipa::ToSchema;

use super::requirements::RequirementsView;
use super::runner::RunnerView;
use super::steps::{RetryRequest, StepRequest};
use super::weights::WeightView;
use crate::jobs::words::PriorityWord;
use crate::time_format::rfc3339;

/// A version of an endpoint. Versions never change.
#[derive(Serialize, ToSchema)]
#[schema(as = EndpointVersion)]
pub(crate) struct VersionView {
    name: String,
    /// 1, 2, 3, ...
    version: u32,
    /// When it was deployed, RFC 3339.
    created_at: String,
    package_sha256: String,
    package_size_bytes: u64,
    #[serde(skip_serializing_if = "RunnerView::is_python")]
    runner: RunnerView,
    entry: String,
    requirements_lock: String,
    python: String,
    network: bool,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    env: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    secrets: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    weights: Vec<WeightView>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    allow_pickle: bool,
    #[schema(value_type = serde_json::Value)]
    input_schema: Value,
    #[schema(value_type = serde_json::Value)]
    output_schema: Value,
    vram_gib: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    vram_fraction: Option<f64>,
    #[serde(skip_serializing_if = "RequirementsView::is_empty")]
    demands: RequirementsView,
    max_concurrency: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_batch_size: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_wait_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keep_warm_s: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_warm: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<PriorityWord>)]
    priority: Option<Priority>,
    timeout_s: u64,
    max_attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<RetryRequest>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<serde_json::Value>)]
    warmup: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    before: Vec<StepRequest>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    after: Vec<StepRequest>,
}

/// Endpoints by name, each with its current version.
#[derive(Serialize, ToSchema)]
pub(crate) struct EndpointList {
    pub(super) endpoints: Vec<VersionView>,
}

/// The versions of an endpoint, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct VersionList {
    pub(super) versions: Vec<VersionView>,
}

impl From<EndpointVersion> for VersionView {
    fn from(EndpointVersion { name, version, created_ms, spec }: EndpointVersion) -> Self {
        let is_batched = spec.max_batch_size > 1;
        Self {
            name,
            version,
            created_at: rfc3339(created_ms),
            package_sha256: spec.package_sha256,
            package_size_bytes: spec.package_size_bytes,
            runner: spec.runner.into(),
            entry: spec.entry,
            requirements_lock: spec.requirements_lock,
            python: spec.python,
            network: spec.network,
            env: spec.env,
            secrets: spec.secrets,
            weights: spec.weights.into_iter().map(WeightView::from).collect(),
            allow_pickle: spec.allow_pickle,
            input_schema: spec.input_schema,
            output_schema: spec.output_schema,
            vram_gib: spec.vram_gib,
            vram_fraction: spec.vram_fraction,
            demands: spec.demands.into(),
            max_concurrency: spec.max_concurrency,
            max_batch_size: is_batched.then_some(spec.max_batch_size),
            max_wait_ms: is_batched.then_some(spec.max_wait_ms),
            keep_warm_s: Some(spec.keep_warm_s).filter(|seconds| *seconds > 0),
            min_warm: Some(spec.min_warm).filter(|workers| *workers > 0),
            priority: spec.priority,
            timeout_s: spec.timeout_s,
            max_attempts: spec.max_attempts,
            retry: spec.retry.map(RetryRequest::from),
            warmup: spec.warmup,
            before: spec.before.into_iter().map(StepRequest::from).collect(),
            after: spec.after.into_iter().map(StepRequest::from).collect(),
        }
    }
}
