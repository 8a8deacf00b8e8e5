//! A job's spec as stored in its record: JSON without the parts that the name of its lane contains.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::capability::parts_of;
use crate::id::JobId;
use crate::job::{
    BatchLine, Concurrency, Dependency, Hook, JobSpec, Priority, RetryPolicy, StepSpec, TraceContext, is_unshared,
};
use crate::keys;

/// The stored form of the fields of [`JobSpec`], which documents them. The compiler checks that both have the same
/// fields.
#[derive(Serialize, Deserialize)]
#[serde(remote = "JobSpec")]
struct Stored {
    #[serde(skip)]
    tenant: String,
    #[serde(skip)]
    endpoint: String,
    #[serde(skip)]
    priority: Priority,
    #[serde(skip)]
    vram_class_gib: u32,
    #[serde(skip)]
    demands: u32,
    // The first field, because lease.lua looks for it at the start of the text.
    #[serde(default, skip_serializing_if = "is_unshared")]
    share: u32,
    version: u32,
    #[serde(default, skip_serializing_if = "is_false")]
    pinned: bool,
    #[serde(default = "usual_timeout_ms", skip_serializing_if = "is_usual_timeout")]
    timeout_ms: u64,
    #[serde(default = "usual_attempts", skip_serializing_if = "is_usual_attempts")]
    max_attempts: u32,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    files: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start_by_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deadline_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retention_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    concurrency: Option<Concurrency>,
    #[serde(default, skip_serializing_if = "RetryPolicy::is_default")]
    retry: RetryPolicy,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    depends_on: Vec<Dependency>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hook: Option<Hook>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    batch: Option<BatchLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_of: Option<JobId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    schedule: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    step_of: Option<JobId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    steps: Vec<StepSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trace: Option<TraceContext>,
    // The name is short because most jobs of an SDK have this field.
    #[serde(default, rename = "sdk", skip_serializing_if = "Option::is_none")]
    sdk_ms: Option<u64>,
}

// Values that are omitted from the stored form, because most jobs do not set them. They are part of the stored format
// and stay the same if the API's defaults change.
const USUAL_TIMEOUT_MS: u64 = 600_000;
const USUAL_ATTEMPTS: u32 = 3; // // also in finish.lua

fn is_false(flag: &bool) -> bool {
    !*flag
}

fn usual_timeout_ms() -> u64 {
    USUAL_TIMEOUT_MS
}

fn usual_attempts() -> u32 {
    USUAL_ATTEMPTS
}

fn is_usual_timeout(timeout_ms: &u64) -> bool {
    *timeout_ms == USUAL_TIMEOUT_MS
}

fn is_usual_attempts(attempts: &u32) -> bool {
    *attempts == USUAL_ATTEMPTS
}

/// The field `spec` of a record.
///
/// # Errors
/// A spec that is no JSON.
pub fn encode(spec: &JobSpec) -> Result<String, serde_json::Error> {
    let mut text = Vec::with_capacity(64);
    Stored::serialize(spec, &mut serde_json::Serializer::new(&mut text))?;
    String::from_utf8(text).map_err(serde::ser::Error::custom)
}

/// Decodes the spec from a record's fields `lane` and `spec`.
pub(crate) fn decode(lane: &str, text: &str) -> Result<JobSpec, String> {
    let (priority, class, tenant, endpoint) =
        keys::parse_lane(lane).ok_or_else(|| format!("{lane:?} is not a lane"))?;
    let mut read = serde_json::Deserializer::from_str(text);
    let mut spec = Stored::deserialize(&mut read).map_err(|error| error.to_string())?;
    read.end().map_err(|error| error.to_string())?;
    spec.priority = priority;
    (spec.demands, spec.vram_class_gib) = parts_of(class);
    (spec.tenant, spec.endpoint) = (tenant.to_owned(), endpoint.to_owned());
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_spec_and_its_lane_are_the_spec() {
        let spec = JobSpec {
            tenant: "acme".into(),
            endpoint: "sdxl".into(),
            priority: Priority::Batch,
            vram_class_gib: 24,
            demands: 7,
            version: 3,
            pinned: true,
            timeout_ms: 1_000,
            max_attempts: 2,
            metadata: BTreeMap::from([("who".into(), "me".into())]),
            deadline_ms: Some(7),
            sdk_ms: Some(4),
            ..JobSpec::default()
        };
        let text = encode(&spec).unwrap();
        assert_eq!(
            text,
            r#"{"version":3,"pinned":true,"timeout_ms":1000,"max_attempts":2,"metadata":{"who":"me"},"deadline_ms":7,"sdk":4}"#
        );
        assert_eq!(decode(&keys::lane(&spec), &text), Ok(spec.clone()));

        let usual = JobSpec {
            pinned: false,
            timeout_ms: 600_000,
            max_attempts: 3,
            metadata: BTreeMap::new(),
            deadline_ms: None,
            sdk_ms: None,
            ..spec
        };
        assert_eq!(encode(&usual).unwrap(), r#"{"version":3}"#);
        assert_eq!(decode(&keys::lane(&usual), r#"{"version":3}"#), Ok(usual.clone()));
        let shared = JobSpec { share: 64, ..usual };
        assert_eq!(encode(&shared).unwrap(), r#"{"share":64,"version":3}"#);
        assert_eq!(decode(&keys::lane(&shared), r#"{"share":64,"version":3}"#), Ok(shared));
    }

    #[test]
    fn what_is_no_lane_or_no_spec_is_refused_in_words() {
        let good = r#"{"version":1,"timeout_ms":1,"max_attempts":1}"#;
        for lane in ["", "1:0:acme", "9:0:acme:echo", "1:x:acme:echo"] {
            assert_eq!(decode(lane, good), Err(format!("{lane:?} is not a lane")));
        }
        assert!(decode("1:0:acme:echo", "{}").unwrap_err().contains("version"));
        assert!(decode("1:0:acme:echo", &format!("{good} x")).is_err());
    }
}
