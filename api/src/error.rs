//! The only map from errors to HTTP responses: `application/problem+json` with a stable code.

use std::any::Any;
use std::borrow::Cow;

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use stokehold_objects::Error as ObjectsError;
use stokehold_queue::Error as QueueError;
use utoipa::ToSchema;

/// The detail of every internal error: it must not expose internals.
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
    /// The endpoint or version receives new jobs or has open jobs.
    EndpointInUse,
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
    /// The status and the title.
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
            Self::EndpointInUse => (StatusCode::CONFLICT, "The endpoint is in use"),
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

/// An error response.
#[derive(Debug, Clone)]
pub struct Problem {
    code: Code,
    detail: Cow<'static, str>,
    errors: Vec<FieldError>,
    /// Seconds after which a retry makes sense, if more precise than the code's.
    retry_after_s: Option<u32>,
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
}

impl Problem {
    /// A problem of this kind. `detail` names what to change.
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { code, detail: detail.into(), errors: Vec::new(), retry_after_s: None }
    }

    /// Adds the invalid fields of the body.
    #[must_use]
    pub fn with_errors(mut self, errors: Vec<FieldError>) -> Self {
        self.errors = errors;
        self
    }

    /// Sets the seconds after which a retry makes sense.
    #[must_use]
    pub fn after(mut self, seconds: u32) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    /// A problem with one invalid field of the request.
    pub fn field(path: impl Into<String>, message: impl Into<String>) -> Self {
        let error = FieldError { path: path.into(), message: message.into() };
        let detail = match (error.path.as_str(), error.message.split(' ').next()) {
            // The whole is wrong: there is no place to name.
            ("", Some("must" | "has" | "is")) => format!("the JSON {}", error.message),
            ("", _) => error.message.clone(),
            (path, _) => format!("{path}: {}", error.message),
        };
        Self::new(Code::InvalidRequest, detail).with_errors(vec![error])
    }

    /// A problem with one invalid query parameter.
    pub fn query(name: &str, message: impl Into<String>) -> Self {
        let error = FieldError { path: name.to_owned(), message: message.into() };
        Self::new(Code::InvalidQuery, format!("{}: {}", error.path, error.message)).with_errors(vec![error])
    }

    /// A 404 for a resource that does not exist or that the caller may not see.
    pub fn not_found(what: &str) -> Self {
        Self::new(Code::NotFound, format!("no such {what}"))
    }

    /// The code.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// The detail of this case.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The problem of a call that timed out.
    pub(crate) fn unavailable(step: &str) -> Self {
        tracing::warn!(step, "a call behind the API timed out");
        Self::new(Code::Unavailable, "the queue did not answer in time; repeat with the same Idempotency-Key")
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, title) = self.code.meaning();
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
        };
        let text = serde_json::to_vec(&body).unwrap_or_else(|error| {
            tracing::error!(%error, "a problem cannot be serialised as JSON");
            format!(r#"{{"type":"urn:stokehold:problem:internal","title":"Internal error","status":500,"code":"internal","detail":"{INTERNAL}"}}"#)
                .into_bytes()
        });
        let mut response =
            (status, [(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"))], text).into_response();
        if let Some(seconds) = self.retry_after_s.or(self.code.retry_after_s()) {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        if self.code == Code::Unauthorized {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<QueueError> for Problem {
    fn from(error: QueueError) -> Self {
        match error {
            QueueError::Unavailable { step, source } => {
                tracing::warn!(step, %source, "the queue is unavailable");
                Self::new(
                    Code::Unavailable,
                    "the queue is unavailable, so the outcome is unknown; repeat with the same Idempotency-Key",
                )
            }
            QueueError::Full => Self::new(Code::QueueFull, "the queue is full; nothing was accepted, try again later"),
            QueueError::Closed(why) => {
                tracing::warn!(why, "the queue refused new work");
                Self::new(
                    Code::Unavailable,
                    format!("the queue takes no new work at present: {why}; nothing was accepted, try again later"),
                )
            }
            // Only the feeder of batches can meet it, and it never answers a request.
            QueueError::StaleGuard => Self::new(Code::Internal, INTERNAL),
            QueueError::NoDependency { job, .. } => Self::new(
                Code::DependencyMissing,
                format!(
                    "job {job}, which this job waits for, is not in the queue; a job can wait only for jobs that are still in the queue"
                ),
            ),
            QueueError::Quota { gate, most, open } => {
                let whose = match gate.strip_prefix("e:").and_then(|gate| gate.split_once(':')) {
                    Some((_, endpoint)) => format!("endpoint {endpoint:?} has"),
                    None => "you have".to_owned(),
                };
                let detail =
                    format!("{whose} {open} open jobs, and the limit is {most}; nothing was accepted, try again later");
                Self::new(Code::QuotaExceeded, detail)
            }
            QueueError::Memory { most_bytes, held_bytes, .. } => {
                let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
                let detail = format!(
                    "your jobs and endpoint versions use {:.1} MiB of the queue's memory, and your limit is {:.1} \
                        MiB; nothing was accepted. Ended jobs free theirs when they move to the archive (sooner with \
                        a lower retention_s), versions when they are deleted; or ask the operator to raise \
                        max_memory_bytes",
                    mib(held_bytes),
                    mib(most_bytes),
                );
                Self::new(Code::QuotaExceeded, detail)
            }
            QueueError::IdempotencyConflict { key } => Self::new(
                Code::IdempotencyConflict,
                format!("idempotency key {key:?} was used with another request in the last 24 hours; use a new key"),
            ),
            QueueError::TooLarge(text) => Self::new(Code::InvalidRequest, text),
            error @ (QueueError::Corrupt { .. } | QueueError::Unfit(_)) => {
                tracing::error!(%error, "the queue holds invalid data");
                Self::new(Code::Internal, INTERNAL)
            }
        }
    }
}

impl From<ObjectsError> for Problem {
    fn from(error: ObjectsError) -> Self {
        let chain = &error as &dyn std::error::Error;
        match &error {
            ObjectsError::Unavailable { .. } => {
                tracing::warn!(error = chain, "the object store is unavailable");
                Self::new(Code::Unavailable, "the object store is unavailable; try again")
            }
            ObjectsError::Invalid(_)
            | ObjectsError::Refused { .. }
            | ObjectsError::TooLarge { .. }
            | ObjectsError::Folder { .. }
            | ObjectsError::Locked { .. } => {
                tracing::error!(error = chain, "the object store refused a request");
                Self::new(Code::Internal, INTERNAL)
            }
        }
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
