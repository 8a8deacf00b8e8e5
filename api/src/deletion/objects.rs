//! Stored objects of versions: packages and uploaded weights. An object is deleted with the last version of its tenant
//! that names it; `crates/queue/src/registry/deletions.rs` describes how a concurrent deploy of it is handled.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use stokehold_objects::Objects;
use stokehold_queue::failpoint;
use tokio::time::{sleep, timeout};

use super::Error;
use crate::database::Database;
use crate::object_keys::{package_key, weights_key};

/// Objects that one claim covers.
const CLAIM_MAX: usize = 100;

/// Duration of a claim, and the part of it within which its objects are deleted.
const CLAIM_FOR: Duration = Duration::from_secs(120);
const SWEEP_MAX: Duration = Duration::from_secs(60);

/// Time for which an object is not deleted after a client asked whether it is stored: it is about to deploy it.
const KEPT_FOR: Duration = Duration::from_secs(3600);

/// Interval and number of checks whether an object is still being deleted.
const WAIT: Duration = Duration::from_millis(100);
const WAITS: usize = 50;

const HEADS_AT_ONCE: usize = 16;

/// Deletes those of a tenant's orphans that no version names. Returns their size in bytes.
pub(crate) async fn sweep(db: &Database, objects: &Objects, tenant: &str, orphans: &[String]) -> Result<u64, Error> {
    let mut freed = 0;
    for orphans in orphans.chunks(CLAIM_MAX) {
        // After the timeout, the claim lasts for as long again: a request that was sent has its effect by then.
        let swept = timeout(SWEEP_MAX, sweep_some(db, objects, tenant, orphans)).await;
        freed += swept.map_err(|_| Error::Timeout)??;
    }
    Ok(freed)
}

async fn sweep_some(db: &Database, objects: &Objects, tenant: &str, orphans: &[String]) -> Result<u64, Error> {
    let claim_ms = u64::try_from(CLAIM_FOR.as_millis()).unwrap_or(u64::MAX);
    let claim = db.registry.claim_orphans(tenant, orphans, claim_ms).await?;
    if claim.objects.is_empty() {
        return Ok(0);
    }
    failpoint::reach("deletion.claimed").await;
    let named = db.registry.named_objects(tenant).await?;
    let keys: Vec<String> = claim
        .objects
        .iter()
        .filter(|object| !named.contains_key(*object))
        .filter_map(|object| key_of(tenant, object))
        .collect();
    let freed = size_of(objects, &keys).await?;
    if !keys.is_empty() {
        objects.delete(&keys).await?;
    }
    failpoint::reach("deletion.swept").await;
    db.registry.end_claim(tenant, &claim, !keys.is_empty()).await?;
    Ok(freed)
}

/// Size of those of these objects that are stored, bytes.
pub(crate) async fn size_of(objects: &Objects, keys: &[String]) -> Result<u64, Error> {
    // Collected, because the compiler cannot check a borrowing stream of borrowing futures.
    let heads: Vec<_> = keys
        .iter()
        .map(|key| {
            let (objects, key) = (objects.clone(), key.clone());
            async move { Ok::<_, Error>(objects.head(&key).await?.map_or(0, |object| object.size_bytes)) }
        })
        .collect();
    let sizes: Vec<u64> = futures::stream::iter(heads).buffer_unordered(HEADS_AT_ONCE).try_collect().await?;
    Ok(sizes.into_iter().fold(0, u64::saturating_add))
}

/// Size of the objects that only the versions for which `goes` holds name, bytes.
pub(crate) async fn size_without(db: &Database, tenant: &str, goes: impl Fn(&str, u32) -> bool) -> Result<u64, Error> {
    let alone = db.registry.named_only_by(tenant, goes).await?;
    Ok(alone.into_values().fold(0, u64::saturating_add))
}

/// Returns whether an object of this size is stored, and defers its deletion for an hour: the caller is about to deploy
/// a version that names it.
pub(crate) async fn is_stored(
    db: &Database,
    objects: &Objects,
    tenant: &str,
    object: &str,
    size_bytes: u64,
) -> Result<bool, Error> {
    let Some(key) = key_of(tenant, object) else { return Ok(false) };
    let kept_ms = u64::try_from(KEPT_FOR.as_millis()).unwrap_or(u64::MAX);
    for _ in 0..WAITS {
        let keep = || db.registry.keep_object(tenant, object, kept_ms);
        if db.ask_again("defer the deletion of an object", keep).await? {
            return Ok(objects.head(&key).await?.is_some_and(|stored| stored.size_bytes == size_bytes));
        }
        sleep(WAIT).await;
    }
    Err(Error::Busy)
}

/// Waits before a deploy looks for its objects again, because some were deleted meanwhile.
///
/// # Errors
/// [`Error::Busy`] after several `attempts`.
pub(crate) async fn wait(attempts: usize) -> Result<(), Error> {
    if attempts >= WAITS {
        return Err(Error::Busy);
    }
    sleep(WAIT).await;
    Ok(())
}

/// The key of an object in the store; `None` for a kind of a newer release.
fn key_of(tenant: &str, object: &str) -> Option<String> {
    match object.split_once('/')? {
        ("packages", sha256) => Some(package_key(tenant, sha256)),
        ("weights", sha256) => Some(weights_key(tenant, sha256)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_below_its_tenant() {
        assert_eq!(key_of("acme", "packages/00").as_deref(), Some("packages/acme/00.tar.gz"));
        assert_eq!(key_of("acme", "weights/00").as_deref(), Some("weights/acme/00"));
        assert_eq!(key_of("acme", "others/00"), None);
    }
}
