//! The published types of Kubernetes.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::{Value, json};

const SCHEMA: &str = include_str!("schema.json");

/// Types by the last part of their published name: `Job`, `Pod`.
static TYPES: LazyLock<BTreeMap<String, Validator>> = LazyLock::new(|| {
    let document: Value = serde_json::from_str(SCHEMA).unwrap();
    let roots = [
        "Deployment",
        "DeleteOptions",
        "Job",
        "Pod",
        "Role",
        "RoleBinding",
        "Scale",
        "Secret",
        "ServiceAccount",
        "Status",
    ];
    let names = document["$defs"].as_object().unwrap().keys();
    let is_root = |name: &&String| roots.iter().any(|root| name.ends_with(&format!(".{root}")));
    let validator = |name: &String| {
        let mut schema = document.clone();
        schema["$ref"] = json!(format!("#/$defs/{name}"));
        (name.rsplit('.').next().unwrap().to_owned(), jsonschema::validator_for(&schema).unwrap())
    };
    names.filter(is_root).map(validator).collect()
});

/// Violations of the published type of an object: the places and the reasons.
pub(crate) fn faults(kind: &str, object: &Value) -> Vec<String> {
    let errors = TYPES[kind].iter_errors(object);
    errors.map(|error| format!("{kind} {}: {error}", error.instance_path())).collect()
}

#[test]
fn what_is_not_published_is_refused() {
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": {"template": {}}});
    assert_eq!(faults("Job", &job), Vec::<String>::new());
    let wrong =
        [("/spec/backofLimit", json!(0)), ("/spec/backoffLimit", json!("0")), ("/metadata/labels", json!({"a": 1}))];
    for (path, value) in wrong {
        let mut job = job.clone();
        let (parent, name) = path.rsplit_once('/').unwrap();
        job.pointer_mut(parent).unwrap()[name] = value;
        assert_eq!(faults("Job", &job).len(), 1, "{path}");
    }
    assert_eq!(faults("Job", &json!({"kind": "Job", "spec": {}})).len(), 1, "a template is required");
}
