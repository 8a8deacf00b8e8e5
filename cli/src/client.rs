//! The public API as the subcommands see it: JSON in, JSON out, a problem as an error that says what to do.

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

/// For an answer that the API is not asked to hold back.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Between two pieces of a body; the event stream sends a comment every 15 s.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// The API, and who asks.
#[derive(Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    url: String,
    token: String,
}

/// What the API says of a request it does not fulfil.
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
            "" => write!(f, "the API answered {}", self.status)?,
            detail => f.write_str(detail)?,
        }
        // With one error the detail is all of it.
        for FieldProblem { path, message } in self.errors.iter().filter(|error| !self.detail.contains(&error.message)) {
            write!(f, "\n  {path}: {message}")?;
        }
        match self.code.as_str() {
            "unauthorized" => {
                f.write_str("\nGive a token with --token or STOKE_TOKEN; `stoke token create` makes one.")
            }
            "unknown_endpoint" => f.write_str("\n`stoke endpoints` lists what is deployed."),
            _ => Ok(()),
        }
    }
}

/// One request to the API. It may be sent again: what it asks for is idempotent, or carries a key.
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) body: Option<&'a Value>,
    pub(crate) headers: &'a [(&'static str, &'a str)],
    /// How long the API is asked to hold its answer back.
    pub(crate) hold: Duration,
}

impl Client {
    /// To where the arguments, the environment or `stoke dev` say. The saved token is only for the server that wrote it.
    pub(crate) fn connect(global: &Global) -> Result<Self> {
        let saved = Credentials::load()?;
        let saved_url = saved.as_ref().map(|saved| saved.url.clone());
        let url = global.url.clone().or(saved_url.clone()).unwrap_or_else(|| DEFAULT_URL.to_owned());
        let url = url.trim_end_matches('/').to_owned();
        let saved = saved.filter(|saved| saved.url.trim_end_matches('/') == url);
        let token = global.token.clone().filter(|token| !token.is_empty()).or(saved.map(|saved| saved.token));
        let Some(token) = token else {
            bail!(
                "there is no token for {url}: start `stoke dev` on this machine, or make one with `stoke token create` and give \
                 it with --token or STOKE_TOKEN"
            );
        };
        Self::new(url, token)
    }

    /// To `url`, with `token`.
    pub(crate) fn new(url: String, token: String) -> Result<Self> {
        let parsed =
            reqwest::Url::parse(&url).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        if parsed.is_none() {
            bail!("{url:?} is not the URL of an API; it looks like {DEFAULT_URL} (--url or STOKE_URL)");
        }
        let http = reqwest::Client::builder()
            .user_agent(concat!("stoke/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(SILENCE_TIMEOUT)
            .build()?;
        Ok(Self { http, url, token })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The client for presigned URLs, which get no token.
    pub(crate) fn http(&self) -> &reqwest::Client {
        &self.http
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value> {
        self.hold(path, Duration::ZERO).await
    }

    /// A GET that the API may hold back for `hold`.
    pub(crate) async fn hold(&self, path: &str, hold: Duration) -> Result<Value> {
        let call = Call { method: Method::GET, path, body: None, headers: &[], hold };
        Ok(self.call(&call).await?.1)
    }

    pub(crate) async fn post(&self, path: &str, body: Option<&Value>) -> Result<(StatusCode, Value)> {
        self.call(&Call { method: Method::POST, path, body, headers: &[], hold: Duration::ZERO }).await
    }

    /// Sends a call until it is answered, a few times at most.
    pub(crate) async fn call(&self, call: &Call<'_>) -> Result<(StatusCode, Value)> {
        for tried in 1.. {
            let mut request = self.request(call.method.clone(), call.path).timeout(ANSWER_TIMEOUT + call.hold);
            if let Some(body) = call.body {
                request = request.json(body);
            }
            for (name, value) in call.headers {
                request = request.header(*name, *value);
            }
            let (error, asked) = match request.send().await {
                Ok(answer) if answer.status().is_success() => {
                    let status = answer.status();
                    return Ok((status, answer.json().await.context("the API's answer is not JSON")?));
                }
                Ok(answer) => {
                    let (again, asked) = (is_passing(answer.status()), retry_after(&answer));
                    let error = problem(answer).await;
                    if !again {
                        return Err(error);
                    }
                    (error, asked)
                }
                Err(error) => (self.unreachable(error), None),
            };
            if tried >= retry::TRIES {
                return Err(error);
            }
            tokio::time::sleep(retry::pause(tried, asked)).await;
        }
        bail!("never answered")
    }

    /// A GET whose body is read piece by piece. Redirects to the object store lose the token on the way.
    pub(crate) async fn stream(&self, path: &str, headers: &[(&'static str, &str)]) -> Result<Response> {
        let mut request = self.request(Method::GET, path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.send().await.map_err(|error| self.unreachable(error))?;
        if answer.status().is_success() { Ok(answer) } else { Err(problem(answer).await) }
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
                "nothing answers at {}: start it with `stoke dev`, or say where it is with --url or STOKE_URL",
                self.url
            )
        } else {
            format!("{} did not answer", self.url)
        };
        anyhow::Error::new(error.without_url()).context(what)
    }
}

/// A part of a path that came from outside.
pub(crate) fn segment(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut path, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => path.push(char::from(byte)),
            _ => path.push_str(&format!("%{byte:02X}")),
        }
        path
    })
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
        Err(_) => anyhow::anyhow!("the API answered {status} without saying why; is this a Stokehold API?"),
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
    }

    #[test]
    fn segments_cannot_leave_their_place() {
        assert_eq!(segment("a/../b?c=é"), "a%2F..%2Fb%3Fc%3D%C3%A9");
    }
}
