//! Calls to the cluster's API: with a timeout, a limit for the response, and retries if they are safe.

use std::time::Duration;

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::time::{sleep, timeout};

use super::answer::{CallError, call_error};
use super::settings::KubernetesSettings;

/// Maximum number of tries of a call.
const TRIES: u32 = 3;

/// Maximum size of a response, bytes: a page of 200 pods is about 2 MB.
const BODY_MAX: usize = 16 << 20;

/// Maximum wait that is accepted from a `Retry-After` header.
const AFTER_MAX: Duration = Duration::from_secs(5);

/// The verb of a request, as a Role names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    List,
    Create,
    Update,
    Patch,
    Delete,
}

impl Verb {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }

    fn method(self) -> Method {
        match self {
            Self::Get | Self::List => Method::GET,
            Self::Create => Method::POST,
            Self::Update => Method::PUT,
            Self::Patch => Method::PATCH,
            Self::Delete => Method::DELETE,
        }
    }
}

/// A kind of object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resource {
    group: &'static str,
    root: &'static str,
    plural: &'static str,
    sub: &'static str,
}

pub(super) const JOBS: Resource = Resource { group: "batch", root: "/apis/batch/v1", plural: "jobs", sub: "" };
pub(super) const PODS: Resource = Resource { group: "", root: "/api/v1", plural: "pods", sub: "" };
pub(super) const SECRETS: Resource = Resource { group: "", root: "/api/v1", plural: "secrets", sub: "" };
pub(super) const DEPLOYMENTS: Resource =
    Resource { group: "apps", root: "/apis/apps/v1", plural: "deployments", sub: "" };
pub(super) const SCALES: Resource = Resource { sub: "scale", ..DEPLOYMENTS };

impl Resource {
    /// Name of the resource in a Role.
    pub(super) fn full(&self) -> String {
        if self.sub.is_empty() { self.plural.to_owned() } else { format!("{}/{}", self.plural, self.sub) }
    }

    pub(super) fn group_word(&self) -> &'static str {
        if self.group.is_empty() { "the core group" } else { self.group }
    }
}

/// A request.
pub(super) struct Call<'a> {
    pub(super) verb: Verb,
    pub(super) resource: Resource,
    name: &'a str,
    query: Vec<(&'static str, String)>,
    body: Option<Vec<u8>>,
}

impl<'a> Call<'a> {
    pub(super) fn new(verb: Verb, resource: Resource) -> Self {
        Self { verb, resource, name: "", query: Vec::new(), body: None }
    }

    pub(super) fn named(self, name: &'a str) -> Self {
        Self { name, ..self }
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    /// Adds a body.
    pub(super) fn sending(self, body: &impl serde::Serialize) -> Self {
        // Serialization of these objects does not fail.
        Self { body: Some(serde_json::to_vec(body).unwrap_or_default()), ..self }
    }

    pub(super) fn is_secret(&self) -> bool {
        self.resource.plural == SECRETS.plural
    }

    /// Description of the request for errors.
    pub(super) fn words(&self, namespace: &str) -> String {
        let (verb, resource) = (self.verb.word(), self.resource.full());
        format!(
            "cannot {verb} {resource} {}in namespace {namespace}",
            if self.name.is_empty() { String::new() } else { format!("{} ", self.name) }
        )
    }

    fn request(&self, namespace: &str) -> Result<Request<Body>, http::Error> {
        let Resource { root, plural, sub, .. } = self.resource;
        let mut uri = format!("{root}/namespaces/{namespace}/{plural}");
        for part in [self.name, sub].into_iter().filter(|part| !part.is_empty()) {
            uri.push('/');
            uri.push_str(part);
        }
        for (n, (name, value)) in self.query.iter().enumerate() {
            uri.push(if n == 0 { '?' } else { '&' });
            uri.extend([name, "="]);
            uri.extend(utf8_percent_encode(value, NON_ALPHANUMERIC));
        }
        let patch = "application/merge-patch+json";
        let content = if self.verb == Verb::Patch { patch } else { "application/json" };
        let request = Request::builder().method(self.verb.method()).uri(uri).header(CONTENT_TYPE, content);
        request.body(self.body.clone().map_or_else(Body::empty, Body::from))
    }
}

/// Client of the API.
pub(super) struct Calls {
    settings: KubernetesSettings,
    client: OnceCell<(Client, String)>,
}

impl Calls {
    /// Creates a client, which connects with its first call.
    pub(super) fn new(settings: KubernetesSettings) -> Self {
        Self { settings, client: OnceCell::new() }
    }

    pub(super) fn settings(&self) -> &KubernetesSettings {
        &self.settings
    }

    /// Makes a call, at most [`TRIES`] times. Every verb can be repeated: a created object has a fixed name, and an
    /// update or patch contains the version that was read.
    pub(super) async fn call<T: DeserializeOwned>(&self, call: &Call<'_>) -> Result<T, CallError> {
        let (client, namespace) = self.client.get_or_try_init(|| connect(&self.settings)).await?;
        let (mut before, mut tries) = (None, 0);
        loop {
            tries += 1;
            let fault = match self.once(client, namespace, call).await {
                Ok(body) => return decoded(call, namespace, &body),
                Err(fault) => fault,
            };
            let after = match (&fault, &before) {
                (CallError::Silent(_), _) => None,
                (CallError::Busy { after }, _) => *after,
                // An earlier try may have succeeded and caused the refusal, e.g. by using up a quota.
                (CallError::Denied(why), Some(_)) => return Err(CallError::Silent(why.clone())),
                _ => return Err(fault),
            };
            if let CallError::Silent(why) = &fault {
                before = Some(why.clone());
            }
            if tries == TRIES {
                return Err(before.map_or(fault, CallError::Silent));
            }
            let most = u64::from(1_u32 << tries) * self.settings.retry_ms;
            let pause = Duration::from_millis(rand::random_range(most / 2..=most));
            sleep(pause.max(after.unwrap_or_default().min(AFTER_MAX))).await;
        }
    }

    async fn once(&self, client: &Client, namespace: &str, call: &Call<'_>) -> Result<Vec<u8>, CallError> {
        let request = call.request(namespace).map_err(|error| CallError::Denied(error.to_string()))?;
        let silent = |why: &str| CallError::Silent(format!("{}: {why}", call.words(namespace)));
        let answered = async {
            let answer = client.send(request).await.map_err(|error| match error {
                // The output of a credential plugin may contain credentials.
                kube::Error::Auth(_) => CallError::Denied("no usable credentials".to_owned()),
                error => silent(&error.to_string()),
            })?;
            let (status, headers) = (answer.status(), answer.headers().get(RETRY_AFTER).cloned());
            let read = Limited::new(answer.into_body(), BODY_MAX).collect().await;
            let body = read.map_err(|error| silent(&error.to_string()))?.to_bytes().to_vec();
            if status.is_success() || status == StatusCode::NOT_MODIFIED {
                return Ok(body);
            }
            let seconds = headers.and_then(|after| after.to_str().ok()?.parse().ok());
            Err(call_error(call, namespace, status, seconds.map(Duration::from_secs), &body))
        };
        let limit = Duration::from_millis(self.settings.call_limit_ms);
        let late = |_| Err(silent(&format!("no response within {} ms", limit.as_millis())));
        timeout(limit, answered).await.unwrap_or_else(late)
    }
}

/// Parses a response. If it cannot be read, the outcome of the request is unknown.
fn decoded<T: DeserializeOwned>(call: &Call<'_>, namespace: &str, body: &[u8]) -> Result<T, CallError> {
    serde_json::from_slice(body).map_err(|error| {
        let why = if call.is_secret() { "unexpected content".to_owned() } else { error.to_string() };
        CallError::Silent(format!("{}: unreadable response: {why}", call.words(namespace)))
    })
}

async fn connect(settings: &KubernetesSettings) -> Result<(Client, String), CallError> {
    let denied = |error: String| CallError::Denied(format!("cannot connect to the cluster: {error}"));
    let limit = Duration::from_millis(settings.call_limit_ms);
    let found = async {
        if settings.url.is_empty() {
            return Config::infer().await.map_err(|error| denied(error.to_string()));
        }
        let options = KubeConfigOptions::default();
        Config::from_custom_kubeconfig(explicit(settings)?, &options).await.map_err(|error| denied(error.to_string()))
    };
    let late = |_| Err(denied("the credentials are not to be had".to_owned()));
    let mut config = timeout(limit, found).await.unwrap_or_else(late)?;
    config.default_retry = false;
    let namespace = Some(&settings.namespace).filter(|namespace| !namespace.is_empty());
    let namespace = namespace.unwrap_or(&config.default_namespace).clone();
    let client = Client::try_from(config).map_err(|error| denied(error.to_string()))?;
    Ok((client, namespace))
}

/// The settings as a kubeconfig.
fn explicit(settings: &KubernetesSettings) -> Result<Kubeconfig, CallError> {
    let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
    let (mut cluster, mut user) = (json!({"server": settings.url}), json!({}));
    if !settings.ca_file.as_os_str().is_empty() {
        cluster["certificate-authority"] = text(&settings.ca_file).into();
    }
    if !settings.token_file.as_os_str().is_empty() {
        user["tokenFile"] = text(&settings.token_file).into();
    }
    if !settings.token.expose().is_empty() {
        user["token"] = settings.token.expose().into();
    }
    let config: Value = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "settings", "cluster": cluster}],
        "users": [{"name": "settings", "user": user}],
        "contexts": [{"name": "settings", "context": {"cluster": "settings", "user": "settings"}}],
        "current-context": "settings",
    });
    serde_json::from_value(config)
        .map_err(|_| CallError::Denied("url, token and ca_file are not a valid kubeconfig".to_owned()))
}
