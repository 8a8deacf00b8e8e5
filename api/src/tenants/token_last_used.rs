//! Times of the last use of tokens. A use is recorded in memory when the token is read from Redis, at most every few
//! seconds, and written once a minute. No request waits for it, and the uses that a replica had not written when it
//! stopped are lost.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use stokehold_queue::{Registry, now_ms};
use stokehold_supervise::{BoxError, Duty};
use tokio::time::timeout;

/// Interval between two writes.
const ROUND: Duration = Duration::from_secs(60);

/// Timeout of one write.
const ROUND_MAX: Duration = Duration::from_secs(10);

/// Maximum number of tokens recorded between two writes. Further ones are ignored.
const NOTED_MAX: usize = 10_000;

/// Uses since the last write.
#[derive(Default)]
pub(crate) struct TokenLastUsed(Mutex<HashMap<String, u64>>);

impl TokenLastUsed {
    /// Records that a token is used now.
    pub(crate) fn note(&self, id: &str) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.len() < NOTED_MAX || noted.contains_key(id) {
            noted.insert(id.to_owned(), now_ms());
        }
    }

    fn take(&self) -> Vec<(String, u64)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_iter().collect()
    }
}

/// Writes the recorded uses, every minute and at shutdown. A failed write is not repeated: the next use of a token
/// replaces it.
pub(crate) struct Writer {
    pub(crate) noted: Arc<TokenLastUsed>,
    pub(crate) registry: Registry,
}

impl Duty for Writer {
    const NAME: &'static str = "uses";
    const ROUND_TIMEOUT: Duration = ROUND_MAX;
    const INITIAL_DELAY: Duration = ROUND;
    const RETRY_DELAY: Duration = ROUND;
    const BLOCKS_READINESS: bool = false;

    async fn round(&mut self) -> Result<Duration, BoxError> {
        let uses = self.noted.take();
        if !uses.is_empty() {
            self.registry.note_uses(&uses).await?;
        }
        Ok(ROUND)
    }

    async fn shut_down(&mut self) {
        match timeout(ROUND_MAX, self.round()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = &*error as &dyn std::error::Error, "cannot record when tokens were last used");
            }
            Err(_) => tracing::warn!("recording when tokens were last used timed out"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_noted_once_and_the_number_of_them_is_bounded() {
        let uses = TokenLastUsed::default();
        for _ in 0..2 {
            uses.note("a");
        }
        assert_eq!(uses.take().len(), 1);
        assert!(uses.take().is_empty(), "what was taken is not written again");
        for n in 0..NOTED_MAX + 5 {
            uses.note(&n.to_string());
        }
        uses.note("0");
        assert_eq!(uses.take().len(), NOTED_MAX);
    }
}
