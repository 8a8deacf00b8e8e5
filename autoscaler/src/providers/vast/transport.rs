//! How requests reach Vast.ai: one request, at most one answer. A simulation puts itself in the place of [`Http`].

use std::fmt;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Url, redirect};
use serde_json::Value;
use stokehold_queue::now_ms;

use crate::durations::seconds;
use crate::secret::Secret;

/// More than the longest listing there is; who sends more is not read to the end.
const BODY_BYTES_MAX: usize = 16 << 20;

/// Long enough for a distant place, and no part of what an answer may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Sends a request once.
pub trait Transport: Send + Sync {
    /// Sends it, and reads its answer to the end, within its time. It is not sent again, and redirects are answers like
    /// others.
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Answer, Lost>>;
}

/// What is done to what stands at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Reads.
    Get,
    /// Asks, with a body.
    Post,
    /// Changes.
    Put,
    /// Ends.
    Delete,
}

impl Method {
    /// As it is sent.
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

/// What is asked. Its body may hold what a worker joins with, so that it never prints.
#[derive(Clone, PartialEq)]
pub struct Request {
    /// Which verb.
    pub method: Method,
    /// Path below the provider's address, from the first slash to the last, e.g. `/api/v0/bundles/`.
    pub path: String,
    /// What follows the question mark, not yet escaped.
    pub query: Vec<(&'static str, String)>,
    /// Sent as JSON.
    pub body: Option<Value>,
    /// An answer that has not been read by then is lost.
    pub timeout: Duration,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Request");
        shown.field("method", &self.method).field("path", &self.path).field("query", &self.query);
        shown.finish_non_exhaustive()
    }
}

/// What was answered. Listings quote what machines were given, so that bodies never print.
#[derive(Clone, PartialEq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// How long the answer says to wait, seconds.
    pub retry_after_s: Option<f64>,
    /// In how many seconds a used up quota is new, where the answer says.
    pub quota_resets_in_s: Option<f64>,
    /// What its body is; empty where it does not say.
    pub content_type: String,
    /// All of it.
    pub body: Bytes,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Answer");
        shown.field("status", &self.status).field("content_type", &self.content_type);
        shown.field("bytes", &self.body.len()).finish_non_exhaustive()
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// It certainly never left.
    #[error("not sent: {0}")]
    Unsent(String),
    /// It may have arrived, and may have been done.
    #[error("no response: {0}")]
    Unknown(String),
}

/// Over the network.
pub struct Http {
    client: reqwest::Client,
    url: String,
    authorization: HeaderValue,
}

/// Why nothing can be sent at all.
#[derive(Debug, thiserror::Error)]
pub enum NoHttp {
    /// The key holds what no header may.
    #[error("the API key for Vast.ai contains invalid characters")]
    Key,
    /// No secure connections can be made here.
    #[error("cannot create an HTTP client")]
    Client(#[source] reqwest::Error),
}

impl Http {
    /// To this address, `https://console.vast.ai`, with this key.
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
            // A connection that is used again may just have been closed, and nobody knows what became of what was sent
            // on it.
            .pool_max_idle_per_host(0)
            .http1_only()
            .build()
            .map_err(NoHttp::Client)?;
        Ok(Self { client, url: url.trim_end_matches('/').to_owned(), authorization })
    }

    async fn answer(&self, request: Request) -> Result<Answer, Lost> {
        let method = match request.method {
            Method::Get => reqwest::Method::GET,
            Method::Post => reqwest::Method::POST,
            Method::Put => reqwest::Method::PUT,
            Method::Delete => reqwest::Method::DELETE,
        };
        let mut url = Url::parse(&format!("{}{}", self.url, request.path))
            .map_err(|error| Lost::Unsent(format!("invalid URL: {error}")))?;
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
                return Err(Lost::Unknown(format!("status {status} with a body of more than {BODY_BYTES_MAX} bytes")));
            }
            body.extend_from_slice(&piece);
        }
        Ok(Answer { status, retry_after_s, quota_resets_in_s, content_type, body: body.freeze() })
    }
}

impl Transport for Http {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Answer, Lost>> {
        Box::pin(self.answer(request))
    }
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// The URL is left out: that of a result is a key to it.
fn lost(error: reqwest::Error) -> Lost {
    let error = error.without_url();
    let why = match (error.is_connect(), error.is_timeout()) {
        (true, true) => "connecting timed out".to_owned(),
        (true, false) => "cannot connect".to_owned(),
        (false, true) => "timed out".to_owned(),
        (false, false) => error.to_string(),
    };
    if error.is_connect() || error.is_builder() { Lost::Unsent(why) } else { Lost::Unknown(why) }
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

    /// Answers one request with this, and gives what it was asked.
    async fn asked(reply: Option<&str>, request: Request) -> (String, Result<Answer, Lost>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let http = Http::new(&url, &Secret::new("verysecret\n")).unwrap();
        let served = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut read = vec![0; 64 << 10];
            let length = stream.read(&mut read).await.unwrap();
            match reply {
                Some(reply) => stream.write_all(reply.as_bytes()).await.unwrap(),
                // Until the other side gives up.
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
        assert!(matches!(http.send(request(None)).await, Err(Lost::Unsent(_))));
        let cut = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"success\"";
        for reply in [Some(cut), Some(""), None] {
            // Who answers has the time that it takes.
            let timeout = Duration::from_millis(if reply.is_some() { 20_000 } else { 300 });
            let (_, answer) = asked(reply, Request { timeout, ..request(None) }).await;
            assert!(matches!(answer, Err(Lost::Unknown(_))), "{reply:?}: {answer:?}");
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
