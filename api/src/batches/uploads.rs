//! Limits the concurrent uploads of batch lines.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::sleep;

use crate::tenants::shares::{Share, Shares};

/// Concurrent uploads of a replica: each uses two parts of 8 MiB.
const AT_ONCE: usize = 4;

/// Interval of checks whether an upload of the same tenant has ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The uploads of a replica. A tenant gets at most half of them.
pub(crate) struct Uploads {
    permits: Semaphore,
    shares: Shares,
}

impl Default for Uploads {
    fn default() -> Self {
        Self { permits: Semaphore::new(AT_ONCE), shares: Shares::new(AT_ONCE / 2) }
    }
}

impl Uploads {
    /// Waits for the turn of a tenant's upload, which lasts until the result is dropped.
    pub(crate) async fn turn(&self, tenant: &str) -> Option<(Share, SemaphorePermit<'_>)> {
        let share = loop {
            match self.shares.take(tenant) {
                Some(share) => break share,
                None => sleep(LOOK_EVERY).await,
            }
        };
        Some((share, self.permits.acquire().await.ok()?))
    }
}
