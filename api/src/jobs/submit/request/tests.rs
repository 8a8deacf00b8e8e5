//! Tests of the equality of submits, and of the job that a request becomes.

use serde_json::json;

use super::*;
use crate::fuzzing::job_json::TARGETS;

#[test]
fn the_same_value_hashes_the_same_however_it_was_written() {
    let hash = |text: &str| {
        let mut hash = Sha256::new();
        canonical(&serde_json::from_str(text).unwrap(), &mut hash);
        hash.finalize()
    };
    assert_eq!(hash(r#"{"a": 1, "b": [true, "x"]}"#), hash(r#"{ "b":[true,"\u0078"],"a":1}"#));
    assert_ne!(hash(r#"["ab"]"#), hash(r#"["a", "b"]"#));
    assert_ne!(hash(r#"{"a": {"b": 1}}"#), hash(r#"{"a": {}, "b": 1}"#));
}

fn fingerprint(request: &Value) -> String {
    asked(&serde_json::from_value(request.clone()).unwrap()).unwrap()
}

/// Two values of a member, from its schema.
fn samples(schema: &Value, document: &Value) -> [Value; 2] {
    let resolved = |schema: &Value| match schema["$ref"].as_str() {
        Some(path) => document.pointer(path.trim_start_matches('#')).unwrap().clone(),
        None => schema.clone(),
    };
    let schema = resolved(schema);
    let choices = ["oneOf", "anyOf"].into_iter().filter_map(|word| schema[word].as_array()).flatten();
    let schema = choices.map(resolved).find(|choice| choice["type"] != "null").unwrap_or_else(|| schema.clone());
    if let Some(words) = schema["enum"].as_array() {
        return [words[0].clone(), words[1].clone()];
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().find(|kind| *kind != "null").unwrap().clone(),
        kind => kind.clone(),
    };
    match kind.as_str() {
        Some("integer") => [1.into(), 2.into()],
        Some("number") => [0.25.into(), 0.5.into()],
        Some("boolean") => [true.into(), false.into()],
        Some("string") => ["a".into(), "b".into()],
        Some("array") if resolved(&schema["items"])["enum"].is_array() => {
            let words = resolved(&schema["items"])["enum"].clone();
            [json!([words[0]]), json!([words[0], words[1]])]
        }
        Some("array") => {
            let item = |on: &str| json!([{"job": JobId::new(0), "on": on}]);
            [item("success"), item("completion")]
        }
        Some("object") => [json!({"k": "a"}), json!({"k": "b"})],
        other => panic!("the test knows no value of {other:?}: {schema}"),
    }
}

#[test]
fn every_member_of_a_request_is_part_of_its_fingerprint() {
    let document: Value = serde_json::from_str(crate::openapi::json()).unwrap();
    let members = document["components"]["schemas"]["SubmitRequest"]["properties"].as_object().unwrap();
    assert!(members.len() > 15, "{members:?}");
    let plain = json!({"endpoint": "echo", "input": {}});
    for (name, schema) in members.iter().filter(|(name, _)| !["input", "idempotency_key"].contains(&name.as_str())) {
        let of = |value: Value| {
            let mut request = plain.clone();
            request[name] = value;
            fingerprint(&request)
        };
        let [one, other] = samples(schema, &document).map(of);
        assert!(
            one != other && one != fingerprint(&plain) && other != fingerprint(&plain),
            "{name} makes no difference"
        );
    }
}

/// Compares with the text that the previous release hashes, for the members that it has.
#[test]
fn a_fingerprint_is_that_of_the_release_before() {
    assert_eq!(
        fingerprint(&json!({"endpoint": "echo", "input": {"a": 1}})),
        r#"["echo",null,null,null,null,null,null,[null,null,null],[null,null],null,[null,null]]"#
    );
    let job = JobId::new(0).to_string();
    let all = every_member(&job);
    let expected = json!([
        "echo", 3, "batch", 5, 2, "2026-11-21T05:50:00Z", {"a": "1", "b": "2"}, [6, 7, 60], ["k", 4],
        [{"job": job, "on": "completion"}], ["https://example.org/", ["job.started"]],
    ]);
    assert_eq!(fingerprint(&all), expected.to_string());
}

/// A request with every member of the previous release.
fn every_member(job: &str) -> Value {
    json!({
        "endpoint": "echo", "version": 3, "input": [1], "priority": "batch", "timeout_s": 5, "max_attempts": 2,
        "run_after": "2026-11-21T05:50:00Z", "queue_timeout_s": 6, "deadline_s": 7, "retention_s": 60,
        "concurrency_key": "k", "concurrency_max": 4, "depends_on": [{"job": job, "on": "completion"}],
        "webhook": "https://example.org/", "webhook_events": ["job.started"], "metadata": {"b": "2", "a": "1"},
        "idempotency_key": "i",
    })
}

/// The job of a request, or the error. Of times that count from now only the number of days is left.
fn job_of(request: &Value) -> Result<Value, String> {
    let request = serde_json::from_value(request.clone()).unwrap();
    let job = check(request, &TARGETS[0], "acme", "", &[]).map_err(|error| error.to_string())?.job;
    let mut spec = serde_json::to_value(&job.spec).unwrap();
    for name in ["start_by_ms", "deadline_ms"] {
        // Half a day more, because a moment passes between the two.
        let days = |ms: u64| (ms + 43_200_000).saturating_sub(now_ms()) / 86_400_000;
        spec[name] = spec[name].as_u64().map(days).into();
    }
    Ok(json!([spec, job.run_after_ms]))
}

#[test]
fn every_member_of_a_request_makes_a_difference_to_its_job() {
    let document: Value = serde_json::from_str(crate::openapi::json()).unwrap();
    let mut all = every_member(&JobId::new(0).to_string());
    let members = document["components"]["schemas"]["SubmitRequest"]["properties"].as_object().unwrap();
    for (name, schema) in members {
        if all[name].is_null() {
            all[name] = samples(schema, &document)[0].clone();
        }
    }
    let job = job_of(&all).unwrap();
    for name in members.keys().filter(|name| !["endpoint", "input", "idempotency_key"].contains(&name.as_str())) {
        let mut without = all.clone();
        without.as_object_mut().unwrap().remove(name);
        assert_ne!(job_of(&without).ok().as_ref(), Some(&job), "{name} is not part of the job");
    }
}

#[test]
fn the_queue_applies_the_default_queue_timeout_to_a_job_that_is_ready_and_has_no_deadline() {
    let start_by_s = |options: Value| {
        let before_ms = now_ms();
        let mut request = json!({"endpoint": "echo", "input": [1]});
        request.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        let request = serde_json::from_value(request).unwrap();
        let job = check(request, &TARGETS[0], "acme", "", &[]).map_err(|error| error.to_string()).unwrap().job;
        job.spec.start_by_ms.map(|start_by_ms| (start_by_ms - before_ms.max(job.run_after_ms)) / 1_000)
    };
    assert_eq!(start_by_s(json!({})), None);
    assert_eq!(start_by_s(json!({"queue_timeout_s": 500})), Some(500));
    assert_eq!(start_by_s(json!({"deadline_s": 604_799})), None, "the deadline comes first");
    assert_eq!(start_by_s(json!({"deadline_s": 700_000})), Some(604_800));
    let tomorrow = time_format::rfc3339(now_ms() + 86_400_000);
    assert_eq!(start_by_s(json!({"run_after": tomorrow})), Some(604_800), "from the time at which it becomes ready");
}
