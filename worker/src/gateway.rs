//! The client of the gateway: one method per route, each with a timeout, bounded retries and a defined outcome.

mod relay;
mod token;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::{Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use stokehold_protocol::gateway::{
    EventsReply, EventsRequest, ExtendReply, ExtendRequest, FinishReply, FinishRequest, JoinReply, JoinRequest,
    LeaseReply, LeaseRequest, ReleaseReply, ReleaseRequest, RunnerSpec, Secrets, SecretsReply, SecretsRequest,
    UploadsReply, UploadsRequest,
};
use tokio::time::{Instant, timeout_at};

use crate::backoff::{Backoff, Policy};
use crate::metrics;
use crate::rejoin::Rejoin;
use crate::rental::Reached;
use crate::secret::Secret;
use relay::Relay;
use token::WorkerToken;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const CALL_TIMEOUT: Duration = Duration::from_secs(15);

/// Time that a lease call may take beyond its requested wait, for the network.
const LEASE_MARGIN: Duration = Duration::from_secs(10);

/// Tries of one call, and the pauses between them.
const TRIES: u32 = 6;
const RETRY: Policy = Policy { min: Duration::from_millis(100), max: Duration::from_secs(3), jitter: 0.5..1.0 };

/// Maximum time that a call whose token was rejected waits for the next token. A gateway that rejects a token is
/// reachable, so the following join rarely takes longer than a round trip or a restart of the gateway.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(60);

/// Pauses after a join that failed.
const REJOIN: Policy = Policy { min: Duration::from_secs(1), max: Duration::from_secs(30), jitter: 0.5..1.5 };

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No usable response. Whether the call took effect is unknown.
    #[error("cannot reach the gateway: {0}")]
    Unavailable(String),
    /// The token is no longer valid; join again.
    #[error("the gateway rejected this worker's token")]
    Unauthorized,
    /// The gateway rejected the call permanently, with a problem code.
    #[error("the gateway rejected the request: {code}: {detail}")]
    Refused {
        /// Stable problem code.
        code: String,
        /// Description of the problem.
        detail: String,
    },
}

/// One call of a route.
struct Call<'a, B> {
    method: Method,
    path: &'a str,
    body: Option<&'a B>,
    timeout: Duration,
    tries: u32,
}

impl<'a, B> Call<'a, B> {
    /// A call that is retried.
    fn post(path: &'a str, body: &'a B) -> Self {
        Self { method: Method::POST, path, body: Some(body), timeout: CALL_TIMEOUT, tries: TRIES }
    }
}

/// The connection to the gateway. One per worker.
pub(crate) struct Gateway {
    http: reqwest::Client,
    base: String,
    join_token: Secret,
    /// A newer token to join with, tried before `join_token`.
    rejoin: Rejoin,
    /// Records every successful response, on rented instances.
    reached: Option<Arc<Reached>>,
    join: JoinRequest,
    /// The resume token of the last join. It proves at the next join that this is the same worker.
    resume: Mutex<Option<String>>,
    token: WorkerToken,
    relay: Relay,
}

impl Gateway {
    /// A client that joins with this request.
    pub(crate) fn new(
        base: &str,
        (join_token, rejoin): (Secret, Rejoin),
        join: JoinRequest,
        reached: Option<Arc<Reached>>,
    ) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT).tcp_nodelay(true).build()?;
        let base = format!("{base}/worker/v1");
        Ok(Self {
            http,
            base,
            join_token,
            rejoin,
            reached,
            join,
            resume: Mutex::default(),
            token: WorkerToken::none(),
            relay: Relay::default(),
        })
    }

    /// Joins and stores the worker's token. Concurrent calls never carry a join token. Retried if the outcome is
    /// unknown, because after a lost reply the worker would never request jobs.
    pub(crate) async fn join(&self) -> Result<JoinReply, Error> {
        let mut outcome = Err(Error::Unauthorized);
        let request = JoinRequest { resume: self.resume.lock().clone(), ..self.join.clone() };
        for token in [self.rejoin.token(), Some(self.join_token.clone())].into_iter().flatten() {
            outcome = self.repeated(&Call::post("join", &request), &token).await;
            // A used rejoin token must not prevent a join with the other token.
            if !matches!(outcome, Err(Error::Unauthorized)) {
                break;
            }
        }
        let reply: JoinReply = outcome?;
        self.resume.lock().clone_from(&reply.resume);
        self.token.replace(Secret::new(reply.token.clone()));
        if let Some(token) = &reply.rejoin_token {
            self.rejoin.keep(Secret::new(token.clone())).await;
        }
        Ok(reply)
    }

    /// Joins again whenever the gateway rejects the worker's token, until it succeeds, with a growing pause after each
    /// failure.
    pub(crate) async fn stay_joined(&self) -> Infallible {
        loop {
            self.token.refused().await;
            tracing::warn!("the gateway rejected this worker's token; joining again");
            let mut backoff = Backoff::new(&REJOIN);
            while let Err(error) = self.join().await {
                tracing::error!(%error, "cannot join again; retrying");
                backoff.pause().await;
            }
        }
    }

    /// Number of the current token, for [`Gateway::token_replaced`].
    pub(crate) fn token_number(&self) -> u64 {
        self.token.current().0
    }

    /// Waits until the token with this number has a successor.
    pub(crate) async fn token_replaced(&self, number: u64) {
        self.token.replaced(number).await;
    }

    /// Requests leases. Not retried: an unknown outcome costs at most a lease period, and the caller requests again
    /// anyway.
    pub(crate) async fn lease(&self, request: &LeaseRequest) -> Result<LeaseReply, Error> {
        let timeout = Duration::from_millis(request.wait_ms) + LEASE_MARGIN;
        self.call(Call { timeout, tries: 1, ..Call::post("lease", request) }).await
    }

    /// Reports ended attempts. Retried: the gateway answers a report that it has already accepted with `already_ended`.
    pub(crate) async fn finish(&self, request: &FinishRequest) -> Result<FinishReply, Error> {
        self.call(Call::post("finish", request)).await
    }

    /// Sends a heartbeat. Not retried, and does not wait for a new token: the next heartbeat follows soon.
    pub(crate) async fn extend(&self, request: &ExtendRequest, timeout: Duration) -> Result<ExtendReply, Error> {
        let (number, token) = self.token.current();
        let call = Call { timeout, tries: 1, ..Call::post("extend", request) };
        let outcome = self.repeated(&call, &token).await;
        match &outcome {
            Ok(ExtendReply { token: Some(next), .. }) => self.token.renew(number, Secret::new(next.clone())),
            Err(Error::Unauthorized) => self.token.refuse(number),
            Ok(_) | Err(_) => {}
        }
        outcome
    }

    /// Releases leases. Retried: the gateway answers a lease that is already released as stale.
    pub(crate) async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply, Error> {
        self.call(Call::post("release", request)).await
    }

    /// Sends events of jobs. Tried at most twice: a duplicate event is worse than a lost one.
    pub(crate) async fn events(&self, request: &EventsRequest) -> Result<EventsReply, Error> {
        let reply: Option<EventsReply> = self.call(Call { tries: 2, ..Call::post("events", request) }).await?;
        Ok(reply.unwrap_or_default())
    }

    /// Requests upload URLs. Retried: the request has no side effects.
    pub(crate) async fn uploads(&self, request: &UploadsRequest) -> Result<UploadsReply, Error> {
        self.call(Call::post("uploads", request)).await
    }

    /// Reads what is needed to start a runner. Retried.
    pub(crate) async fn runner_spec(&self, tenant: &str, name: &str, version: u32) -> Result<RunnerSpec, Error> {
        let path = format!("endpoints/{tenant}/{name}/{version}");
        self.call(Call::<()> { method: Method::GET, body: None, ..Call::post(&path, &()) }).await
    }

    /// Reads the secrets of a model. Retried.
    pub(crate) async fn secrets(&self, request: &SecretsRequest) -> Result<Secrets, Error> {
        let reply: SecretsReply = self.call(Call::post("secrets", request)).await?;
        Ok(reply.secrets)
    }

    /// Makes a call with the worker's token. If the gateway rejects the token, waits for the next one and repeats the
    /// call.
    async fn call<B: Serialize, R: DeserializeOwned>(&self, call: Call<'_, B>) -> Result<R, Error> {
        let mut wait_until = None;
        loop {
            let (number, token) = self.token.current();
            let outcome = self.repeated(&call, &token).await;
            if !matches!(outcome, Err(Error::Unauthorized)) {
                return outcome;
            }
            self.token.refuse(number);
            let until = *wait_until.get_or_insert_with(|| Instant::now() + TOKEN_TIMEOUT);
            let is_replaced = timeout_at(until, self.token.replaced(number)).await.is_ok();
            // Give up on a gateway that rejects each new token too.
            if !is_replaced || Instant::now() >= until {
                return outcome;
            }
        }
    }

    /// Repeats a call while its outcome is unknown, with growing pauses.
    async fn repeated<B: Serialize, R: DeserializeOwned>(
        &self,
        call: &Call<'_, B>,
        token: &Secret,
    ) -> Result<R, Error> {
        let mut backoff = Backoff::new(&RETRY);
        for left in (0..call.tries).rev() {
            let answer = self.once(call, token).await;
            if answer.is_err() {
                metrics::gateway_failed(call.path);
            }
            match answer {
                Err(Error::Unavailable(why)) if left > 0 => {
                    tracing::debug!(path = call.path, %why, "no response from the gateway; retrying");
                    backoff.pause().await;
                }
                outcome => return outcome,
            }
        }
        Err(Error::Unavailable("no attempt was made".to_owned()))
    }

    async fn once<B: Serialize, R: DeserializeOwned>(&self, call: &Call<'_, B>, token: &Secret) -> Result<R, Error> {
        let Call { method, path, body, timeout, tries: _ } = call;
        let request = self
            .http
            .request(method.clone(), format!("{}/{path}", self.base))
            .timeout(*timeout)
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
            // A response without a body is read as null, which is `()` in JSON.
            let body: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
            return serde_json::from_slice(body)
                .map_err(|error| Error::Unavailable(format!("invalid response to {path}: {error}")));
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
