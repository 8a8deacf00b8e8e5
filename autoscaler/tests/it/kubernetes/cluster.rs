//! The state of a cluster and the work of its controllers: objects with versions, and Jobs and Deployments that create
//! pods.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};

use super::schema;

/// The namespace.
pub(crate) const NAMESPACE: &str = "ml";

/// A one-time reply that replaces the regular one.
#[derive(Debug, Clone)]
pub(crate) enum Instead {
    /// The regular reply: the replacement is for a later call.
    Itself,
    /// No reply and no effect.
    Silence,
    /// No reply, but the call takes effect.
    SilenceAfterwards,
    /// This status, message, reason and `Retry-After`.
    Status(u16, &'static str, &'static str, Option<&'static str>),
    /// 200 with this text.
    Text(&'static str),
}

/// The whole state.
#[derive(Default)]
pub(crate) struct Cluster {
    objects: BTreeMap<&'static str, BTreeMap<String, Value>>,
    version: u64,
    /// Lists that are being read, by their continue token.
    pub(crate) lists: BTreeMap<String, VecDeque<Value>>,
    /// Number of pages that were not the last.
    pub(crate) pages: u64,
    /// Verbs that were used: group, resource, verb.
    pub(crate) used: BTreeSet<(String, String, String)>,
    /// The next replies that replace the regular ones, by verb and resource.
    pub(crate) instead: BTreeMap<(&'static str, &'static str), VecDeque<Instead>>,
    /// Bodies that violate the published types.
    pub(crate) faults: Vec<String>,
    /// Whether the controllers are paused.
    pub(crate) is_paused: bool,
}

impl Cluster {
    pub(crate) fn all(&self, plural: &str) -> Vec<Value> {
        self.objects.get(plural).into_iter().flat_map(|objects| objects.values().cloned()).collect()
    }

    pub(crate) fn get(&self, plural: &str, name: &str) -> Option<&Value> {
        self.objects.get(plural)?.get(name)
    }

    /// Writes an object, which must match its published type.
    pub(crate) fn put(&mut self, plural: &'static str, mut object: Value) -> Value {
        self.version += 1;
        let meta = &mut object["metadata"];
        meta["resourceVersion"] = json!(self.version.to_string());
        meta["namespace"] = json!(NAMESPACE);
        if meta["uid"].is_null() {
            meta["uid"] = json!(format!("uid-{}", self.version));
        }
        let name = meta["name"].as_str().unwrap().to_owned();
        self.faults.extend(schema::faults(kind(plural), &object));
        self.objects.entry(plural).or_default().insert(name, object.clone());
        object
    }

    pub(crate) fn remove(&mut self, plural: &str, name: &str) {
        if let Some(objects) = self.objects.get_mut(plural) {
            objects.remove(name);
        }
    }

    /// Changes an object.
    pub(crate) fn change(&mut self, plural: &'static str, name: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.get(plural, name).cloned().unwrap();
        change(&mut object);
        self.put(plural, object);
    }

    /// Deletes an object as the API server does: a pod ends in its own time, and a Job takes its pods with it.
    pub(crate) fn delete(&mut self, plural: &'static str, name: &str) {
        let object = self.get(plural, name).cloned().unwrap();
        if plural == "pods" {
            return self
                .change(plural, name, |pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
        }
        self.remove(plural, name);
        for owned in ["pods", "secrets"] {
            for of in self.owned(owned, &object) {
                match owned {
                    "pods" => self.delete("pods", &of),
                    _ => self.remove(owned, &of),
                }
            }
        }
    }

    fn owned(&self, plural: &str, owner: &Value) -> Vec<String> {
        let is_owned = |object: &Value| object["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"];
        self.all(plural).into_iter().filter(is_owned).map(|object| name_of(&object)).collect()
    }

    /// Removes pods whose termination was requested.
    pub(crate) fn bury(&mut self) {
        for pod in self.all("pods").iter().filter(|pod| !pod["metadata"]["deletionTimestamp"].is_null()) {
            self.remove("pods", &name_of(pod));
        }
    }

    /// Starts the pods that should run.
    pub(crate) fn run(&mut self) {
        for pod in self.all("pods") {
            if pod["spec"]["schedulingGates"].as_array().is_none_or(Vec::is_empty) && is_active(&pod) {
                self.change("pods", &name_of(&pod), |pod| {
                    pod["spec"]["nodeName"] = json!("node-1");
                    pod["status"] = json!({"phase": "Running"});
                });
            }
        }
    }

    /// One round of the controllers.
    pub(crate) fn control(&mut self) {
        if self.is_paused {
            return;
        }
        for job in self.all("jobs") {
            if self.owned("pods", &job).is_empty() && job["status"].is_null() {
                self.make_pod(&job);
            }
        }
        for deployment in self.all("deployments") {
            let wanted = usize::try_from(deployment["spec"]["replicas"].as_u64().unwrap()).unwrap();
            let mut active: Vec<Value> =
                self.owned("pods", &deployment).iter().filter_map(|name| self.get("pods", name).cloned()).collect();
            active.retain(is_active);
            for _ in active.len()..wanted {
                self.make_pod(&deployment);
            }
            active.sort_by_key(going);
            for pod in active.iter().take(active.len().saturating_sub(wanted)) {
                self.delete("pods", &name_of(pod));
            }
        }
    }

    fn make_pod(&mut self, of: &Value) {
        let template = &of["spec"]["template"];
        let (kind, version) = (&of["kind"], &of["apiVersion"]);
        let owner =
            json!({"apiVersion": version, "kind": kind, "name": of["metadata"]["name"], "uid": of["metadata"]["uid"]});
        let name = format!("{}-{}", name_of(of), self.version);
        self.put(
            "pods",
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "labels": template["metadata"]["labels"], "ownerReferences": [owner]},
                "spec": template["spec"],
                "status": {"phase": "Pending"},
            }),
        );
    }
}

/// The order in which surplus pods are deleted: those without a node, pending ones, then by deletion cost, as in the
/// ReplicaSet controller.
fn going(pod: &Value) -> (bool, bool, i64, String) {
    let cost = &pod["metadata"]["annotations"]["controller.kubernetes.io/pod-deletion-cost"];
    let cost = cost.as_str().map_or(0, |cost| cost.parse().unwrap());
    (!pod["spec"]["nodeName"].is_null(), pod["status"]["phase"] != "Pending", cost, name_of(pod))
}

pub(crate) fn is_active(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_null() && pod["status"]["phase"] != "Failed"
}

pub(crate) fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

pub(crate) fn kind(plural: &str) -> &'static str {
    match plural {
        "jobs" => "Job",
        "pods" => "Pod",
        "secrets" => "Secret",
        "deployments" => "Deployment",
        other => panic!("nobody keeps {other}"),
    }
}
