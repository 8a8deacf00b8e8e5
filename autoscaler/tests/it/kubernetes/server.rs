//! The API of a cluster, on a socket of this machine.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::cluster::{Cluster, Instead, NAMESPACE, kind};
use super::schema;

/// The valid bearer token.
pub(crate) const TOKEN: &str = "sa_verysecret";

/// The server, and its address.
pub(crate) struct Server {
    pub(crate) url: String,
    cluster: Arc<Mutex<Cluster>>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let cluster = Arc::new(Mutex::new(Cluster::default()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let app = Router::new().fallback(answer).with_state(Arc::clone(&cluster));
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { url, cluster }
    }

    pub(crate) fn cluster(&self) -> MutexGuard<'_, Cluster> {
        self.cluster.lock().unwrap()
    }

    /// Replaces the reply to the next such call.
    pub(crate) fn instead(&self, verb: &'static str, resource: &'static str, with: Instead) {
        self.cluster().instead.entry((verb, resource)).or_default().push_back(with);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let faults = std::mem::take(&mut self.cluster.lock().unwrap_or_else(std::sync::PoisonError::into_inner).faults);
        assert!(faults.is_empty() || std::thread::panicking(), "not as published: {faults:#?}");
    }
}

/// A request.
struct Ask {
    group: String,
    plural: &'static str,
    name: Option<String>,
    is_scale: bool,
    verb: &'static str,
    query: Vec<(String, String)>,
}

impl Ask {
    fn of(method: &Method, uri: &Uri) -> Option<Self> {
        let parts: Vec<&str> = uri.path().trim_start_matches('/').split('/').collect();
        let (group, rest) = match parts[..] {
            ["api", "v1", ..] => ("", &parts[2..]),
            ["apis", group, "v1", ..] => (group, &parts[3..]),
            _ => return None,
        };
        let ["namespaces", NAMESPACE, plural, ref rest @ ..] = *rest else { return None };
        let plural = ["jobs", "pods", "secrets", "deployments"].into_iter().find(|known| *known == plural)?;
        let (name, is_scale) = match rest {
            [] => (None, false),
            [name] => (Some((*name).to_owned()), false),
            [name, "scale"] if plural == "deployments" => (Some((*name).to_owned()), true),
            _ => return None,
        };
        let verb = match (method.as_str(), &name) {
            ("GET", None) => "list",
            ("GET", Some(_)) => "get",
            ("POST", None) => "create",
            ("PUT", Some(_)) => "update",
            ("PATCH", Some(_)) => "patch",
            ("DELETE", Some(_)) => "delete",
            _ => return None,
        };
        let query = form(uri.query().unwrap_or_default());
        Some(Self { group: group.to_owned(), plural, name, is_scale, verb, query })
    }

    fn resource(&self) -> String {
        if self.is_scale { format!("{}/scale", self.plural) } else { self.plural.to_owned() }
    }

    fn asked(&self, name: &str) -> &str {
        self.query.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }
}

fn form(query: &str) -> Vec<(String, String)> {
    let decoded = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned();
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decoded(name), decoded(value))).collect()
}

async fn answer(
    State(cluster): State<Arc<Mutex<Cluster>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if headers.get("authorization").and_then(|value| value.to_str().ok()) != Some(&format!("Bearer {TOKEN}")) {
        return status(401, "Unauthorized", "Unauthorized");
    }
    let Some(ask) = Ask::of(&method, &uri) else { return status(404, "there is no such path", "NotFound") };
    let content = headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let wanted = if ask.verb == "patch" { "application/merge-patch+json" } else { "application/json" };
    if content != wanted {
        return status(415, &format!("{content} is not {wanted}"), "UnsupportedMediaType");
    }
    let answered = {
        let mut cluster = cluster.lock().unwrap();
        cluster.used.insert((ask.group.clone(), ask.resource(), ask.verb.to_owned()));
        let planned =
            cluster.instead.iter_mut().find(|((verb, resource), _)| *verb == ask.verb && *resource == ask.resource());
        match planned.and_then(|(_, planned)| planned.pop_front()) {
            None | Some(Instead::Itself) => Some(act(&mut cluster, &ask, &body)),
            Some(Instead::Silence) => None,
            Some(Instead::SilenceAfterwards) => {
                act(&mut cluster, &ask, &body);
                None
            }
            Some(Instead::Text(text)) => {
                Some((StatusCode::OK, [("content-type", "application/json")], text).into_response())
            }
            Some(Instead::Status(code, message, reason, after)) => {
                let mut answer = status(code, message, reason);
                if let Some(after) = after {
                    answer.headers_mut().insert("retry-after", after.parse().unwrap());
                }
                Some(answer)
            }
        }
    };
    match answered {
        Some(answered) => answered,
        None => std::future::pending().await,
    }
}

fn act(cluster: &mut Cluster, ask: &Ask, body: &[u8]) -> Response {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let sent = match ask.verb {
        "create" => Some(kind(ask.plural)),
        "update" if ask.is_scale => Some("Scale"),
        "delete" => Some("DeleteOptions"),
        _ => None,
    };
    let faults = sent.map(|kind| schema::faults(kind, &body)).unwrap_or_default();
    if !faults.is_empty() {
        let message = faults.join("; ");
        cluster.faults.extend(faults);
        return status(422, &message, "Invalid");
    }
    let found = ask.name.as_deref().map(|name| cluster.get(ask.plural, name).cloned());
    let answer = match (ask.verb, found) {
        ("list", _) => list(cluster, ask),
        ("create", _) => create(cluster, ask, body),
        (_, None | Some(None)) => status(404, &format!("{} not found", ask.plural), "NotFound"),
        ("get", Some(Some(found))) => json_of(&if ask.is_scale { scale_of(&found) } else { found }),
        ("update", Some(Some(found))) => update_scale(cluster, &found, &body),
        ("patch", Some(Some(found))) => patch(cluster, ask, found, &body),
        ("delete", Some(Some(found))) => {
            let uid = &body["preconditions"]["uid"];
            if !uid.is_null() && *uid != found["metadata"]["uid"] {
                return status(409, "the uid is another", "Conflict");
            }
            cluster.delete(ask.plural, ask.name.as_deref().unwrap());
            json_of(&json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}))
        }
        (verb, _) => status(405, verb, "MethodNotAllowed"),
    };
    cluster.control();
    answer
}

fn create(cluster: &mut Cluster, ask: &Ask, mut body: Value) -> Response {
    let name = body["metadata"]["name"].as_str().unwrap().to_owned();
    if cluster.get(ask.plural, &name).is_some() {
        return status(409, &format!("{} \"{name}\" already exists", ask.plural), "AlreadyExists");
    }
    if let Some(owner) = body["metadata"]["ownerReferences"].get(0) {
        let found = cluster.get("jobs", owner["name"].as_str().unwrap());
        assert_eq!(found.unwrap()["metadata"]["uid"], owner["uid"], "what is owned by nobody is swept away");
    }
    // Text data is stored as bytes; no code here decodes base64.
    if let Some(data) = body.as_object_mut().and_then(|body| body.remove("stringData")) {
        body["data"] = data;
    }
    json_of(&cluster.put(ask.plural, body))
}

fn list(cluster: &mut Cluster, ask: &Ask) -> Response {
    let (limit, token) = (ask.asked("limit").parse().unwrap_or(usize::MAX), ask.asked("continue"));
    let mut left: VecDeque<Value> = if token.is_empty() {
        let is_asked = |object: &Value| {
            let mut terms = ask.asked("labelSelector").split(',').filter_map(|term| term.split_once('='));
            terms.all(|(name, value)| object["metadata"]["labels"][name] == value)
        };
        cluster.all(ask.plural).into_iter().filter(is_asked).collect()
    } else {
        match cluster.lists.remove(token) {
            Some(left) => left,
            None => return status(410, "the provided continue parameter is too old", "Expired"),
        }
    };
    let page: Vec<Value> = left.drain(..limit.min(left.len())).collect();
    let mut meta = json!({"resourceVersion": "1"});
    if !left.is_empty() {
        cluster.pages += 1;
        let token = format!("next/{}", cluster.pages);
        meta["continue"] = json!(token);
        meta["remainingItemCount"] = json!(left.len());
        cluster.lists.insert(token, left);
    }
    json_of(&json!({"kind": format!("{}List", kind(ask.plural)), "apiVersion": "v1", "metadata": meta, "items": page}))
}

fn scale_of(deployment: &Value) -> Value {
    let (meta, spec) = (&deployment["metadata"], &deployment["spec"]);
    let labels = spec["selector"]["matchLabels"].as_object().unwrap();
    let terms: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={}", value.as_str().unwrap())).collect();
    json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale",
        "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"], "resourceVersion": meta["resourceVersion"]},
        "spec": {"replicas": spec["replicas"]}, "status": {"replicas": spec["replicas"], "selector": terms.join(",")},
    })
}

fn update_scale(cluster: &mut Cluster, found: &Value, scale: &Value) -> Response {
    if scale["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"] {
        return status(409, "the object has been modified", "Conflict");
    }
    let name = scale["metadata"]["name"].as_str().unwrap().to_owned();
    cluster
        .change("deployments", &name, |deployment| deployment["spec"]["replicas"] = scale["spec"]["replicas"].clone());
    json_of(&scale_of(cluster.get("deployments", &name).unwrap()))
}

fn patch(cluster: &mut Cluster, ask: &Ask, found: Value, over: &Value) -> Response {
    let read = &over["metadata"]["resourceVersion"];
    if !read.is_null() && *read != found["metadata"]["resourceVersion"] {
        return status(409, "the object has been modified", "Conflict");
    }
    let mut patched = found;
    merge(&mut patched, over);
    json_of(&cluster.put(ask.plural, patched))
}

/// JSON merge patch, RFC 7396.
fn merge(into: &mut Value, over: &Value) {
    let Value::Object(members) = over else {
        *into = over.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (name, value) in members {
        match value {
            Value::Null => drop(into.as_object_mut().unwrap().remove(name)),
            value => merge(&mut into[name], value),
        }
    }
}

fn json_of(body: &Value) -> Response {
    axum::Json(body).into_response()
}

fn status(code: u16, message: &str, reason: &str) -> Response {
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "message": message, "reason": reason});
    assert_eq!(schema::faults("Status", &body), Vec::<String>::new());
    (StatusCode::from_u16(code).unwrap(), axum::Json(body)).into_response()
}
