//! A client of the public API: JSON requests and responses, and API problems as errors with advice.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use reqwest::header::{ACCEPT, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::Deserialize;
use serde_json::Value;

use crate::credentials::Credentials;
use crate::{Global, retry};

const DEFAULT_URL: &str = "http://127.0.0.1:7070";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of a response without long polling.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Timeout between two chunks of a body. The event stream sends a comment every 15 s.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// The URL of the API: the given one, else the saved one, else the default.
pub(crate) fn address(global: &Global, saved: Option<&Credentials>) -> String {
    let url = global.url.as_deref().or(saved.map(|saved| &*saved.url)).unwrap_or(DEFAULT_URL);
    url.trim_end_matches('/').to_owned()
}

/// The API, and the token to use.
#[derive(Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    /// Client for streamed uploads.
    uploads: reqwest::Client,
    url: String,
    token: String,
}

/// A problem response of the API.
#[derive(Debug, Deserialize, thiserror::Error)]
pub(crate) struct Problem {
    #[serde(default)]
    status: u16,
    #[serde(default)]
    pub(crate) code: String,
    #[serde(default)]
    detail: String,
    #[serde(default)]
    errors: Vec<FieldProblem>,
}

#[derive(Debug, Deserialize)]
struct FieldProblem {
    path: String,
    message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.detail.as_str() {
            "" => write!(f, "the API returned status {}", self.status)?,
            detail => f.write_str(detail)?,
        }
        // A single error is already part of the detail.
        for FieldProblem { path, message } in self.errors.iter().filter(|error| !self.detail.contains(&error.message)) {
            match path.as_str() {
                "" => write!(f, "\n  {message}")?,
                path => write!(f, "\n  {path}: {message}")?,
            }
        }
        match self.code.as_str() {
            "unauthorized" => {
                f.write_str("\nPass a token with --token or STOKE_TOKEN; create one with `stoke token create`.")
            }
            "unknown_endpoint" => f.write_str("\nRun `stoke endpoints` to list the endpoints."),
            "not_retryable" => f.write_str(
                "\nOnly failed, expired or cancelled jobs can be retried; `stoke dlq` lists failed and expired ones.",
            ),
            "storage_exceeded" | "rate_limited" => f.write_str("\nRun `stoke limits` to see your limits and usage."),
            "nothing_to_retry" => f.write_str("\nThe batch has no failed or expired lines."),
            "forbidden" => f.write_str("\nCreate a token with more rights: `stoke token create --role ROLE,...`."),
            _ => Ok(()),
        }
    }
}

/// One request to the API.
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) body: Option<&'a Value>,
    pub(crate) headers: &'a [(&'static str, &'a str)],
    /// Long-poll duration of the request.
    pub(crate) hold: Duration,
}

/// Why a request failed, and whether it can be retried.
pub(crate) struct Failure {
    pub(crate) error: anyhow::Error,
    /// Whether the failure is transient.
    pub(crate) passing: bool,
    /// Whether the API certainly did not act on the request.
    refused: bool,
    /// The delay that the API asked for (`Retry-After`).
    pub(crate) asked: Option<Duration>,
    /// The status of the response, if there was one.
    pub(crate) status: Option<StatusCode>,
}

impl Failure {
    /// A request without a response within its timeout.
    pub(crate) fn silence(elapsed: tokio::time::error::Elapsed) -> Self {
        Self { error: elapsed.into(), passing: true, refused: false, asked: None, status: None }
    }
}

/// Whether the error is transient: the API was unreachable, or the cause is not the request.
pub(crate) fn may_pass(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Problem>().is_none_or(|problem| problem.status == 429 || problem.status >= 500)
}

impl Client {
    /// Connects to the API named by arguments, environment or `stoke dev`. The saved token is used only for the URL it
    /// was saved with.
    pub(crate) fn connect(global: &Global) -> Result<Self> {
        let saved = Credentials::load()?;
        let url = address(global, saved.as_ref());
        let saved = saved.filter(|saved| saved.url.trim_end_matches('/') == url);
        let token = global.token.clone().filter(|token| !token.is_empty()).or(saved.map(|saved| saved.token));
        let Some(token) = token else {
            bail!(
                "no token for {url}: start `stoke dev` on this machine, or create a token with `stoke token create` and pass it \
                 with --token or STOKE_TOKEN"
            );
        };
        Self::new(url, token)
    }

    /// Connects to the same API as [`Client::connect`], for requests without a token.
    pub(crate) fn without_token(global: &Global) -> Result<Self> {
        let saved = Credentials::load()?;
        Self::new(address(global, saved.as_ref()), String::new())
    }

    /// Connects to `url` with `token`.
    pub(crate) fn new(url: String, token: String) -> Result<Self> {
        let parsed =
            reqwest::Url::parse(&url).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        if parsed.is_none() {
            bail!("{url:?} is not a valid API URL; expected e.g. {DEFAULT_URL} (--url or STOKE_URL)");
        }
        let builder = || {
            let agent = concat!("stoke/", env!("CARGO_PKG_VERSION"));
            reqwest::Client::builder().user_agent(agent).connect_timeout(CONNECT_TIMEOUT)
        };
        let http = builder().read_timeout(SILENCE_TIMEOUT).build()?;
        // No read timeout: it would include the time of the upload.
        let uploads = builder().build()?;
        Ok(Self { http, uploads, url, token })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The token, which `stoke doctor` inspects.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// HTTP client for requests without a token.
    pub(crate) fn http(&self) -> &reqwest::Client {
        &self.http
    }

    /// HTTP client for uploads to presigned URLs, without a token. Each request must set its own timeout.
    pub(crate) fn uploads(&self) -> &reqwest::Client {
        &self.uploads
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value> {
        self.hold(path, Duration::ZERO).await
    }

    /// Sends a GET that the API may long-poll for `hold`.
    pub(crate) async fn hold(&self, path: &str, hold: Duration) -> Result<Value> {
        let call = Call { method: Method::GET, path, body: None, headers: &[], hold };
        Ok(self.call(&call).await?.1)
    }

    pub(crate) async fn post(&self, path: &str, body: Option<&Value>) -> Result<(StatusCode, Value)> {
        self.call(&Call { method: Method::POST, path, body, headers: &[], hold: Duration::ZERO }).await
    }

    /// Sends a call, with retries. The call must be idempotent or carry an idempotency key.
    pub(crate) async fn call(&self, call: &Call<'_>) -> Result<(StatusCode, Value)> {
        self.tries(call, true).await
    }

    /// Sends a call that is not idempotent. It is retried only if the API certainly did not act on it.
    pub(crate) async fn once(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value> {
        let call = Call { method, path, body, headers: &[], hold: Duration::ZERO };
        Ok(self.tries(&call, false).await?.1)
    }

    async fn tries(&self, call: &Call<'_>, idempotent: bool) -> Result<(StatusCode, Value)> {
        for tried in 1.. {
            let failure = match self.attempt(call).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            if !idempotent && failure.passing && !failure.refused {
                return Err(failure.error.context("the request may have taken effect; check before you repeat it"));
            }
            if tried >= retry::TRIES || !failure.passing {
                return Err(failure.error);
            }
            tokio::time::sleep(retry::pause(tried, failure.asked)).await;
        }
        bail!("no response")
    }

    /// Sends a call once.
    pub(crate) async fn attempt(&self, call: &Call<'_>) -> Result<(StatusCode, Value), Failure> {
        let mut request = self.request(call.method.clone(), call.path).timeout(ANSWER_TIMEOUT + call.hold);
        if let Some(body) = call.body {
            request = request.json(body);
        }
        for (name, value) in call.headers {
            request = request.header(*name, *value);
        }
        let answer = self.answer(request.send().await).await?;
        let broken =
            |error: anyhow::Error, passing| Failure { error, passing, refused: false, asked: None, status: None };
        let status = answer.status();
        let body = answer.bytes().await.map_err(|error| {
            broken(
                anyhow::Error::new(error.without_url())
                    .context("the connection to the API closed before the end of the response"),
                true,
            )
        })?;
        // A 204 has no body.
        let body = if body.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(&body) };
        let body = body.context("the API's response is not valid JSON").map_err(|error| broken(error, false))?;
        Ok((status, body))
    }

    /// Builds a POST with a streamed body. It has no timeout; the caller must watch the progress.
    pub(crate) fn upload(&self, path: &str) -> RequestBuilder {
        self.uploads.post(format!("{}{path}", self.url)).bearer_auth(&self.token).header(ACCEPT, "application/json")
    }

    /// Turns a response or transport error into a response or a [`Failure`].
    pub(crate) async fn answer(&self, sent: reqwest::Result<Response>) -> Result<Response, Failure> {
        match sent {
            Ok(answer) if answer.status().is_success() => Ok(answer),
            Ok(answer) => {
                let (status, asked) = (answer.status(), retry_after(&answer));
                let refused = status == StatusCode::TOO_MANY_REQUESTS;
                let passing = is_passing(status);
                Err(Failure { error: problem(answer).await, passing, refused, asked, status: Some(status) })
            }
            Err(error) => {
                let refused = error.is_connect();
                Err(Failure { error: self.unreachable(error), passing: true, refused, asked: None, status: None })
            }
        }
    }

    /// Sends a GET whose body is streamed. Redirects to the object store do not carry the token.
    pub(crate) async fn stream(&self, path: &str, headers: &[(&'static str, &str)]) -> Result<Response> {
        let mut request = self.request(Method::GET, path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.answer(request.send().await).await.map_err(|failure| failure.error)
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}{path}", self.url);
        self.http
            .request(method, url)
            .bearer_auth(&self.token)
            .header(ACCEPT, "application/json, text/event-stream, */*")
    }

    fn unreachable(&self, error: reqwest::Error) -> anyhow::Error {
        let what = if error.is_connect() {
            format!(
                "cannot connect to the API at {}: start it with `stoke dev`, or set its address with --url or STOKE_URL",
                self.url
            )
        } else {
            format!("no response from {}", self.url)
        };
        anyhow::Error::new(error.without_url()).context(what)
    }
}

/// Percent-encodes one segment of a path.
pub(crate) fn segment(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut path, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => path.push(char::from(byte)),
            _ => path.push_str(&format!("%{byte:02X}")),
        }
        path
    })
}

/// Appends the query parameters that have a value to a path.
pub(crate) fn query(path: &str, members: &[(&str, Option<&str>)]) -> String {
    let mut query = path.to_owned();
    for (name, value) in members {
        if let Some(value) = value {
            query.push(if query.contains('?') { '&' } else { '?' });
            query.push_str(&format!("{}={}", segment(name), segment(value)));
        }
    }
    query
}

fn is_passing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 429 | 502 | 503 | 504)
}

fn retry_after(answer: &Response) -> Option<Duration> {
    answer.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok().map(Duration::from_secs)
}

async fn problem(answer: Response) -> anyhow::Error {
    let status = answer.status();
    match answer.json::<Problem>().await {
        Ok(problem) => problem.into(),
        Err(_) => anyhow::anyhow!(
            "the server returned {status} without an error message; check that the URL is a Stokehold API"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_says_what_to_change() {
        let problem: Problem = serde_json::from_str(
            r#"{"type": "about:blank", "title": "x", "status": 422, "code": "invalid_input", "detail": "the input does not match",
                "errors": [{"path": "/text", "message": "is required"}]}"#,
        )
        .expect("is one");
        assert_eq!(problem.to_string(), "the input does not match\n  /text: is required");
        let problem: Problem = serde_json::from_str(
            r#"{"type": "about:blank", "title": "x", "status": 400, "code": "invalid_request", "detail": "the request does not match",
                "errors": [{"path": "", "message": "must be an object"}]}"#,
        )
        .expect("is one");
        assert_eq!(problem.to_string(), "the request does not match\n  must be an object");
    }

    #[test]
    fn segments_cannot_leave_their_place() {
        assert_eq!(segment("a/../b?c=é"), "a%2F..%2Fb%3Fc%3D%C3%A9");
    }

    #[tokio::test]
    async fn what_must_not_be_done_twice_is_sent_again_only_when_it_was_refused() {
        use std::sync::{Arc, Mutex};

        for (first, tries) in [(429, 2), (503, 1), (404, 1)] {
            let count = Arc::new(Mutex::new(0));
            let seen = count.clone();
            let answer = move || async move {
                let mut tries = seen.lock().expect("is whole");
                *tries += 1;
                let status = if *tries == 1 { first } else { 204 };
                axum::http::StatusCode::from_u16(status).expect("is one")
            };
            let routes = axum::Router::new().route("/v1/x", axum::routing::post(answer));
            let done = crate::stub::serve(routes).await.once(Method::POST, "/v1/x", None).await;
            assert_eq!((done.is_ok(), *count.lock().expect("is whole")), (first == 429, tries), "{first}");
            let unsure = done.is_err_and(|error| error.to_string().contains("may have taken effect"));
            assert_eq!(unsure, first == 503);
        }
    }

    #[test]
    fn queries_have_what_is_given() {
        assert_eq!(query("/a", &[("b", None), ("c", Some("d&e")), ("f", Some("1"))]), "/a?c=d%26e&f=1");
        assert_eq!(query("/a?x=1", &[("b", Some("2"))]), "/a?x=1&b=2");
    }
}
