//! Clean-up of ended batches: their parts are deleted after an hour, everything else after thirty days.

use stokehold_queue::now_ms;

use super::{Error, Runner};

/// Retention of an ended batch, its results and its errors, milliseconds.
const KEEP_MS: u64 = 30 * 24 * 60 * 60 * 1000;

/// Interval of the clean-up, milliseconds. One replica at a time runs it.
const EVERY_MS: u64 = 60_000;

/// Delay before a batch whose clean-up failed is retried, milliseconds.
const AGAIN_MS: u64 = 60 * 60 * 1000;

/// Maximum number of batches cleaned up in one round.
const MOST: isize = 10;

/// Objects deleted in one call.
const PAGE: u32 = 1_000;

impl Runner {
    /// Cleans up the batches that are due.
    pub(super) async fn tidy(&self) -> Result<(), Error> {
        let now = now_ms();
        let last = self.tidied.load(std::sync::atomic::Ordering::Relaxed);
        if now < last + EVERY_MS || !self.shard.claim_role("batches:tidy", &self.app.replica, EVERY_MS).await? {
            return Ok(());
        }
        self.tidied.store(now, std::sync::atomic::Ordering::Relaxed);
        for id in self.batches.untidy(now, MOST).await? {
            if let Err(error) = self.tidy_one(&id, now).await {
                // A failed batch must not block the ones behind it.
                tracing::warn!(
                    batch.id = id,
                    error = &error as &dyn std::error::Error,
                    "cannot clean up an ended batch"
                );
                self.batches.tidy_later(&id, now + AGAIN_MS).await?;
            }
        }
        Ok(())
    }

    async fn tidy_one(&self, id: &str, now: u64) -> Result<(), Error> {
        let Some(batch) = self.batches.get(id).await? else { return Ok(self.batches.forget("", id).await?) };
        if batch.tidied {
            self.delete_below(&batch.prefix()).await?;
            self.batches.forget(&batch.spec.tenant, id).await?;
        } else {
            self.delete_below(&format!("{}parts/", batch.prefix())).await?;
            self.batches.tidied(id, batch.ended_ms.unwrap_or(now) + KEEP_MS).await?;
        }
        Ok(())
    }

    async fn delete_below(&self, prefix: &str) -> Result<(), Error> {
        loop {
            let page = self.app.objects.list(prefix, None, PAGE).await?;
            if page.objects.is_empty() {
                return Ok(());
            }
            let keys: Vec<String> = page.objects.into_iter().map(|object| object.key).collect();
            self.app.objects.delete(&keys).await?;
        }
    }
}
