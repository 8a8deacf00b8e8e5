//! The shard of each tenant. It is drawn once and then kept in the registry. Added shards take new tenants and move no
//! existing ones, because a tenant's limits, schedules, batches and idempotency keys would have to move as well.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::registry::Registry;

/// Number of tenants that are cached; beyond it the cache is cleared.
const REMEMBERED_MAX: usize = 100_000;

pub(super) struct TenantShards {
    registry: Registry,
    shards: u8,
    known: RwLock<HashMap<String, u8>>,
}

impl TenantShards {
    /// Records the number of shards. Fewer than before are rejected, because jobs on the missing shards would be
    /// unreachable.
    pub(super) async fn open(registry: Registry, shards: u8) -> Result<Self, Error> {
        if let Some(backup) = registry.restoring().await? {
            return Err(Error::half(&backup));
        }
        let before = registry.raise_shards(shards).await?;
        if before > shards {
            return Err(Error::Unfit(format!(
                "this queue has {before} shards, but shards is {shards} (STOKE_REDIS_SHARDS); shards can be added but not removed"
            )));
        }
        Ok(Self { registry, shards, known: RwLock::default() })
    }

    pub(super) async fn of(&self, tenant: &str) -> Result<u8, Error> {
        if let Some(home) = self.known.read().unwrap_or_else(PoisonError::into_inner).get(tenant) {
            return Ok(*home);
        }
        let home = self.registry.home(tenant, draw(tenant, self.shards)).await?;
        if home >= self.shards {
            return Err(Error::no_shard(home));
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(tenant.to_owned(), home);
        Ok(home)
    }
}

/// Chooses a shard by jump consistent hashing (Lamping and Veach, 2014). Shards get equal numbers of tenants. If the
/// registry loses a tenant's shard in a failover, the same one is chosen again.
fn draw(tenant: &str, shards: u8) -> u8 {
    let digest = Sha256::digest(tenant.as_bytes());
    let mut key = digest[..8].iter().fold(0, |key, byte| (key << 8) | u64::from(*byte));
    let (mut home, mut next) = (0, 0);
    while next < u64::from(shards) {
        home = next;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        // floor((home + 1) * 2^31 / ((key >> 33) + 1))
        next = ((home + 1) << 31) / ((key >> 33) + 1);
    }
    u8::try_from(home).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_are_spread_evenly_and_more_shards_move_few() {
        let tenants: Vec<String> = (0..10_000).map(|n| format!("tenant-{n}")).collect();
        let on = |shards: u8| tenants.iter().map(move |tenant| draw(tenant, shards));
        for shards in [1, 3, 64] {
            let mut count = vec![0_u32; usize::from(shards)];
            on(shards).for_each(|home| count[usize::from(home)] += 1);
            let fair = 10_000 / u32::from(shards);
            assert!(count.iter().all(|count| count.abs_diff(fair) < fair / 2 + 1), "{count:?}");
        }
        let moved = on(3).zip(on(4)).filter(|(before, after)| before != after).count();
        assert!((2_000..3_000).contains(&moved), "a quarter: {moved}");
        assert!(on(3).zip(on(4)).all(|(before, after)| before == after || after == 3), "only to the new shard");
    }
}
