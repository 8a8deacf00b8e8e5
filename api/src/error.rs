//! Error responses: `application/problem+json` with a stable code. `problems.rs` builds them from domain errors.

use std::any::Any;
use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

/// Detail of every internal error: it must not expose internals.
pub(crate) const INTERNAL: &str = "internal error; the API log has the details under this response's x-request-id";

/// The kind of problem. The value is stable, so clients can act on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The body is not JSON.
    InvalidJson,
    /// The body's JSON is nested too deeply.
    TooDeep,
    /// The body is over its route's limit.
    BodyTooLarge,
    /// The body stopped arriving.
    BodyTimeout,
    /// A field, a header or a combination of them is invalid; `errors` names it.
    InvalidRequest,
    /// The input does not match the endpoint's schema; `errors` has the places.
    InvalidInput,
    /// A query parameter is invalid; `errors` names it.
    InvalidQuery,
    /// There is no endpoint of this name.
    UnknownEndpoint,
    /// The endpoint has no such version.
    UnknownVersion,
    /// There is no such resource, or the caller may not see it.
    NotFound,
    /// The path does not support the method.
    MethodNotAllowed,
    /// The token is missing or not valid.
    Unauthorized,
    /// The token lacks the scope.
    Forbidden,
    /// The token's tenant is disabled.
    TenantDisabled,
    /// The idempotency key was used with another request.
    IdempotencyConflict,
    /// The job has already ended in another state.
    AlreadyEnded,
    /// There is no result yet.
    NotReady,
    /// The job ended without a result.
    NoResult,
    /// No line of the batch failed or expired.
    NothingToRetry,
    /// An input references a file that was not uploaded.
    FileMissing,
    /// A job to wait for does not exist.
    DependencyMissing,
    /// The job cannot be retried: it has not ended, or it succeeded.
    NotRetryable,
    /// The job's record cannot be read; an operator must readmit or discard it.
    Quarantined,
    /// The limit of open jobs is reached.
    QuotaExceeded,
    /// Other resources depend on the resource to delete; `dependents` names them.
    InUse,
    /// The tenant's storage limit is reached.
    StorageExceeded,
    /// The package was not uploaded.
    PackageMissing,
    /// A secret does not exist or cannot be opened.
    SecretMissing,
    /// The caller no longer holds the lease.
    StaleFence,
    /// The worker uses another version of the protocol.
    ProtocolMismatch,
    /// The queue is full.
    QueueFull,
    /// The caller sends too many requests.
    RateLimited,
    /// A service behind this API does not answer; the outcome is unknown and repeating is safe.
    Unavailable,
    /// A defect in Stokehold.
    Internal,
}

impl Code {
    /// HTTP status and title.
    fn meaning(self) -> (StatusCode, &'static str) {
        match self {
            Self::InvalidJson => (StatusCode::BAD_REQUEST, "The body is not JSON"),
            Self::TooDeep => (StatusCode::BAD_REQUEST, "The JSON is nested too deeply"),
            Self::BodyTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "The body is too large"),
            Self::BodyTimeout => (StatusCode::REQUEST_TIMEOUT, "The body arrived too slowly"),
            Self::InvalidRequest => (StatusCode::BAD_REQUEST, "The request is not valid"),
            Self::InvalidInput => (StatusCode::BAD_REQUEST, "The input does not match the endpoint's schema"),
            Self::InvalidQuery => (StatusCode::BAD_REQUEST, "A query parameter is not valid"),
            Self::UnknownEndpoint => (StatusCode::NOT_FOUND, "No such endpoint"),
            Self::UnknownVersion => (StatusCode::NOT_FOUND, "No such version of the endpoint"),
            Self::NotFound => (StatusCode::NOT_FOUND, "Not found"),
            Self::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, "Method not allowed"),
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "Not authorised"),
            Self::Forbidden => (StatusCode::FORBIDDEN, "The token lacks a scope"),
            Self::TenantDisabled => (StatusCode::FORBIDDEN, "The tenant is disabled"),
            Self::IdempotencyConflict => {
                (StatusCode::UNPROCESSABLE_ENTITY, "The idempotency key was used with another request")
            }
            Self::AlreadyEnded => (StatusCode::CONFLICT, "The job has already ended"),
            Self::NotReady => (StatusCode::CONFLICT, "There is no result yet"),
            Self::NothingToRetry => (StatusCode::CONFLICT, "There is nothing to retry"),
            Self::NoResult => (StatusCode::CONFLICT, "The job ended without a result"),
            Self::FileMissing => (StatusCode::UNPROCESSABLE_ENTITY, "A file was not uploaded"),
            Self::DependencyMissing => (StatusCode::UNPROCESSABLE_ENTITY, "A job to wait for does not exist"),
            Self::NotRetryable => (StatusCode::CONFLICT, "The job cannot be tried again"),
            Self::Quarantined => (StatusCode::CONFLICT, "The job is quarantined"),
            Self::QuotaExceeded => (StatusCode::TOO_MANY_REQUESTS, "Too many open jobs"),
            Self::InUse => (StatusCode::CONFLICT, "The resource is in use"),
            Self::StorageExceeded => (StatusCode::CONFLICT, "The storage limit is reached"),
            Self::PackageMissing => (StatusCode::CONFLICT, "The package was not uploaded"),
            Self::SecretMissing => (StatusCode::CONFLICT, "A secret does not exist"),
            Self::StaleFence => (StatusCode::CONFLICT, "The lease is lost"),
            Self::ProtocolMismatch => (StatusCode::CONFLICT, "The worker uses another protocol version"),
            Self::QueueFull => (StatusCode::TOO_MANY_REQUESTS, "The queue is full"),
            Self::RateLimited => (StatusCode::TOO_MANY_REQUESTS, "Too many requests at once"),
            Self::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "Temporarily unavailable"),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "Internal error"),
        }
    }

    /// The HTTP status.
    #[must_use]
    pub fn status(self) -> StatusCode {
        self.meaning().0
    }

    /// Seconds after which a retry makes sense.
    fn retry_after_s(self) -> Option<u32> {
        match self {
            Self::Unavailable | Self::RateLimited => Some(1),
            Self::QueueFull | Self::QuotaExceeded => Some(5),
            _ => None,
        }
    }
}

/// An invalid place in a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct FieldError {
    /// JSON pointer into the body, or the name of a query parameter or header.
    pub path: String,
    /// What is wrong there.
    pub message: String,
}

/// What depends on a resource, of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Dependent {
    /// The kind.
    pub kind: DependentKind,
    /// How many there are.
    pub count: u64,
    /// Up to five of them: ids, or names.
    #[schema(max_items = 5)]
    pub examples: Vec<String>,
}

/// A kind of dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DependentKind {
    /// An open job that runs on it or names it.
    Job,
    /// An open job of another endpoint with a step that runs on it.
    Step,
    /// A schedule that submits to it and is not paused.
    Schedule,
    /// A batch that has not ended.
    Batch,
    /// Another endpoint whose jobs have a step that runs on it.
    Endpoint,
    /// A version of an endpoint.
    Version,
    /// A share of the endpoint's new jobs.
    Traffic,
    /// The endpoint can be rolled back to it.
    Rollback,
}

/// An error response.
#[derive(Debug, Clone)]
pub struct Problem {
    code: Code,
    detail: Cow<'static, str>,
    errors: Vec<FieldError>,
    dependents: Vec<Dependent>,
    /// Seconds after which a retry makes sense, if more precise than the code's.
    retry_after_s: Option<u32>,
    /// The failure behind an error of the server, logged with the response.
    cause: Option<Arc<dyn Error + Send + Sync>>,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.path.as_str(), self.message.split(' ').next()) {
            // The document as a whole is invalid: there is no place to name.
            ("", Some("must" | "has" | "is")) => write!(f, "the JSON {}", self.message),
            ("", _) => f.write_str(&self.message),
            (path, _) => write!(f, "{path}: {}", self.message),
        }
    }
}

impl Error for FieldError {}

impl FieldError {
    /// Creates an error at this place.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

impl From<FieldError> for Problem {
    fn from(error: FieldError) -> Self {
        Self::new(Code::InvalidRequest, error.to_string()).with_errors(vec![error])
    }
}

/// What went wrong and what to change (RFC 9457).
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemBody<'a> {
    /// The kind as a URN: `urn:stokehold:problem:` and the code.
    #[serde(rename = "type")]
    kind: String,
    /// The kind in words.
    title: &'a str,
    /// The HTTP status.
    status: u16,
    /// The kind of problem; stable.
    code: Code,
    /// What is wrong in this case and what to change.
    detail: &'a str,
    /// The invalid places, if any.
    #[serde(skip_serializing_if = "<[FieldError]>::is_empty")]
    errors: &'a [FieldError],
    /// What depends on the resource to delete; only with `in_use`.
    #[serde(skip_serializing_if = "<[Dependent]>::is_empty")]
    dependents: &'a [Dependent],
}

impl Problem {
    /// Creates a problem of this kind. `detail` names what to change.
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        let (errors, dependents) = (Vec::new(), Vec::new());
        Self { code, detail: detail.into(), errors, dependents, retry_after_s: None, cause: None }
    }

    /// Adds the invalid fields of the body.
    #[must_use]
    pub fn with_errors(mut self, errors: Vec<FieldError>) -> Self {
        self.errors = errors;
        self
    }

    /// Adds what depends on the resource.
    #[must_use]
    pub fn with_dependents(mut self, dependents: Vec<Dependent>) -> Self {
        self.dependents = dependents;
        self
    }

    /// Sets the seconds after which a retry makes sense.
    #[must_use]
    pub fn after(mut self, seconds: u32) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    /// Adds the failure behind the problem, which is logged with the response.
    #[must_use]
    pub fn caused_by(mut self, cause: impl Error + Send + Sync + 'static) -> Self {
        self.cause = Some(Arc::new(cause));
        self
    }

    /// Logs the failure behind the problem, if there is one. A response logs itself: only a problem that is not sent
    /// needs this call.
    pub(crate) fn log(&self) {
        let Some(error) = self.cause.as_deref() else { return };
        let error = error as &dyn Error;
        if self.code == Code::Internal {
            tracing::error!(error, "a request failed");
        } else {
            tracing::warn!(error, "a request failed");
        }
    }

    /// Creates a problem with one invalid field of the request.
    pub fn field(path: impl Into<String>, message: impl Into<String>) -> Self {
        FieldError::new(path, message).into()
    }

    /// Creates a problem with one invalid query parameter.
    pub fn query(name: &str, message: impl Into<String>) -> Self {
        let error = FieldError { path: name.to_owned(), message: message.into() };
        Self::new(Code::InvalidQuery, format!("{}: {}", error.path, error.message)).with_errors(vec![error])
    }

    /// Creates a 404 for a resource that does not exist or that the caller may not see.
    pub fn not_found(what: &str) -> Self {
        Self::new(Code::NotFound, format!("no such {what}"))
    }

    /// The problem's code.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// The problem's detail.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The invalid places of the request.
    #[must_use]
    pub fn errors(&self) -> &[FieldError] {
        &self.errors
    }

    /// Seconds after which a retry makes sense.
    pub(crate) fn retry_after_s(&self) -> Option<u32> {
        self.retry_after_s.or(self.code.retry_after_s())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, title) = self.code.meaning();
        self.log();
        let word = serde_json::to_value(self.code).ok();
        let kind =
            format!("urn:stokehold:problem:{}", word.as_ref().and_then(|word| word.as_str()).unwrap_or("internal"));
        let body = ProblemBody {
            kind,
            title,
            status: status.as_u16(),
            code: self.code,
            detail: &self.detail,
            errors: &self.errors,
            dependents: &self.dependents,
        };
        let text = serde_json::to_vec(&body).unwrap_or_else(|error| {
            tracing::error!(%error, "a problem cannot be serialised as JSON");
            format!(r#"{{"type":"urn:stokehold:problem:internal","title":"Internal error","status":500,"code":"internal","detail":"{INTERNAL}"}}"#)
                .into_bytes()
        });
        let mut response =
            (status, [(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"))], text).into_response();
        if let Some(seconds) = self.retry_after_s() {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        if self.code == Code::Unauthorized {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        // For a layer that writes it in another form.
        response.extensions_mut().insert(self);
        response
    }
}

/// The response to an unknown path.
pub(crate) async fn no_route() -> Problem {
    Problem::new(Code::NotFound, "no route has this path; see /openapi.json for the routes")
}

/// The response to an unsupported method.
pub(crate) async fn no_method() -> Problem {
    Problem::new(Code::MethodNotAllowed, "this path does not support this method; see the Allow header")
}

/// The response to a request whose handler panicked.
#[expect(clippy::needless_pass_by_value, reason = "the signature that catch-panic requires")]
pub(crate) fn panicked(panic: Box<dyn Any + Send + 'static>) -> Response {
    let text = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(panic = text.unwrap_or("unknown"), "a handler panicked");
    Problem::new(Code::Internal, INTERNAL).into_response()
}
