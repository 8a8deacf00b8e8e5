//! Fuzz target for the body of a submit: an accepted one is bounded, means the same when it is read again, and is the
//! same request when it is repeated.

use std::sync::{Arc, LazyLock};
use std::time::Instant;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use stokehold_queue::JobId;
use stokehold_queue::endpoint::EndpointVersion;
use stokehold_queue::job::JobSpec;
use stokehold_queue::vram::VramNeed;

use crate::config::Webhooks;
use crate::endpoints::catalog::Deployed;
use crate::endpoints::schema::Schema;
use crate::error::Problem;
use crate::jobs::inputs;
use crate::jobs::submit::{AHEAD_MAX_S, ATTEMPTS_MAX, Checked, SubmitRequest, TIMEOUT_MAX_S, Target, check as checked};
use crate::server::json;

/// The IDs that `#0` and `#1` refer to.
static BEFORE: LazyLock<[JobId; 2]> = LazyLock::new(|| [JobId::new(0), JobId::new(0)]);

/// An endpoint that accepts anything, and one with a schema.
pub(crate) static TARGETS: LazyLock<[Target; 2]> = LazyLock::new(|| {
    let strict = json!({"type": "object", "properties": {"n": {"type": "integer"}, "text": {"type": "string", "pattern": "^a+b*$"}},
        "required": ["n"], "additionalProperties": false});
    [json!(true), strict].map(|schema| {
        let version: EndpointVersion =
            serde_json::from_value(json!({"name": "echo", "version": 1, "created_ms": 0, "package_sha256": "",
            "package_size_bytes": 0, "entry": "a.py:a", "input_schema": schema}))
            .unwrap();
        let input = Schema::compile(&version.spec.input_schema).unwrap();
        let deployed = Deployed {
            version,
            need: VramNeed::default(),
            vram_class_gib: 0,
            demands: 0,
            input,
            fresh_until: Instant::now(),
        };
        Target { deployed: Arc::new(deployed), steps: Vec::new(), webhooks: Webhooks::default(), shard: 0 }
    })
});

pub fn check(data: &[u8]) {
    let (choice, body) = super::split(data);
    let target = &TARGETS[choice % 2];
    let request: SubmitRequest = match json::parse(body) {
        Ok(request) => request,
        Err(error) => return is_refusal(&error.into()),
    };
    let again: SubmitRequest = json::parse(&serde_json::to_vec(&request).unwrap()).unwrap();
    match (submitted(request, target), submitted(again, target)) {
        (Ok(first), Ok(second)) => {
            assert_eq!(fingerprint(&first), fingerprint(&second), "a request that is repeated is the same request");
            is_sound(&first);
        }
        (Err(first), Err(second)) => {
            assert_eq!(first.code(), second.code());
            is_refusal(&first);
        }
        (first, second) => panic!("once it is {}, once {}", first.is_ok(), second.is_ok()),
    }
}

fn submitted(request: SubmitRequest, target: &Target) -> Result<Checked, Problem> {
    Ok(checked(request, target, "acme", "", &*BEFORE)?)
}

/// Checks that the error is the caller's mistake, not a failure of the server.
fn is_refusal(problem: &Problem) {
    assert!(problem.code().status().is_client_error(), "{problem:?}");
}

fn fingerprint(checked: &Checked) -> Vec<u8> {
    let mut hash = Sha256::new();
    checked.fingerprint(&mut hash);
    hash.finalize().to_vec()
}

fn is_sound(checked: &Checked) {
    let job = &checked.job;
    let JobSpec { timeout_ms, max_attempts, depends_on, files, metadata, hook, concurrency, .. } = &job.spec;
    assert!((1_000..=TIMEOUT_MAX_S * 1_000).contains(timeout_ms) && (1..=ATTEMPTS_MAX).contains(max_attempts));
    assert!(depends_on.len() <= 100 && files.len() <= 100 && metadata.len() <= 32);
    assert!(concurrency.as_ref().is_none_or(|it| it.max > 0 && !it.key.is_empty()));
    assert!(hook.as_ref().is_none_or(|hook| hook.url[..8].eq_ignore_ascii_case("https://") && !hook.events.is_empty()));
    let latest = stokehold_queue::now_ms() + AHEAD_MAX_S * 1_000;
    let times = [Some(job.run_after_ms), job.spec.start_by_ms, job.spec.deadline_ms];
    assert!(times.into_iter().flatten().all(|ms| ms <= latest));

    // Other components read the stored record: the queue, the worker, the loops.
    let spec: JobSpec = serde_json::from_str(&serde_json::to_string(&job.spec).unwrap()).unwrap();
    assert_eq!(spec, job.spec);
    let text = job.input.get();
    let kept = json::strict_value(text, "/input").unwrap();
    assert!(depth(&kept) <= json::DEPTH_MAX);
    assert_eq!(serde_json::from_str::<Value>(text).ok().as_ref(), Some(&kept), "an input is read alike by all");
    assert_eq!(&inputs::files_of(text), files, "the files of an input are found again");
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}
