//! Transport of requests to Vast.ai: one request, at most one response. Simulations replace [`Http`].

use std::fmt;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Url, redirect};
use serde_json::Value;
use stokehold_planner::seconds;
use stokehold_queue::now_ms;

use crate::secret::Secret;

/// Maximum size of a response, larger than the longest listing. The rest is not read.
const BODY_BYTES_MAX: usize = 16 << 20;

/// Timeout for connecting; it does not count towards the response.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Sends requests.
pub trait Transport: Send + Sync {
    /// Sends a request once and reads the whole response within its timeout. Redirects are returned like other
    /// responses.
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Answer, TransportError>>;
}

/// HTTP method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Reads.
    Get,
    /// Queries with a body.
    Post,
    /// Changes.
    Put,
    /// Deletes.
    Delete,
}

impl Method {
    /// Name of the method in HTTP.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }
}

/// A request. Its `Debug` output omits the body, which may hold a join token.
#[derive(Clone, PartialEq)]
pub struct Request {
    /// HTTP method.
    pub method: Method,
    /// Path below the provider's address, from the first slash to the last, e.g. [`stokehold_vast::path::SEARCH`].
    pub path: String,
    /// Query parameters, not escaped.
    pub query: Vec<(&'static str, String)>,
    /// Body, sent as JSON.
    pub body: Option<Value>,
    /// Timeout for the whole response.
    pub timeout: Duration,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Request");
        shown.field("method", &self.method).field("path", &self.path).field("query", &self.query);
        shown.finish_non_exhaustive()
    }
}

/// A response. Its `Debug` output omits the body, because listings repeat the environment of machines.
#[derive(Clone, PartialEq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Value of `Retry-After`, seconds.
    pub retry_after_s: Option<f64>,
    /// Time until an exhausted quota resets, seconds, if the response contains it.
    pub quota_resets_in_s: Option<f64>,
    /// Content type; empty if missing.
    pub content_type: String,
    /// The whole body.
    pub body: Bytes,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Answer");
        shown.field("status", &self.status).field("content_type", &self.content_type);
        shown.field("bytes", &self.body.len()).finish_non_exhaustive()
    }
}

/// Failure to get a response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// The request was not sent.
    #[error("not sent: {0}")]
    Unsent(String),
    /// The request may have arrived and may have been carried out.
    #[error("no response: {0}")]
    Unknown(String),
}

/// Transport over the network.
pub struct Http {
    client: reqwest::Client,
    url: String,
    authorization: HeaderValue,
}

/// Failure to create a transport.
#[derive(Debug, thiserror::Error)]
pub enum NoHttp {
    /// The API key contains characters that a header may not.
    #[error("the API key for Vast.ai contains invalid characters")]
    Key,
    /// No TLS client can be created.
    #[error("cannot create an HTTP client")]
    Client(#[source] reqwest::Error),
}

impl Http {
    /// Creates a transport to this address, e.g. [`stokehold_vast::URL`], with this key.
    ///
    /// # Errors
    /// [`NoHttp`], before anything is sent.
    pub fn new(url: &str, key: &Secret) -> Result<Self, NoHttp> {
        let bearer = format!("Bearer {}", key.expose().trim());
        let mut authorization = HeaderValue::from_str(&bearer).map_err(|_| NoHttp::Key)?;
        authorization.set_sensitive(true);
        let client = reqwest::Client::builder()
            .user_agent(concat!("stokehold/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_LIMIT)
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            // A reused connection may just have been closed, and the outcome of a request on it would be unknown.
            .pool_max_idle_per_host(0)
            .http1_only()
            .build()
            .map_err(NoHttp::Client)?;
        Ok(Self { client, url: url.trim_end_matches('/').to_owned(), authorization })
    }

    async fn answer(&self, request: Request) -> Result<Answer, TransportError> {
        let method = match request.method {
            Method::Get => reqwest::Method::GET,
            Method::Post => reqwest::Method::POST,
            Method::Put => reqwest::Method::PUT,
            Method::Delete => reqwest::Method::DELETE,
        };
        let mut url = Url::parse(&format!("{}{}", self.url, request.path))
            .map_err(|error| TransportError::Unsent(format!("invalid URL: {error}")))?;
        if !request.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&request.query);
        }
        let sending = self.client.request(method, url).timeout(request.timeout);
        let mut sending = sending.header(AUTHORIZATION, self.authorization.clone()).header(ACCEPT, "application/json");
        if let Some(body) = &request.body {
            sending = sending.json(body);
        }
        let mut answer = sending.send().await.map_err(lost)?;
        let header = |name| text(answer.headers(), name);
        let content_type = header(CONTENT_TYPE.as_str()).unwrap_or_default();
        let number = |text: String| text.trim().parse().ok().filter(|seconds: &f64| seconds.is_finite());
        let retry_after_s = header(RETRY_AFTER.as_str()).and_then(number);
        let now_s = seconds(now_ms());
        let quota_resets_in_s = header("x-ratelimit-reset").and_then(number).map(|at_s| at_s - now_s);
        let status = answer.status().as_u16();
        let mut body = BytesMut::new();
        while let Some(piece) = answer.chunk().await.map_err(lost)? {
            if body.len() + piece.len() > BODY_BYTES_MAX {
                return Err(TransportError::Unknown(format!(
                    "status {status} with a body of more than {BODY_BYTES_MAX} bytes"
                )));
            }
            body.extend_from_slice(&piece);
        }
        Ok(Answer { status, retry_after_s, quota_resets_in_s, content_type, body: body.freeze() })
    }
}

impl Transport for Http {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Answer, TransportError>> {
        Box::pin(self.answer(request))
    }
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// Omits the URL from the error.
fn lost(error: reqwest::Error) -> TransportError {
    let error = error.without_url();
    let why = match (error.is_connect(), error.is_timeout()) {
        (true, true) => "connecting timed out".to_owned(),
        (true, false) => "cannot connect".to_owned(),
        (false, true) => "timed out".to_owned(),
        (false, false) => error.to_string(),
    };
    if error.is_connect() || error.is_builder() { TransportError::Unsent(why) } else { TransportError::Unknown(why) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn request(body: Option<Value>) -> Request {
        let path = "/api/v0/asks/7/".to_owned();
        let timeout = Duration::from_secs(20);
        Request { method: Method::Put, path, query: vec![("q", "{\"a\":1}".to_owned())], body, timeout }
    }

    /// Answers one request with `reply`, and returns the request that arrived.
    async fn asked(reply: Option<&str>, request: Request) -> (String, Result<Answer, TransportError>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let http = Http::new(&url, &Secret::new("verysecret\n")).unwrap();
        let served = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut read = vec![0; 64 << 10];
            let length = stream.read(&mut read).await.unwrap();
            match reply {
                Some(reply) => stream.write_all(reply.as_bytes()).await.unwrap(),
                // Waits until the client closes the connection.
                None => drop(stream.read(&mut [0; 16]).await),
            }
            String::from_utf8_lossy(&read[..length]).into_owned()
        };
        tokio::join!(served, http.send(request))
    }

    #[tokio::test]
    async fn a_request_is_sent_with_the_key_and_what_it_is_and_nothing_else() {
        let reply =
            "HTTP/1.1 429 Too Many\r\nretry-after: 3\r\ncontent-type: text/plain\r\ncontent-length: 4\r\n\r\nslow";
        let (seen, answer) = asked(Some(reply), request(Some(json!({"price": null})))).await;
        let (head, body) = seen.split_once("\r\n\r\n").unwrap();
        let mut lines: Vec<&str> = head.lines().filter(|line| !line.starts_with("host:")).collect();
        assert_eq!(lines.remove(0), "PUT /api/v0/asks/7/?q=%7B%22a%22%3A1%7D HTTP/1.1");
        lines.sort_unstable();
        let agent = concat!("user-agent: stokehold/", env!("CARGO_PKG_VERSION"));
        let expected = [
            "accept: application/json",
            "authorization: Bearer verysecret",
            "content-length: 14",
            "content-type: application/json",
            agent,
        ];
        assert_eq!((lines, body), (expected.to_vec(), r#"{"price":null}"#));
        let answer = answer.unwrap();
        assert_eq!((answer.status, answer.retry_after_s, &answer.body[..]), (429, Some(3.0), &b"slow"[..]));
        assert_eq!(answer.content_type, "text/plain");
    }

    #[tokio::test]
    async fn redirects_are_not_followed() {
        let reply = "HTTP/1.1 308 There\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n";
        let (_, answer) = asked(Some(reply), request(None)).await;
        assert_eq!(answer.unwrap().status, 308);
    }

    #[tokio::test]
    async fn what_never_left_is_told_from_what_may_have_arrived() {
        let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let http = Http::new(&format!("http://{nobody}"), &Secret::new("k")).unwrap();
        assert!(matches!(http.send(request(None)).await, Err(TransportError::Unsent(_))));
        let cut = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"success\"";
        for reply in [Some(cut), Some(""), None] {
            // A request with a reply has enough time; the other one times out soon.
            let timeout = Duration::from_millis(if reply.is_some() { 20_000 } else { 300 });
            let (_, answer) = asked(reply, Request { timeout, ..request(None) }).await;
            assert!(matches!(answer, Err(TransportError::Unknown(_))), "{reply:?}: {answer:?}");
        }
    }

    #[test]
    fn neither_keys_nor_bodies_print() {
        assert!(matches!(Http::new("http://x", &Secret::new("a\nb")), Err(NoHttp::Key)));
        let request = request(Some(json!({"env": {"STOKE_JOIN_TOKEN": "verysecret"}})));
        assert!(!format!("{request:?}").contains("verysecret"));
        let body = Bytes::from_static(b"verysecret");
        let answer =
            Answer { status: 200, retry_after_s: None, quota_resets_in_s: None, content_type: String::new(), body };
        assert!(!format!("{answer:?}").contains("verysecret"));
    }
}
