//! Frees the numbers of unused requirement sets (`Shards::free_requirements`). One replica at a time does this.

use std::time::Duration;

use stokehold_queue::Error;
use stokehold_supervise::{BoxError, Duty};

use crate::state::App;

/// Interval between two sweeps.
const EVERY: Duration = Duration::from_secs(600);

/// Time for which a use counts after it was last recorded, milliseconds. Longer than any replica caches a number
/// without requesting it again (catalog.rs).
const IDLE_MS: u64 = 3_600_000;

/// Timeout of one sweep.
const SWEEP_MAX: Duration = Duration::from_secs(300);
const ROLE_MS: u64 = 330_000;

/// The sweep loop.
pub(crate) struct Free(pub(crate) App);

impl Duty for Free {
    const NAME: &'static str = "requirements";
    const ROUND_TIMEOUT: Duration = SWEEP_MAX;
    const INITIAL_DELAY: Duration = EVERY;
    const RETRY_DELAY: Duration = EVERY;
    const BLOCKS_READINESS: bool = false;
    /// The next sweep continues the work.
    const CANCEL_ON_SHUTDOWN: bool = true;

    async fn round(&mut self) -> Result<Duration, BoxError> {
        let sets = run_once(&self.0).await?;
        if sets > 0 {
            tracing::info!(sets, "freed the numbers of unused requirement sets");
        }
        Ok(EVERY)
    }
}

/// Runs one sweep. Returns the number of freed sets; none while another replica has the role.
async fn run_once(app: &App) -> Result<u32, Error> {
    match app.db.queue.all().first() {
        Some(first) if first.claim_role("requirements", &app.replica, ROLE_MS).await? => {
            app.db.queue.free_requirements(IDLE_MS).await
        }
        _ => Ok(0),
    }
}
