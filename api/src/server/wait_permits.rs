//! Permits for requests that wait: for the end of a job, for an event, or for a job to lease.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::{Code, Problem};
use crate::tenants::shares::{Share, Shares};

/// The permits of a replica. Workers have permits of their own, so clients cannot use them up.
pub(crate) struct WaitPermits {
    requests: Arc<Semaphore>,
    shares: Shares,
    polls: Arc<Semaphore>,
}

/// A permit to hold a request open, until it is dropped.
pub(crate) struct WaitPermit(#[expect(dead_code, reason = "kept until it is dropped")] (OwnedSemaphorePermit, Share));

impl WaitPermits {
    /// Creates `most` permits for clients, and as many for workers. A tenant gets at most half of the clients' permits.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            requests: Arc::new(Semaphore::new(most)),
            shares: Shares::new(most / 2),
            polls: Arc::new(Semaphore::new(most)),
        }
    }

    /// Takes a permit to hold one request of a tenant open.
    pub(crate) fn take(&self, tenant: &str) -> Result<WaitPermit, Problem> {
        let permit = self.requests.clone().try_acquire_owned().ok();
        permit.zip(self.shares.take(tenant)).map(WaitPermit).ok_or_else(too_many)
    }

    /// Takes a permit for a worker to wait for jobs.
    pub(crate) fn take_poll(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.polls.clone().try_acquire_owned().map_err(|_| too_many())
    }
}

fn too_many() -> Problem {
    Problem::new(Code::RateLimited, "too many requests are waiting on this replica; repeat the request without waiting")
}
