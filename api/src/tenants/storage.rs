//! Storage used by a tenant: uploaded files, packages and weights. It is checked before an upload URL is issued,
//! against the bucket's listing and the uploads announced since.
//!
//! The listing is up to a minute old. Therefore an upload announced in that minute is counted even if it never arrives,
//! and a deletion on another replica is visible a minute later. A URL that was issued earlier and is used later is counted with the next
//! listing, so a limit may be exceeded by that amount.

use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use stokehold_objects::{Error as ObjectsError, Objects};
use stokehold_queue::now_ms;
use tokio::sync::Mutex;

use crate::database;
use crate::database::Database;
use crate::tenants::Tenants;

/// Cache time of a listing.
const LISTED_FOR: Duration = Duration::from_secs(60);

/// Maximum number of pages of 1,000 objects that are read. The objects of a tenant beyond these are not counted.
const PAGES_MAX: usize = 1_000;

const MINUTE_MS: u64 = 60_000;

/// Reasons for which storage was not reserved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The registry failed.
    #[error(transparent)]
    Database(#[from] database::Error),
    /// The object store failed.
    #[error(transparent)]
    Objects(#[from] ObjectsError),
    /// The tenant's limit would be exceeded.
    #[error(
        "this would add {bytes} bytes: tenant {tenant:?} stores {stored} and may store {most}; nothing was accepted. \
            Delete data, or ask the operator to raise max_storage_bytes"
    )]
    Exceeded {
        /// The tenant's name.
        tenant: String,
        /// The size of the upload.
        bytes: u64,
        /// The bytes that the tenant stores.
        stored: u64,
        /// The tenant's limit.
        most: u64,
    },
}

/// Storage used by each tenant that has a limit.
pub(crate) struct Storage {
    db: Arc<Database>,
    objects: Arc<Objects>,
    tenants: Arc<Tenants>,
    /// Listed bytes, and the minute of the listing since 1970.
    listed: Cache<String, (u64, u64)>,
    /// Held while listing, so that concurrent requests cause one listing.
    listing: Mutex<()>,
}

impl Storage {
    pub(crate) fn new(db: Arc<Database>, objects: Arc<Objects>, tenants: Arc<Tenants>) -> Self {
        let listed = Cache::builder().max_capacity(10_000).time_to_live(LISTED_FOR).build();
        Self { db, objects, tenants, listed, listing: Mutex::new(()) }
    }

    /// Reserves storage for a tenant's upload, unless that exceeds its limit.
    pub(crate) async fn reserve(&self, tenant: &str, bytes: u64) -> Result<(), Error> {
        let Some(most) = self.tenants.get(tenant).await?.quotas.max_storage_bytes else { return Ok(()) };
        let (minute, listed) = self.used(tenant).await?;
        let signed = i64::try_from(bytes).unwrap_or(i64::MAX);
        let announce = |bytes| self.db.registry.announce(tenant, (now_ms() / MINUTE_MS, bytes), minute);
        let announced = self.db.ask("reserve storage for an upload", announce(signed)).await?;
        let stored = listed.saturating_add(announced);
        if stored <= most {
            return Ok(());
        }
        // If this fails, the upload's bytes stay counted for a minute.
        let _ = self.db.ask("release the storage reserved for an upload", announce(-signed)).await?;
        Err(Error::Exceeded { tenant: tenant.to_owned(), bytes, stored: stored.saturating_sub(bytes), most })
    }

    /// Discards the listing of a tenant after its data was deleted on this replica.
    pub(crate) fn shrunk(&self, tenant: &str) {
        self.listed.invalidate(tenant);
    }

    /// Bytes that a tenant stores, up to a minute old, and the minute of that listing.
    pub(crate) async fn used(&self, tenant: &str) -> Result<(u64, u64), Error> {
        if let Some(listed) = self.listed.get(tenant) {
            return Ok(listed);
        }
        let _one_at_a_time = self.listing.lock().await;
        if let Some(listed) = self.listed.get(tenant) {
            return Ok(listed);
        }
        let (minute, mut bytes) = (now_ms() / MINUTE_MS, 0_u64);
        for kind in ["inputs", "packages", "weights"] {
            let (prefix, mut cursor) = (format!("{kind}/{tenant}/"), None);
            for _ in 0..PAGES_MAX {
                let page = self.objects.list(&prefix, cursor.as_deref(), 1_000).await?;
                bytes = page.objects.iter().fold(bytes, |sum, object| sum.saturating_add(object.size_bytes));
                cursor = page.next_cursor;
                if cursor.is_none() {
                    break;
                }
            }
        }
        self.listed.insert(tenant.to_owned(), (minute, bytes));
        Ok((minute, bytes))
    }
}
