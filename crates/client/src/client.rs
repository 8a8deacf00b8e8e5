//! Requests to the API, with timeouts and retries.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use reqwest::header::{ACCEPT, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::Value;

use crate::{Unreachable, problem, retry};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of a response without long polling.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Timeout between two chunks of a body. The event stream sends a comment every 15 s.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// The address and the token of an API, and what a program adds to errors of its client.
pub trait Settings {
    /// The URL of the API.
    fn url(&self) -> Result<String>;
    /// The token for the API at `url`.
    fn token(&self, url: &str) -> Result<String>;
    /// What the program adds to errors.
    fn hints(&self) -> Hints;
}

/// What a program adds to errors of its client: how its user sets what is wrong.
#[derive(Clone, Copy, Default)]
pub struct Hints {
    /// Added to the error about an API that cannot be reached, e.g. how to start it.
    pub unreachable: &'static str,
    /// Added to the error about an invalid URL, e.g. the option that sets it.
    pub invalid_url: &'static str,
    /// Returns what to add to a problem with this code.
    pub problem: Option<fn(&str) -> Option<&'static str>>,
}

/// The API, and the token to use.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    /// Client for streamed uploads.
    uploads: reqwest::Client,
    url: String,
    token: String,
    hints: Hints,
}

/// One request to the API.
pub struct Call<'a> {
    /// The method.
    pub method: Method,
    /// Path and query below the URL of the API.
    pub path: &'a str,
    /// The JSON body.
    pub body: Option<&'a Value>,
    /// Names and values of other headers.
    pub headers: &'a [(&'static str, &'a str)],
    /// Long-poll duration of the request.
    pub hold: Duration,
}

/// Why a request failed, and whether it can be retried.
pub struct RequestError {
    /// The error, with its causes.
    pub error: anyhow::Error,
    /// Whether the failure is transient.
    pub passing: bool,
    /// Whether the API certainly did not act on the request.
    refused: bool,
    /// The delay that the API asked for (`Retry-After`).
    pub asked: Option<Duration>,
    /// The status of the response, if there was one.
    pub status: Option<StatusCode>,
}

impl RequestError {
    /// A request without a response within its timeout.
    #[must_use]
    pub fn silence(elapsed: tokio::time::error::Elapsed) -> Self {
        Self { error: elapsed.into(), passing: true, refused: false, asked: None, status: None }
    }
}

impl Client {
    /// Connects to the API that the settings name, with their token.
    pub fn connect(settings: &impl Settings) -> Result<Self> {
        let url = settings.url()?;
        let token = settings.token(&url)?;
        Self::new(url, token, settings.hints())
    }

    /// Connects to the same API as [`Client::connect`], for requests without a token.
    pub fn without_token(settings: &impl Settings) -> Result<Self> {
        Self::new(settings.url()?, String::new(), settings.hints())
    }

    /// Connects to `url` with `token`.
    pub fn new(url: String, token: String, hints: Hints) -> Result<Self> {
        let parsed =
            reqwest::Url::parse(&url).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        if parsed.is_none() {
            bail!("{url:?} is not a valid API URL{}", hints.invalid_url);
        }
        let builder = || {
            let agent = concat!("stoke/", env!("CARGO_PKG_VERSION"));
            reqwest::Client::builder().user_agent(agent).connect_timeout(CONNECT_TIMEOUT)
        };
        let http = builder().read_timeout(SILENCE_TIMEOUT).build()?;
        // No read timeout: it would include the time of the upload.
        let uploads = builder().build()?;
        Ok(Self { http, uploads, url, token, hints })
    }

    /// The URL of the API.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The token.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// HTTP client for requests without a token.
    #[must_use]
    pub fn http(&self) -> &reqwest::Client {
        &self.http
    }

    /// HTTP client for uploads to presigned URLs, without a token. Each request must set its own timeout.
    #[must_use]
    pub fn uploads(&self) -> &reqwest::Client {
        &self.uploads
    }

    /// Sends a GET.
    pub async fn get(&self, path: &str) -> Result<Value> {
        self.hold(path, Duration::ZERO).await
    }

    /// Sends a GET that the API may long-poll for `hold`.
    pub async fn hold(&self, path: &str, hold: Duration) -> Result<Value> {
        let call = Call { method: Method::GET, path, body: None, headers: &[], hold };
        Ok(self.call(&call).await?.1)
    }

    /// Sends a POST that is idempotent.
    pub async fn post(&self, path: &str, body: Option<&Value>) -> Result<(StatusCode, Value)> {
        self.call(&Call { method: Method::POST, path, body, headers: &[], hold: Duration::ZERO }).await
    }

    /// Sends a call, with retries. The call must be idempotent or carry an idempotency key.
    pub async fn call(&self, call: &Call<'_>) -> Result<(StatusCode, Value)> {
        self.tries(call, true).await
    }

    /// Sends a call that is not idempotent. It is retried only if the API certainly did not act on it.
    pub async fn once(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value> {
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
    pub async fn attempt(&self, call: &Call<'_>) -> Result<(StatusCode, Value), RequestError> {
        let mut request = self.request(call.method.clone(), call.path).timeout(ANSWER_TIMEOUT + call.hold);
        if let Some(body) = call.body {
            request = request.json(body);
        }
        for (name, value) in call.headers {
            request = request.header(*name, *value);
        }
        let answer = self.answer(request.send().await).await?;
        let broken =
            |error: anyhow::Error, passing| RequestError { error, passing, refused: false, asked: None, status: None };
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
    pub fn upload(&self, path: &str) -> RequestBuilder {
        self.uploads.post(format!("{}{path}", self.url)).bearer_auth(&self.token).header(ACCEPT, "application/json")
    }

    /// Turns a response or transport error into a response or a [`RequestError`].
    pub async fn answer(&self, sent: reqwest::Result<Response>) -> Result<Response, RequestError> {
        match sent {
            Ok(answer) if answer.status().is_success() => Ok(answer),
            Ok(answer) => {
                let (status, asked) = (answer.status(), retry_after(&answer));
                let refused = status == StatusCode::TOO_MANY_REQUESTS;
                let passing = is_passing(status);
                let error = problem::read(answer, self.hints.problem.unwrap_or(|_| None)).await;
                Err(RequestError { error, passing, refused, asked, status: Some(status) })
            }
            Err(error) => {
                let refused = error.is_connect();
                Err(RequestError { error: self.unreachable(error), passing: true, refused, asked: None, status: None })
            }
        }
    }

    /// Sends a GET whose body is streamed. Redirects to the object store do not carry the token.
    pub async fn stream(&self, path: &str, headers: &[(&'static str, &str)]) -> Result<Response> {
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
            let message = format!("cannot connect to the API at {}", self.url);
            Unreachable { message, hint: self.hints.unreachable }
        } else {
            Unreachable { message: format!("no response from {}", self.url), hint: "" }
        };
        anyhow::Error::new(error.without_url()).context(what)
    }
}

/// Percent-encodes one segment of a path.
#[must_use]
pub fn segment(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut path, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => path.push(char::from(byte)),
            _ => path.push_str(&format!("%{byte:02X}")),
        }
        path
    })
}

/// Appends the query parameters that have a value to a path.
#[must_use]
pub fn query(path: &str, members: &[(&str, Option<&str>)]) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

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
