//! An endpoint version as it is sent, and what a deploy checks of it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use stokehold_queue::endpoint::{EndpointSpec, Weight};
use stokehold_queue::gateway::BATCH_SIZE_MAX;
use stokehold_queue::job::Priority;
use stokehold_queue::requirements::SandboxLevel;
use stokehold_queue::requirements_lock::{Indexes, Lock};
use stokehold_queue::vram::{DECLARED_MAX_GIB, class_of_gib};
use utoipa::ToSchema;

use super::requirements::RequirementsView;
use super::runner::{self, RunnerView};
use super::schema::Schema;
use super::steps::{self, RetryRequest, StepRequest};
use super::weights::WeightView;
use crate::error::Problem;
use crate::jobs::submit::{ATTEMPTS_MAX, TIMEOUT_MAX_S};
use crate::jobs::words::PriorityWord;
use crate::names;

const BATCH_WAIT_MAX_MS: f64 = 10_000.0;
const CONCURRENCY_MAX: u32 = 1_000;
const KEEP_WARM_MAX_S: u64 = 86_400;
const WARM_WORKERS_MAX: u32 = 1_000;
const WARMUPS_MAX: usize = 8;
const WARMUP_BYTES_MAX: usize = 64 << 10;

/// An endpoint version, as `stoke deploy` sends it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeployRequest {
    /// The endpoint's name: 1 to 63 of a-z, 0-9 and -, not starting with -.
    #[schema(pattern = "^[a-z0-9][a-z0-9-]{0,62}$")]
    name: String,
    /// The uploaded package, see `POST /v1/packages`.
    pub(super) package_sha256: String,
    /// The package's size.
    pub(super) package_size_bytes: u64,
    /// The share of new jobs for this version, 0 to 100 percent; the current version gets the rest. Default 100: this
    /// version becomes the current one. The first version always gets all jobs.
    #[schema(maximum = 100, default = 100)]
    pub(super) traffic_percent: Option<u32>,
    /// What the worker starts. Default `{"kind": "python"}`.
    #[serde(default)]
    runner: RunnerView,
    /// `file.py:object` inside the package; each runner kind other than `python` describes its own format.
    #[serde(default)]
    entry: String,
    /// The locked requirements, one per line: `name==version`, or `name @ https://...` with a hash, each optionally
    /// with a marker and `--hash=sha256:...`, and `--index-url` lines. Indexes and URLs must be below those that the
    /// operator allows. Up to 512 KiB. No other `requirements.txt` syntax is allowed.
    #[serde(default)]
    requirements_lock: String,
    /// The Python version, e.g. `3.11`; empty means the worker's own.
    #[serde(default)]
    python: String,
    /// Whether runners have network access. Default false: only loopback, on workers that can enforce it.
    #[schema(default = false)]
    #[serde(default)]
    network: bool,
    /// Environment variables of the runners: up to 64, each at most 4 KiB.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Names of secrets that runners receive as environment variables: up to 32. They must exist.
    #[schema(max_items = 32)]
    #[serde(default)]
    secrets: Vec<String>,
    /// Files that runners find in the folder `STOKE_WEIGHTS`: up to 1,000.
    #[schema(max_items = 1_000)]
    #[serde(default)]
    weights: Vec<WeightView>,
    /// Whether weights may contain pickles, which run code when they are loaded. They are scanned, and loaded without
    /// network on workers with a sandbox. Default false.
    #[schema(default = false)]
    #[serde(default)]
    allow_pickle: bool,
    /// The JSON Schema of the input. It must not refer to other documents.
    #[schema(value_type = serde_json::Value)]
    input_schema: Value,
    /// The JSON Schema of the result.
    #[serde(default)]
    #[schema(value_type = serde_json::Value)]
    output_schema: Value,
    /// The VRAM needed on one GPU, GiB, 0 to 384; 0 runs on the CPU.
    #[schema(minimum = 0, maximum = 384, default = 0)]
    #[serde(default)]
    vram_gib: f64,
    /// The share of the memory that the model takes on any GPU, more than 0 and at most 1, for engines that fill the
    /// memory they are given; `vram_gib` is then the minimum. The memory of such an endpoint is never learned. Default:
    /// the model takes what it needs.
    #[schema(exclusive_minimum = 0, maximum = 1)]
    vram_fraction: Option<f64>,
    /// Other requirements for workers.
    #[serde(default)]
    demands: RequirementsView,
    /// Jobs that one runner runs concurrently; more than 1 only for async handlers. Default 1.
    #[schema(minimum = 1, maximum = 1_000, default = 1)]
    max_concurrency: Option<u32>,
    /// Jobs that one call of the handler takes, 1 to 256; more than 1 only for handlers written for batches. Default 1.
    #[schema(minimum = 1, maximum = 256, default = 1)]
    max_batch_size: Option<u32>,
    /// How long the first job of a call waits for others, 0 to 10,000 milliseconds. Default 0.
    #[schema(minimum = 0, maximum = 10_000, default = 0)]
    max_wait_ms: Option<f64>,
    /// How long the model stays loaded after its last job although others need the memory, 0 to 86,400 seconds. Default
    /// 0.
    #[schema(maximum = 86_400, default = 0)]
    #[serde(default)]
    keep_warm_s: u64,
    /// How many workers keep the model loaded without jobs, 0 to 1,000. Default 0.
    #[schema(maximum = 1_000, default = 0)]
    #[serde(default)]
    min_warm: u32,
    /// The priority of jobs that set none. Default `standard`.
    #[schema(value_type = Option<PriorityWord>)]
    priority: Option<Priority>,
    /// The longest run of jobs that set none, seconds. Default 600.
    #[schema(minimum = 1, maximum = 604_800, default = 600)]
    timeout_s: Option<u64>,
    /// The number of attempts of jobs that set none. Default 3.
    #[schema(minimum = 1, maximum = 100, default = 3)]
    max_attempts: Option<u32>,
    /// When and after which errors jobs are retried.
    retry: Option<RetryRequest>,
    /// Up to 8 inputs that a worker runs once before the first job; the GPU memory they use replaces `vram_gib` on that
    /// worker.
    #[serde(default)]
    #[schema(value_type = Vec<serde_json::Value>, max_items = 8)]
    warmup: Vec<Value>,
    /// Up to 8 endpoints that must allow an input before it runs.
    #[schema(max_items = 8)]
    #[serde(default)]
    before: Vec<StepRequest>,
    /// Up to 8 endpoints that must allow an output before it is returned.
    #[schema(max_items = 8)]
    #[serde(default)]
    after: Vec<StepRequest>,
}

/// Checks a request and returns the name of the endpoint and the specification of the version.
pub(super) fn checked(request: DeployRequest, package_indexes: &[String]) -> Result<(String, EndpointSpec), Problem> {
    let wrong = |path: &str, message: String| Err(Problem::field(path, message));
    if !names::is_name(&request.name) {
        return wrong("/name", "must be 1 to 63 of a-z, 0-9 and -, and must not start with -".to_owned());
    }
    let runner = request.runner.checked(&request.entry)?;
    if let Err(error) = Lock::parse(&request.requirements_lock, Indexes::Listed(package_indexes)) {
        return wrong("/requirements_lock", error.to_string());
    }
    let python = request.python.split_once('.');
    if !request.python.is_empty() && !python.is_some_and(|(major, minor)| major == "3" && minor.parse::<u8>().is_ok()) {
        return wrong("/python", "must be a version, e.g. 3.11, or empty".to_owned());
    }
    runner::check_env(&request.env)?;
    let mut demands = request.demands.checked(request.vram_gib > 0.0)?;
    if request.allow_pickle {
        if request.network {
            return wrong(
                "/allow_pickle",
                "must be false if network is true: code that runs from a pickle must not reach the network".to_owned(),
            );
        }
        demands.min_sandbox = demands.min_sandbox.max(SandboxLevel::L1);
    }
    runner::check_secrets(&request.secrets, &request.env)?;
    match Schema::compile(&request.input_schema) {
        Ok(input) => check_warmup(&request.warmup, &input)?,
        Err(why) => return wrong("/input_schema", format!("is not a usable JSON Schema: {why}")),
    }
    if !request.output_schema.is_null()
        && let Err(why) = Schema::compile(&request.output_schema)
    {
        return wrong("/output_schema", format!("is not a usable JSON Schema: {why}"));
    }
    if class_of_gib(request.vram_gib).is_none() {
        return wrong("/vram_gib", format!("must be 0 to {DECLARED_MAX_GIB}: the memory needed on one GPU, in GiB"));
    }
    if let Some(fraction) = request.vram_fraction {
        if !(fraction > 0.0 && fraction <= 1.0) {
            return wrong(
                "/vram_fraction",
                "must be more than 0 and at most 1: the share of a GPU's memory".to_owned(),
            );
        }
        if request.vram_gib == 0.0 {
            return wrong("/vram_fraction", "requires vram_gib, the minimum memory in GiB".to_owned());
        }
    }
    let (max_concurrency, timeout_s, max_attempts) =
        (request.max_concurrency.unwrap_or(1), request.timeout_s.unwrap_or(600), request.max_attempts.unwrap_or(3));
    if !(1..=CONCURRENCY_MAX).contains(&max_concurrency) {
        return wrong("/max_concurrency", format!("must be 1 to {CONCURRENCY_MAX}"));
    }
    let (max_batch_size, max_wait_ms) = (request.max_batch_size.unwrap_or(1), request.max_wait_ms.unwrap_or(0.0));
    if !(1..=BATCH_SIZE_MAX).contains(&max_batch_size) {
        return wrong("/max_batch_size", format!("must be 1 to {BATCH_SIZE_MAX}"));
    }
    if max_batch_size > 1 && max_concurrency > 1 {
        return wrong(
            "/max_batch_size",
            "must be 1 if max_concurrency is more than 1: batching takes one call at a time".to_owned(),
        );
    }
    if !(0.0..=BATCH_WAIT_MAX_MS).contains(&max_wait_ms) {
        return wrong("/max_wait_ms", format!("must be 0 to {BATCH_WAIT_MAX_MS}"));
    }
    if request.keep_warm_s > KEEP_WARM_MAX_S {
        return wrong("/keep_warm_s", format!("must be at most {KEEP_WARM_MAX_S}"));
    }
    if request.min_warm > WARM_WORKERS_MAX {
        return wrong("/min_warm", format!("must be at most {WARM_WORKERS_MAX}"));
    }
    if !(1..=TIMEOUT_MAX_S).contains(&timeout_s) {
        return wrong("/timeout_s", format!("must be 1 to {TIMEOUT_MAX_S}"));
    }
    if !(1..=ATTEMPTS_MAX).contains(&max_attempts) {
        return wrong("/max_attempts", format!("must be 1 to {ATTEMPTS_MAX}"));
    }
    let spec = EndpointSpec {
        package_sha256: request.package_sha256,
        package_size_bytes: request.package_size_bytes,
        runner,
        entry: request.entry,
        requirements_lock: request.requirements_lock,
        python: request.python,
        network: request.network,
        env: request.env,
        secrets: request.secrets,
        weights: request.weights.into_iter().map(Weight::from).collect(),
        allow_pickle: request.allow_pickle,
        input_schema: request.input_schema,
        output_schema: request.output_schema,
        vram_gib: request.vram_gib,
        vram_fraction: request.vram_fraction,
        demands,
        max_concurrency,
        max_batch_size,
        max_wait_ms,
        keep_warm_s: request.keep_warm_s,
        min_warm: request.min_warm,
        priority: request.priority,
        timeout_s,
        max_attempts,
        retry: request.retry.map(|retry| retry.checked("/retry")).transpose()?,
        warmup: request.warmup,
        before: steps::checked(request.before, "/before")?,
        after: steps::checked(request.after, "/after")?,
    };
    Ok((request.name, spec))
}

fn check_warmup(warmup: &[Value], input: &Schema) -> Result<(), Problem> {
    if warmup.len() > WARMUPS_MAX {
        return Err(Problem::field("/warmup", format!("must be at most {WARMUPS_MAX} inputs")));
    }
    for (n, one) in warmup.iter().enumerate() {
        let wrong = |message: String| Err(Problem::field(format!("/warmup/{n}"), message));
        let text = one.to_string();
        if text.len() > WARMUP_BYTES_MAX {
            return wrong(format!("must be at most {WARMUP_BYTES_MAX} bytes"));
        }
        // A worker that warms a model up has no job whose files it could fetch.
        if text.contains("\"$file\"") {
            return wrong(
                "must not reference files: put them into the package, or create them in the handler".to_owned(),
            );
        }
        if let Err(misfits) = input.check(one, 1)
            && let Some(misfit) = misfits.first()
        {
            return wrong(format!("does not match the input schema: {misfit}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fmt::Display;

    use stokehold_queue::requirements::{GPUS_MAX, NAMES_MAX};

    use super::*;
    use crate::endpoints::weights;

    #[test]
    fn the_openapi_document_has_the_bounds_that_are_checked() {
        let document: Value = serde_json::from_str(crate::openapi::json()).unwrap();
        let bounds: [(&str, &str, &dyn Display); 19] = [
            ("DeployRequest", "after", &steps::STEPS_MAX),
            ("DeployRequest", "before", &steps::STEPS_MAX),
            ("DeployRequest", "keep_warm_s", &KEEP_WARM_MAX_S),
            ("DeployRequest", "max_attempts", &ATTEMPTS_MAX),
            ("DeployRequest", "max_batch_size", &BATCH_SIZE_MAX),
            ("DeployRequest", "max_concurrency", &CONCURRENCY_MAX),
            ("DeployRequest", "max_wait_ms", &BATCH_WAIT_MAX_MS),
            ("DeployRequest", "min_warm", &WARM_WORKERS_MAX),
            ("DeployRequest", "secrets", &runner::SECRETS_MAX),
            ("DeployRequest", "timeout_s", &TIMEOUT_MAX_S),
            ("DeployRequest", "vram_gib", &DECLARED_MAX_GIB),
            ("DeployRequest", "warmup", &WARMUPS_MAX),
            ("DeployRequest", "weights", &weights::FILES_MAX),
            ("Requirements", "gpu_models", &NAMES_MAX),
            ("Requirements", "gpus", &GPUS_MAX),
            ("Requirements", "regions", &NAMES_MAX),
            ("RetryPolicy", "backoff_max_s", &steps::BACKOFF_MAX_S),
            ("RetryPolicy", "backoff_s", &steps::BACKOFF_MAX_S),
            ("Step", "timeout_s", &TIMEOUT_MAX_S),
        ];
        for (schema, name, most) in bounds {
            let member = &document["components"]["schemas"][schema]["properties"][name];
            let documented = member.get("maximum").or_else(|| member.get("maxItems")).unwrap_or(&Value::Null);
            assert_eq!(documented.to_string(), most.to_string(), "{schema}.{name}");
        }
    }
}
