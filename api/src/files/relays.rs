//! Permits of the uploads that go through this replica.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::tenants::shares::{Share, Shares};

/// Uploads that a replica relays concurrently, and those of one tenant among them. Each holds up to two parts of 8 MiB.
const UPLOADS_MAX: usize = 16;
const UPLOADS_OF_TENANT_MAX: usize = 8;

/// The permits of a replica.
pub(crate) struct Relays {
    all: Arc<Semaphore>,
    shares: Shares,
}

/// A permit to relay one upload, until it is dropped.
pub(crate) struct Relay(#[expect(dead_code, reason = "kept until it is dropped")] (OwnedSemaphorePermit, Share));

impl Relays {
    pub(crate) fn new() -> Self {
        Self { all: Arc::new(Semaphore::new(UPLOADS_MAX)), shares: Shares::new(UPLOADS_OF_TENANT_MAX) }
    }

    /// Takes a permit for an upload of a tenant; `None` when there are too many.
    pub(crate) fn take(&self, tenant: &str) -> Option<Relay> {
        self.all.clone().try_acquire_owned().ok().zip(self.shares.take(tenant)).map(Relay)
    }
}
