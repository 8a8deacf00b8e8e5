//! The gateway as a worker sees it: one method per route, each with a timeout, a bounded retry and a stated outcome.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::Rng;
use reqwest::{Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use stokehold_queue::gateway::{
    EventsRequest, ExtendReply, ExtendRequest, FinishReply, FinishRequest, JoinReply, JoinRequest, LeaseReply,
    LeaseRequest, ReleaseReply, ReleaseRequest, RunnerSpec, Secrets, SecretsReply, SecretsRequest, UploadsReply,
    UploadsRequest,
};

use crate::config::Secret;
use crate::metrics;
use crate::rejoin::Rejoin;
use crate::rental::Reached;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const CALL_TIMEOUT: Duration = Duration::from_secs(15);

/// A lease call may be held this much longer than it asked to, for the way there and back.
const LEASE_MARGIN: Duration = Duration::from_secs(10);

/// Tries of one call, and the bounds of the waits between them.
const TRIES: u32 = 6;
const WAIT_MIN: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_secs(3);

/// Why a call did not give its answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Nobody answered, or only that it cannot now. Whether it happened is unknown.
    #[error("the gateway is not reachable: {0}")]
    Unavailable(String),
    /// The token is not good any more: join again.
    #[error("the gateway does not accept this worker's token")]
    Unauthorized,
    /// It was refused for good, with the problem's code.
    #[error("the gateway refused: {code}: {detail}")]
    Refused {
        /// Stable.
        code: String,
        /// What to change.
        detail: String,
    },
}

/// The connection. One per worker.
pub(crate) struct Gateway {
    http: reqwest::Client,
    base: String,
    join_token: Secret,
    /// What to join with rather than that.
    rejoin: Rejoin,
    /// Told of every answer, where somebody has to know.
    reached: Option<Arc<Reached>>,
    join: JoinRequest,
    /// The worker's own, once it has joined.
    token: Mutex<Secret>,
}

impl Gateway {
    /// A gateway to join as `join` says.
    pub(crate) fn new(
        base: &str,
        (join_token, rejoin): (Secret, Rejoin),
        join: JoinRequest,
        reached: Option<Arc<Reached>>,
    ) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT).tcp_nodelay(true).build()?;
        let (base, token) = (format!("{base}/worker/v1"), Mutex::new(Secret::new("")));
        Ok(Self { http, base, join_token, rejoin, reached, join, token })
    }

    /// Joins and remembers the worker's own token. Unknown outcomes are repeated: a join that was lost is a worker that never
    /// asks for anything.
    pub(crate) async fn join(&self) -> Result<JoinReply, Error> {
        let mut outcome = Err(Error::Unauthorized);
        for token in [self.rejoin.token(), Some(self.join_token.clone())].into_iter().flatten() {
            self.set_token(token);
            outcome = self.call(Method::POST, "join", Some(&self.join), CALL_TIMEOUT, TRIES).await;
            // One that is spent does not stand in the way of the other.
            if !matches!(outcome, Err(Error::Unauthorized)) {
                break;
            }
        }
        let reply: JoinReply = outcome?;
        self.set_token(Secret::new(reply.token.clone()));
        if let Some(token) = &reply.rejoin_token {
            self.rejoin.keep(Secret::new(token.clone())).await;
        }
        Ok(reply)
    }

    /// One try: an unknown outcome costs a lease period, and the caller asks again anyway.
    pub(crate) async fn lease(&self, request: &LeaseRequest) -> Result<LeaseReply, Error> {
        let timeout = Duration::from_millis(request.wait_ms) + LEASE_MARGIN;
        self.call(Method::POST, "lease", Some(request), timeout, 1).await
    }

    /// Repeated: the gateway answers a report it has taken before with `already_ended`.
    pub(crate) async fn finish(&self, request: &FinishRequest) -> Result<FinishReply, Error> {
        self.call(Method::POST, "finish", Some(request), CALL_TIMEOUT, TRIES).await
    }

    /// One try: the next heartbeat comes soon.
    pub(crate) async fn extend(&self, request: &ExtendRequest, timeout: Duration) -> Result<ExtendReply, Error> {
        let reply: ExtendReply = self.call(Method::POST, "extend", Some(request), timeout, 1).await?;
        if let Some(token) = &reply.token {
            self.set_token(Secret::new(token.clone()));
        }
        Ok(reply)
    }

    /// Repeated: a lease that is already back is answered as stale.
    pub(crate) async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply, Error> {
        self.call(Method::POST, "release", Some(request), CALL_TIMEOUT, TRIES).await
    }

    /// Two tries: an event told twice is worse than one lost.
    pub(crate) async fn events(&self, request: &EventsRequest) -> Result<(), Error> {
        self.call(Method::POST, "events", Some(request), CALL_TIMEOUT, 2).await
    }

    /// Repeated: asking for URLs changes nothing.
    pub(crate) async fn uploads(&self, request: &UploadsRequest) -> Result<UploadsReply, Error> {
        self.call(Method::POST, "uploads", Some(request), CALL_TIMEOUT, TRIES).await
    }

    /// Repeated: a read.
    pub(crate) async fn runner_spec(&self, tenant: &str, name: &str, version: u32) -> Result<RunnerSpec, Error> {
        let path = format!("endpoints/{tenant}/{name}/{version}");
        self.call(Method::GET, &path, None::<&()>, CALL_TIMEOUT, TRIES).await
    }

    /// Repeated: a read.
    pub(crate) async fn secrets(&self, request: &SecretsRequest) -> Result<Secrets, Error> {
        let reply: SecretsReply = self.call(Method::POST, "secrets", Some(request), CALL_TIMEOUT, TRIES).await?;
        Ok(reply.secrets)
    }

    fn set_token(&self, token: Secret) {
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = token;
    }

    async fn call<B: Serialize, R: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
        timeout: Duration,
        tries: u32,
    ) -> Result<R, Error> {
        let mut wait = WAIT_MIN;
        for left in (0..tries).rev() {
            let answer = self.once(&method, path, body, timeout).await;
            if answer.is_err() {
                metrics::gateway_failed(path);
            }
            match answer {
                Err(Error::Unavailable(why)) if left > 0 => {
                    tracing::debug!(%path, %why, "the gateway did not answer, trying again");
                    let jittered = wait.mul_f64(rand::rng().random_range(0.5..1.0));
                    tokio::time::sleep(jittered).await;
                    wait = (wait * 2).min(WAIT_MAX);
                }
                outcome => return outcome,
            }
        }
        Err(Error::Unavailable("no try was allowed".to_owned()))
    }

    async fn once<B: Serialize, R: DeserializeOwned>(
        &self,
        method: &Method,
        path: &str,
        body: Option<&B>,
        timeout: Duration,
    ) -> Result<R, Error> {
        let token = self.token.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let request = self
            .http
            .request(method.clone(), format!("{}/{path}", self.base))
            .timeout(timeout)
            .bearer_auth(token.expose());
        let request = match body {
            Some(body) => request.json(body),
            None => request,
        };
        let unavailable = |error: reqwest::Error| Error::Unavailable(error.without_url().to_string());
        let answer = request.send().await.map_err(unavailable)?;
        let status = answer.status();
        let bytes = answer.bytes().await.map_err(unavailable)?;
        if status.is_success() {
            if let Some(reached) = &self.reached {
                reached.now();
            }
            // An answer without a body reads as null, which is what `()` is in JSON.
            let body: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
            return serde_json::from_slice(body)
                .map_err(|error| Error::Unavailable(format!("its answer to {path} is not readable: {error}")));
        }
        Err(refusal(status, &bytes))
    }
}

fn refusal(status: StatusCode, body: &[u8]) -> Error {
    let problem: BTreeMap<String, serde_json::Value> = serde_json::from_slice(body).unwrap_or_default();
    let text = |name: &str| problem.get(name).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
    match status {
        StatusCode::UNAUTHORIZED => Error::Unauthorized,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => Error::Unavailable(status.to_string()),
        status if status.is_server_error() => Error::Unavailable(format!("{status} {}", text("code"))),
        status => {
            let code = text("code");
            Error::Refused { code: if code.is_empty() { status.to_string() } else { code }, detail: text("detail") }
        }
    }
}
