//! Deletes the files of the API of OpenAI that have expired.

use std::time::Duration;

use stokehold_queue::now_ms;
use stokehold_supervise::{BoxError, Duty};

use super::files;
use crate::state::App;

/// Interval of the rounds. A file is hidden from the second at which it expires.
const EVERY: Duration = Duration::from_secs(600);
const ROUND_MAX: Duration = Duration::from_secs(300);

/// Delay before a round that failed is tried again.
const AGAIN: Duration = Duration::from_secs(60);

/// Time for which a replica keeps the duty, milliseconds. Two replicas at once do no harm.
const ROLE_MS: u64 = 900_000;

/// The loop.
pub(crate) struct FileExpiry(pub(crate) App);

impl Duty for FileExpiry {
    const NAME: &'static str = "openai-files";
    const ROUND_TIMEOUT: Duration = ROUND_MAX;
    const RETRY_DELAY: Duration = AGAIN;
    const BLOCKS_READINESS: bool = false;
    /// The next round continues the work.
    const CANCEL_ON_SHUTDOWN: bool = true;

    async fn round(&mut self) -> Result<Duration, BoxError> {
        let app = &self.0;
        let Some(first) = app.db.queue.all().first() else { return Ok(EVERY) };
        if first.claim_role("openai-files", &app.replica, ROLE_MS).await? {
            let count = files::expire(&app.objects, now_ms() / 1000).await?;
            if count > 0 {
                tracing::info!(count, "deleted files of the API of OpenAI that had expired");
            }
        }
        Ok(EVERY)
    }
}
