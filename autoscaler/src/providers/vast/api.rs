//! Requests to Vast.ai, from their turn to the meaning of their response. Only idempotent requests are repeated.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng as _;
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep};

use super::error::{self, ErrorKind, ErrorResponse};
use super::pace::{Endpoint, PaceError, Pacer};
use super::transport::{Method, Request, Transport, TransportError};
use crate::provider::ProviderError;
use crate::secret::Secret;

/// Timeout of a call, including waiting for its turn and repetitions.
const CALL_MAX: Duration = Duration::from_secs(52);

/// Timeout of a response.
const ANSWER_MAX: Duration = Duration::from_secs(25);

/// Maximum number of tries of an idempotent request.
const SENDS_MAX: u32 = 3;

/// Pause before the second try; it doubles.
const PAUSE: Duration = Duration::from_millis(500);

/// Start of the message of a refusal for lack of credit. Callers recognize by it that the offer is not the cause.
pub const NO_CREDIT: &str = "no credit left at Vast.ai";

/// Object in a response of Vast.ai.
pub(super) type Object = Map<String, Value>;

/// Failure of a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    #[error("no request sent to Vast.ai: {0}")]
    Pace(#[from] PaceError),
    #[error("Vast.ai: {0}")]
    Transport(#[from] TransportError),
    #[error(transparent)]
    Response(#[from] ErrorResponse),
}

impl Error {
    /// Kind of the error, if Vast.ai responded.
    pub(super) fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Response(problem) => Some(problem.kind),
            _ => None,
        }
    }

    /// Whether another try may help.
    fn passes(&self) -> bool {
        let kind = self.kind();
        matches!(self, Self::Transport(_)) || matches!(kind, Some(ErrorKind::Transient | ErrorKind::TooFrequent))
    }
}

/// Translates the failure for callers of a provider.
impl From<Error> for ProviderError {
    fn from(error: Error) -> Self {
        let why = error.to_string();
        match error {
            Error::Response(ErrorResponse { contract: Some(contract), .. }) => {
                Self::Made { rental: contract.to_string(), why }
            }
            Error::Pace(_) | Error::Transport(TransportError::Unsent(_)) => Self::Refused(why),
            Error::Transport(TransportError::Unknown(_)) => Self::Unknown(why),
            Error::Response(problem) => match problem.kind {
                ErrorKind::Transient | ErrorKind::Unreadable => Self::Unknown(why),
                ErrorKind::NoSuchAsk | ErrorKind::NoSuchInstance => Self::Vanished(why),
                ErrorKind::InsufficientCredit => Self::Refused(format!("{NO_CREDIT}: {why}")),
                _ => Self::Refused(why),
            },
        }
    }
}

/// Client of Vast.ai.
pub(super) struct Api {
    transport: Arc<dyn Transport>,
    pacer: Pacer,
    /// The API key, which is removed from messages that quote it.
    key: Secret,
}

impl Api {
    pub(super) fn new(transport: Arc<dyn Transport>, key: Secret) -> Self {
        Self { transport, pacer: Pacer::default(), key }
    }

    /// Whether a request of this kind would be sent at once.
    pub(super) fn is_free(&self, endpoint: Endpoint) -> bool {
        self.pacer.is_free(endpoint)
    }

    /// Sends a request that must not be sent twice.
    pub(super) async fn once(&self, endpoint: Endpoint, request: Request) -> Result<Object, Error> {
        self.pacer.turn(endpoint, CALL_MAX.saturating_sub(request.timeout)).await?;
        self.send(endpoint, request).await
    }

    /// Sends an idempotent request, with repetitions if they may help.
    pub(super) async fn again(&self, endpoint: Endpoint, request: Request) -> Result<Object, Error> {
        let until = Instant::now() + CALL_MAX;
        let mut pause = PAUSE;
        let mut last = None;
        for _ in 0..SENDS_MAX {
            let left = until.saturating_duration_since(Instant::now());
            let turn = match left.checked_sub(request.timeout) {
                Some(within) => self.pacer.turn(endpoint, within).await,
                None => Err(PaceError::TooLate(Duration::ZERO)),
            };
            if let Err(pace_error) = turn {
                // The earlier failure is more useful than the lack of another turn.
                return Err(last.unwrap_or(Error::Pace(pace_error)));
            }
            match self.send(endpoint, request.clone()).await {
                Err(error) if error.passes() => last = Some(error),
                answer => return answer,
            }
            let jittered = pause.mul_f64(rand::rng().random_range(0.5..1.0));
            sleep(jittered).await;
            pause *= 2;
        }
        Err(last.unwrap_or(Error::Pace(PaceError::TooLate(CALL_MAX))))
    }

    async fn send(&self, endpoint: Endpoint, request: Request) -> Result<Object, Error> {
        let answer = self.transport.send(request).await?;
        let read = error::read(&answer);
        match read.as_ref().map_err(|problem| problem.kind) {
            Err(ErrorKind::TooFrequent) => self.pacer.was_refused(endpoint, answer.retry_after_s),
            Err(ErrorKind::QuotaExceeded) => self.pacer.is_used_up(endpoint, answer.quota_resets_in_s),
            _ => self.pacer.was_let_in(endpoint),
        }
        Ok(read.map_err(|problem| self.hushed(problem))?)
    }

    fn hushed(&self, mut problem: ErrorResponse) -> ErrorResponse {
        let key = self.key.expose().trim();
        if !key.is_empty() && problem.message.contains(key) {
            problem.message = problem.message.replace(key, "(secret)");
        }
        problem
    }
}

/// Builds a request to a path of the API.
pub(super) fn request(method: Method, path: impl Into<String>, body: Option<Value>) -> Request {
    Request { method, path: path.into(), query: Vec::new(), body, timeout: ANSWER_MAX }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::scripted::{Scripted, json, said};
    use super::*;

    fn api(script: &Arc<Scripted>) -> Api {
        Api::new(Arc::clone(script) as Arc<dyn Transport>, Secret::new("verysecret"))
    }

    async fn again(script: &Arc<Scripted>) -> Result<Object, Error> {
        api(script).again(Endpoint::State, request(Method::Put, "/x/", None)).await
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_be_repeated_is_sent_three_times_at_most() {
        let unknown = || Err(TransportError::Unknown("reset".to_owned()));
        let script = Scripted::new([unknown(), said(503, ""), json(200, "{}")]);
        again(&script).await.unwrap();
        assert_eq!(script.count(), 3);
        let script = Scripted::new([unknown(), unknown(), unknown(), json(200, "{}")]);
        assert!(matches!(again(&script).await, Err(Error::Transport(_))));
        assert_eq!(script.count(), 3);
        let script = Scripted::new([json(400, r#"{"error":"invalid_args"}"#), json(200, "{}")]);
        again(&script).await.unwrap_err();
        assert_eq!(script.count(), 1, "it will not be different");
        let script = Scripted::new([unknown(), json(200, "{}")]);
        api(&script).once(Endpoint::Rent, request(Method::Put, "/x/", None)).await.unwrap_err();
        assert_eq!(script.count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_ends_in_its_time_whatever_happens() {
        let began = Instant::now();
        let script = Scripted::new(std::iter::repeat_with(|| said(429, "too frequent")).take(9));
        assert_eq!(again(&script).await.unwrap_err().kind(), Some(ErrorKind::TooFrequent));
        let silent = Scripted::silent();
        again(&silent).await.unwrap_err();
        assert!(began.elapsed() < 2 * Duration::from_secs(60), "{:?}", began.elapsed());
        assert!(script.count() <= 3 && silent.count() <= 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_quoted_is_not_told_on() {
        let script = Scripted::new([json(401, r#"{"msg":"Invalid user key verysecret"}"#)]);
        let error = again(&script).await.unwrap_err();
        assert_eq!(error.to_string(), "Vast.ai answered 401: Invalid user key (secret)");
    }
}
