//! The dead man's switch of a rented instance. The autoscaler releases instances; if the gateway is unreachable for
//! long, the instance may be forgotten and cost money. Therefore, it destroys itself with a key from its provider.

mod reached;

use std::convert::Infallible;
use std::time::Duration;

use reqwest::redirect;
use reqwest::{Client, StatusCode};
use stokehold_vast::{path, reports_failure};

use crate::backoff::{Backoff, Policy};
use crate::secret::Secret;
pub(crate) use reached::Reached;

const CONNECT_LIMIT: Duration = Duration::from_secs(10);
const CALL_LIMIT: Duration = Duration::from_secs(30);

/// Pauses between two requests to destroy the instance.
const RETRY: Policy = Policy { min: Duration::from_secs(5), max: Duration::from_secs(300), jitter: 0.5..1.0 };

/// Maximum number of bytes to read of a response.
const ANSWER_BYTES: usize = 16 << 10;

/// This instance at its provider.
#[derive(Debug, Clone)]
pub(crate) struct Rental {
    /// URL of the provider's API.
    pub(crate) url: String,
    /// The provider's id of the instance.
    pub(crate) instance: String,
    /// Key that can only start, stop and destroy the instance.
    pub(crate) key: Secret,
    /// Time without contact with the gateway after which the instance destroys itself.
    pub(crate) limit: Duration,
}

impl Rental {
    /// Destroys this instance and with it this process. Repeats the request until that happens, even after a success,
    /// because every further hour costs money.
    pub(crate) async fn destroy(&self) -> Infallible {
        let mut backoff = Backoff::new(&RETRY);
        loop {
            match self.ask().await {
                Ok(()) => {
                    tracing::error!(instance.id = %self.instance, "the provider accepted the request to destroy this instance");
                    backoff.slow_down();
                }
                Err(why) => {
                    tracing::error!(instance.id = %self.instance, why, "cannot destroy this instance; retrying");
                }
            }
            backoff.pause().await;
        }
    }

    async fn ask(&self) -> Result<(), String> {
        let message = |error: reqwest::Error| error.without_url().to_string();
        let client =
            Client::builder().connect_timeout(CONNECT_LIMIT).timeout(CALL_LIMIT).redirect(redirect::Policy::none());
        let url = format!("{}{}", self.url, path::instance(&self.instance));
        let request = client.build().map_err(message)?.delete(url).bearer_auth(self.key.expose());
        let mut answer = request.json(&serde_json::json!({})).send().await.map_err(message)?;
        let status = answer.status();
        if status == StatusCode::NOT_FOUND || status == StatusCode::GONE {
            return Ok(());
        }
        if !status.is_success() {
            return Err(format!("the provider responded with {status}"));
        }
        let mut body = Vec::new();
        while let Some(part) = answer.chunk().await.map_err(message)? {
            body.extend_from_slice(&part);
            if body.len() > ANSWER_BYTES {
                break;
            }
        }
        // A failure may be reported in the body of a 200 response.
        if reports_failure(&body) { Err("the provider reported a failure".to_owned()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
