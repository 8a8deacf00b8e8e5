//! The dead man's switch of a rented machine. Whoever rented it gives it back; when they cannot be reached for long, it may be that nobody
//! knows of it any more, and it costs money every hour. So it destroys itself, with the key that its provider gave it for that.

mod reached;

use std::convert::Infallible;
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use serde::Deserialize;

use crate::backoff::{Backoff, Policy};
use crate::secret::Secret;
pub(crate) use reached::Reached;

const CONNECT_LIMIT: Duration = Duration::from_secs(10);
const CALL_LIMIT: Duration = Duration::from_secs(30);

/// Pauses between two requests to destroy the instance.
const RETRY: Policy = Policy { min: Duration::from_secs(5), max: Duration::from_secs(300), jitter: 0.5..1.0 };

/// More of an answer is not looked at.
const ANSWER_BYTES: usize = 16 << 10;

/// This machine, as its provider knows it.
#[derive(Debug, Clone)]
pub(crate) struct Rental {
    /// Where the provider answers.
    pub(crate) url: String,
    /// The provider's id of it.
    pub(crate) instance: String,
    /// May do nothing but start, stop and destroy it.
    pub(crate) key: Secret,
    /// It destroys itself when the gateway has not been reached for so long.
    pub(crate) limit: Duration,
}

#[derive(Deserialize)]
struct Answer {
    success: Option<bool>,
}

impl Rental {
    /// Destroys this machine, and this process with it. Until that happens it goes on: every hour that it does not costs another one, and
    /// who is still here after it was said to be done is not gone.
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
        let said = |error: reqwest::Error| error.without_url().to_string();
        let client = Client::builder().connect_timeout(CONNECT_LIMIT).timeout(CALL_LIMIT).redirect(Policy::none());
        let url = format!("{}/api/v0/instances/{}/", self.url, self.instance);
        let request = client.build().map_err(said)?.delete(url).bearer_auth(self.key.expose());
        let mut answer = request.json(&serde_json::json!({})).send().await.map_err(said)?;
        let status = answer.status();
        if status == StatusCode::NOT_FOUND || status == StatusCode::GONE {
            return Ok(());
        }
        if !status.is_success() {
            return Err(format!("the provider responded with {status}"));
        }
        let mut body = Vec::new();
        while let Some(part) = answer.chunk().await.map_err(said)? {
            body.extend_from_slice(&part);
            if body.len() > ANSWER_BYTES {
                break;
            }
        }
        // A refusal may come as a 200 that says so inside.
        match serde_json::from_slice::<Answer>(&body) {
            Ok(Answer { success: Some(false) }) => Err("the provider reported a failure".to_owned()),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
