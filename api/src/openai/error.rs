//! Errors in the form that clients of OpenAI read: `{"error": {message, type, param, code}}`.

use axum::extract::Request;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use stokehold_queue::JobId;
use stokehold_queue::job::{ErrorCode, Job, JobError, JobState};

use super::answer::JOB_ID;
use crate::error::{Code, Problem};

/// Whether the official clients repeat a request. Without it they repeat 408, 409, 429 and 5xx twice.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// Start of the message of a runner of kind `server` whose engine refused a request: `_refusal` in its `server.py`.
const REFUSAL: &str = "the server returned ";

/// The client has closed its request: no status of HTTP, but the one that proxies log.
const CLIENT_CLOSED: u16 = 499;

const INVALID: &str = "invalid_request_error";
const SERVER: &str = "server_error";

/// An error response.
#[derive(Debug)]
pub(crate) struct Error {
    status: StatusCode,
    body: Box<Body>,
    retry_after_s: Option<u32>,
    /// `None` leaves it to the client.
    should_retry: Option<bool>,
    job: Option<JobId>,
}

#[derive(Debug, PartialEq)]
struct Body {
    message: String,
    kind: String,
    param: Value,
    code: Value,
}

impl Error {
    fn new(status: StatusCode, kind: &str, message: impl Into<String>) -> Self {
        let body = Body { message: message.into(), kind: kind.to_owned(), param: Value::Null, code: Value::Null };
        Self { status, body: Box::new(body), retry_after_s: None, should_retry: None, job: None }
    }

    /// A member of the request is wrong.
    pub(super) fn invalid(param: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, INVALID, message).param(param)
    }

    /// No endpoint of the caller has this name.
    pub(super) fn no_model(model: &str, why: Option<&str>) -> Self {
        let why = why.unwrap_or("GET /openai/v1/models lists the models that you can use");
        Self::model_not_found(format!("the model {model:?} does not exist: {why}"))
    }

    fn model_not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, INVALID, message).param("model").code("model_not_found")
    }

    /// The endpoint returned something else than its API promises, or the job failed. Repeating does not help.
    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, SERVER, message).without_retry()
    }

    /// The job did not end in time.
    pub(super) fn late(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, SERVER, message).code("timeout").without_retry()
    }

    /// A replica is shutting down. Another one answers a repeat.
    pub(super) fn restarting() -> Self {
        let mut error =
            Self::new(StatusCode::SERVICE_UNAVAILABLE, SERVER, "this replica is shutting down; repeat the request");
        error.should_retry = Some(true);
        error
    }

    /// A budget is spent, so that nothing starts for some time.
    pub(super) fn spent(message: impl Into<String>, retry_after_s: u32) -> Self {
        let mut error = Self::new(StatusCode::TOO_MANY_REQUESTS, "insufficient_quota", message)
            .code("insufficient_quota")
            .without_retry();
        error.retry_after_s = Some(retry_after_s);
        error
    }

    /// The error of a job that ended without a result.
    pub(super) fn of_job(job: &Job) -> Self {
        let error = match job.state {
            JobState::Cancelled => {
                let status = StatusCode::from_u16(CLIENT_CLOSED).unwrap_or(StatusCode::BAD_REQUEST);
                Self::new(status, INVALID, "the job was cancelled").code("cancelled").without_retry()
            }
            JobState::Expired => {
                let why = job.error.as_ref().map_or("it did not end in time", |error| &error.message);
                Self::late(format!("the job expired: {why}"))
            }
            _ => job.error.as_ref().map_or_else(|| Self::failed("the job failed"), Self::of_failure),
        };
        error.of(job.id)
    }

    /// The error of a job that failed.
    pub(super) fn of_failure(error: &JobError) -> Self {
        let JobError { code, class, message, .. } = error;
        match code {
            ErrorCode::Rejected => {
                Self { body: Box::new(rejection(message)), ..Self::new(StatusCode::BAD_REQUEST, INVALID, "") }
                    .without_retry()
            }
            ErrorCode::Timeout => Self::late(format!("the job failed: {message}")),
            _ => {
                let class = if class.is_empty() { String::new() } else { format!("{class}: ") };
                Self::failed(format!("the job failed: {class}{message}")).code(code.as_str())
            }
        }
    }

    /// Names the member of the request that is wrong.
    pub(super) fn param(mut self, param: &str) -> Self {
        self.body.param = param.into();
        self
    }

    fn code(mut self, code: &str) -> Self {
        self.body.code = code.into();
        self
    }

    fn without_retry(mut self) -> Self {
        self.should_retry = Some(false);
        self
    }

    /// The status of the response.
    pub(super) fn status(&self) -> u16 {
        self.status.as_u16()
    }

    /// The reason for which the request is refused, unless repeating it unchanged may help.
    pub(super) fn refusal(&self) -> Option<&str> {
        (self.status.is_client_error() && self.status != StatusCode::TOO_MANY_REQUESTS).then_some(&self.body.message)
    }

    /// The reason.
    pub(super) fn message(&self) -> &str {
        &self.body.message
    }

    /// Names the job in a header.
    pub(super) fn of(mut self, job: JobId) -> Self {
        self.job = Some(job);
        self
    }

    /// The error as JSON, also for an error in the middle of a stream.
    pub(super) fn json(&self) -> Value {
        let Body { message, kind, param, code } = &*self.body;
        json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
    }
}

/// The error of an engine that refused a request, if the message contains it; else the message.
fn rejection(message: &str) -> Body {
    let plain = Body { message: message.to_owned(), kind: INVALID.to_owned(), param: Value::Null, code: Value::Null };
    let answer = message.strip_prefix(REFUSAL).and_then(|rest| rest.split_once(": "));
    let answer = answer.and_then(|(_, text)| serde_json::from_str::<Value>(text).ok());
    // vLLM and llama.cpp write `error`; older versions of vLLM write its members at the top.
    let error = answer.as_ref().map(|answer| answer.get("error").filter(|error| error.is_object()).unwrap_or(answer));
    let Some((error, text)) = error.and_then(|error| Some((error, error.get("message")?.as_str()?))) else {
        return plain;
    };
    Body {
        message: text.to_owned(),
        kind: error.get("type").and_then(Value::as_str).unwrap_or(INVALID).to_owned(),
        param: error.get("param").cloned().unwrap_or_default(),
        code: error.get("code").cloned().unwrap_or_default(),
    }
}

impl<E: Into<Problem>> From<E> for Error {
    fn from(error: E) -> Self {
        let problem = error.into();
        problem.log();
        Self::of_problem(&problem)
    }
}

impl Error {
    fn of_problem(problem: &Problem) -> Self {
        let code = problem.code();
        let (kind, word) = match code {
            Code::UnknownEndpoint | Code::UnknownVersion => return Self::model_not_found(problem.detail()),
            Code::Unauthorized => (INVALID, Some("invalid_api_key")),
            Code::Forbidden | Code::TenantDisabled => (INVALID, Some("insufficient_permissions")),
            Code::QuotaExceeded | Code::QueueFull | Code::RateLimited => {
                ("rate_limit_error", Some("rate_limit_exceeded"))
            }
            Code::StorageExceeded => ("insufficient_quota", Some("insufficient_quota")),
            Code::Unavailable | Code::Internal => (SERVER, None),
            _ => (INVALID, None),
        };
        // Clients repeat a 409; a full store and a missing package stay so.
        let status = if code == Code::StorageExceeded { StatusCode::TOO_MANY_REQUESTS } else { code.status() };
        let mut error = Self::new(status, kind, problem.detail());
        error.body.code = word.map_or_else(|| serde_json::to_value(code).unwrap_or_default(), Value::from);
        error.body.param = problem
            .errors()
            .iter()
            .map(|error| member(&error.path))
            .find(|name| !name.is_empty())
            .map_or(Value::Null, Value::from);
        error.retry_after_s = problem.retry_after_s();
        match code {
            Code::StorageExceeded => (error.retry_after_s, error.should_retry) = (Some(60), Some(false)),
            // A batch that has ended stays ended, and a file in use stays so for minutes.
            Code::AlreadyEnded | Code::InUse => error.should_retry = Some(false),
            _ => {}
        }
        error
    }
}

/// The member of the request that a JSON pointer into the job's input names.
fn member(path: &str) -> &str {
    let path = path.strip_prefix("/input").unwrap_or(path);
    path.strip_prefix("/body/").unwrap_or(path).trim_start_matches('/').split('/').next().unwrap_or_default()
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let mut response = (self.status, axum::Json(self.json())).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if let Some(should) = self.should_retry {
            headers.insert(SHOULD_RETRY, HeaderValue::from_static(if should { "true" } else { "false" }));
        }
        if let Some(id) = self.job.and_then(|job| HeaderValue::try_from(job.to_string()).ok()) {
            headers.insert(JOB_ID, id);
        }
        response
    }
}

/// Converts every problem below `/openai/` to the error body of OpenAI, whether an extractor, a fallback or a panic
/// caused it.
pub(crate) async fn in_its_shape(request: Request, next: Next) -> Response {
    let is_ours = request.uri().path().starts_with("/openai/");
    let mut response = next.run(request).await;
    match response.extensions_mut().remove::<Problem>() {
        // It was logged when it became a response.
        Some(problem) if is_ours => Error::of_problem(&problem).into_response(),
        _ => response,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_an_engine_is_passed_on() {
        let llama = r#"the server returned 400 Bad Request: {"error":{"code":400,"message":"no 'messages'","type":"invalid_request_error"}}"#;
        let vllm = r#"the server returned 400 Bad Request: {"object":"error","message":"too long","type":"BadRequestError","param":"max_tokens","code":"x"}"#;
        for (message, said, kind, param, code) in [
            (llama, "no 'messages'", INVALID, Value::Null, json!(400)),
            (vllm, "too long", "BadRequestError", json!("max_tokens"), json!("x")),
            ("no cats", "no cats", INVALID, Value::Null, Value::Null),
            (
                "the server returned 422 X: {\"detail\"",
                "the server returned 422 X: {\"detail\"",
                INVALID,
                Value::Null,
                Value::Null,
            ),
        ] {
            let error = Error::of_failure(&JobError::new(ErrorCode::Rejected, message));
            let expected = Body { message: said.to_owned(), kind: kind.to_owned(), param, code };
            assert_eq!((error.status.as_u16(), error.should_retry, *error.body), (400, Some(false), expected));
        }
    }

    #[test]
    fn a_failure_is_not_repeated_and_names_its_code() {
        let shown = |code| {
            let error = Error::of_failure(&JobError { class: "OSError".to_owned(), ..JobError::new(code, "why") });
            (error.status.as_u16(), error.should_retry, error.json()["error"]["code"].as_str().unwrap().to_owned())
        };
        assert_eq!(shown(ErrorCode::HandlerError), (500, Some(false), "handler_error".to_owned()));
        assert_eq!(shown(ErrorCode::WorkerLost), (500, Some(false), "worker_lost".to_owned()));
        assert_eq!(shown(ErrorCode::Timeout), (504, Some(false), "timeout".to_owned()));
    }

    #[test]
    fn problems_keep_their_status_their_hint_and_their_place() {
        let shown = |problem: Problem| {
            let error = Error::from(problem);
            let body = error.json()["error"].clone();
            (
                error.status.as_u16(),
                body["code"].as_str().unwrap().to_owned(),
                body["param"].clone(),
                error.retry_after_s,
            )
        };
        let of = |code| shown(Problem::new(code, "why"));
        assert_eq!(of(Code::Unauthorized), (401, "invalid_api_key".to_owned(), Value::Null, None));
        assert_eq!(of(Code::QuotaExceeded), (429, "rate_limit_exceeded".to_owned(), Value::Null, Some(5)));
        assert_eq!(of(Code::StorageExceeded), (429, "insufficient_quota".to_owned(), Value::Null, Some(60)));
        assert_eq!(of(Code::UnknownEndpoint), (404, "model_not_found".to_owned(), json!("model"), None));
        assert_eq!(of(Code::Unavailable), (503, "unavailable".to_owned(), Value::Null, Some(1)));
        for (path, param) in
            [("/input/body/messages/0/role", "messages"), ("/input/input", "input"), ("/deadline_s", "deadline_s")]
        {
            let (status, _, found, _) = shown(Problem::field(path, "is wrong"));
            assert_eq!((status, found), (400, json!(param)));
        }
    }
}
