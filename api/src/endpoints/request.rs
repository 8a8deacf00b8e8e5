//! The rules of a deploy that the options' types and bounds do not express.

use serde_json::Value;
use stokehold_queue::endpoint::EndpointSpec;
use stokehold_queue::requirements::SandboxLevel;
use stokehold_queue::requirements_lock::{Indexes, Lock};
use stokehold_queue::vram::{DECLARED_MAX_GIB, class_of_gib};

use super::options::DeployRequest;
use super::schema::Schema;
use super::{openai_names, requirements, runner};
use crate::error::Problem;
use crate::names;

const WARMUPS_MAX: usize = 8;
const WARMUP_BYTES_MAX: usize = 64 << 10;

/// Checks a request and returns the name of the endpoint and the specification of the version.
pub(super) fn checked(request: DeployRequest, package_indexes: &[String]) -> Result<(String, EndpointSpec), Problem> {
    let name = request.name.clone();
    if !names::is_name(&name) {
        return wrong("/name", "must be 1 to 63 of a-z, 0-9 and -, and must not start with -".to_owned());
    }
    let mut spec = request.stored()?;
    runner::check(&spec.runner, &spec.entry)?;
    if let Err(error) = Lock::parse(&spec.requirements_lock, Indexes::Listed(package_indexes)) {
        return wrong("/requirements_lock", error.to_string());
    }
    let python = spec.python.split_once('.');
    if !spec.python.is_empty() && !python.is_some_and(|(major, minor)| major == "3" && minor.parse::<u8>().is_ok()) {
        return wrong("/python", "must be a version, e.g. 3.11, or empty".to_owned());
    }
    runner::check_env(&spec.env)?;
    requirements::check_gpu(&spec.demands, spec.vram_gib > 0.0)?;
    if spec.allow_pickle {
        if spec.network {
            return wrong(
                "/allow_pickle",
                "must be false if network is true: code that runs from a pickle must not reach the network".to_owned(),
            );
        }
        spec.demands.min_sandbox = spec.demands.min_sandbox.max(SandboxLevel::L1);
    }
    runner::check_secrets(&spec.secrets, &spec.env)?;
    match Schema::compile(&spec.input_schema) {
        Ok(input) => check_warmup(&spec.warmup, &input)?,
        Err(why) => return wrong("/input_schema", format!("is not a usable JSON Schema: {why}")),
    }
    if !spec.output_schema.is_null()
        && let Err(why) = Schema::compile(&spec.output_schema)
    {
        return wrong("/output_schema", format!("is not a usable JSON Schema: {why}"));
    }
    check_vram(&spec)?;
    openai_names::check(&spec)?;
    if spec.max_batch_size > 1 && spec.max_concurrency > 1 {
        return wrong(
            "/max_batch_size",
            "must be 1 if max_concurrency is more than 1: batching takes one call at a time".to_owned(),
        );
    }
    Ok((name, spec))
}

fn wrong<T>(path: &str, message: String) -> Result<T, Problem> {
    Err(Problem::field(path, message))
}

fn check_vram(spec: &EndpointSpec) -> Result<(), Problem> {
    if class_of_gib(spec.vram_gib).is_none() {
        return wrong("/vram_gib", format!("must be 0 to {DECLARED_MAX_GIB}: the memory needed on one GPU, in GiB"));
    }
    let Some(fraction) = spec.vram_fraction else { return Ok(()) };
    if !(fraction > 0.0 && fraction <= 1.0) {
        return wrong("/vram_fraction", "must be more than 0 and at most 1: the share of a GPU's memory".to_owned());
    }
    if spec.vram_gib == 0.0 {
        return wrong("/vram_fraction", "requires vram_gib, the minimum memory in GiB".to_owned());
    }
    Ok(())
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

    use stokehold_queue::gateway::BATCH_SIZE_MAX;
    use stokehold_queue::requirements::{GPUS_MAX, NAMES_MAX};

    use super::*;
    use crate::endpoints::{steps, weights};
    use crate::jobs::submit::{ATTEMPTS_MAX, TIMEOUT_MAX_S};

    #[test]
    fn the_openapi_document_has_the_bounds_that_are_checked() {
        let document: Value = serde_json::from_str(crate::openapi::json()).unwrap();
        let bounds: [(&str, &str, &dyn Display); 16] = [
            ("DeployRequest", "after", &steps::STEPS_MAX),
            ("DeployRequest", "before", &steps::STEPS_MAX),
            ("DeployRequest", "max_attempts", &ATTEMPTS_MAX),
            ("DeployRequest", "max_batch_size", &BATCH_SIZE_MAX),
            ("DeployRequest", "openai_models", &openai_names::MODELS_MAX),
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
