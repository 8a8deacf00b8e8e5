//! Leases from several shards: queried in turn, with the waiter parked on each.

use std::sync::atomic::Ordering;

use futures::future::{join_all, try_join_all};

use super::{NOBODY, Shards};
use crate::capability::Capability;
use crate::error::Error;
use crate::queue::{Lease, LeaseQuery, Queue, Waiter};
use crate::redis_queue::RedisQueue;

impl Shards {
    /// The shards in the order in which this call queries them.
    fn in_turn(&self) -> impl Iterator<Item = &RedisQueue> {
        let shards = self.all();
        let first = match self.0.woken.swap(NOBODY, Ordering::Relaxed) {
            NOBODY => self.0.turn.fetch_add(1, Ordering::Relaxed),
            woken => woken,
        };
        (0..shards.len()).map(move |step| &shards[(first + step) % shards.len()])
    }

    /// Queries one shard after the other until there are enough leases. The waiter is parked on every shard that had no
    /// job, unless another one had some.
    pub(super) async fn pull(&self, query: &LeaseQuery) -> Result<Vec<Lease>, Error> {
        let (mut leases, mut parked, mut is_full) = (Vec::new(), Vec::new(), false);
        let mut outcome = Err(Error::away());
        let taken = self.taken(query).await?;
        for shard in self.in_turn().filter(|shard| shard.is_up()) {
            let want = query.want.saturating_sub(u32::try_from(leases.len()).unwrap_or(u32::MAX));
            let park = query.park.clone().filter(|_| leases.is_empty());
            let parks = park.is_some();
            let bytes: usize = leases.iter().map(|lease: &Lease| lease.input.get().len()).sum();
            let max_bytes = query.max_bytes.saturating_sub(bytes);
            let elsewhere = taken.iter().filter(|(number, _)| *number != shard.number()).map(|(_, parts)| parts);
            let granted: u64 = leases.iter().map(|lease| lease.spec.part()).sum();
            let taken_elsewhere = query.taken_elsewhere + elsewhere.sum::<u64>() + granted;
            match shard.lease(LeaseQuery { want, park, max_bytes, taken_elsewhere, ..query.clone() }).await {
                Ok(more) => {
                    if more.is_empty() && parks {
                        parked.push(shard);
                    }
                    leases.extend(more);
                    outcome = Ok(());
                }
                Err(Error::Full) => is_full = true,
                // The leases that other shards have granted must reach the worker.
                Err(error) => outcome = outcome.or(Err(error)),
            }
            let bytes: usize = leases.iter().map(|lease| lease.input.get().len()).sum();
            if leases.len() >= query.want as usize || (!leases.is_empty() && bytes >= query.max_bytes) {
                break;
            }
        }
        if let Some(waiter) = query.park.as_ref().filter(|_| is_full || !leases.is_empty()) {
            self.leave(waiter, &query.reach, parked.into_iter()).await;
        }
        if is_full && leases.is_empty() {
            return Err(Error::Full);
        }
        outcome.map(|()| leases)
    }

    /// The parts of its slots that the worker's leases take on each reachable shard; empty if its leases are not
    /// limited.
    async fn taken(&self, query: &LeaseQuery) -> Result<Vec<(u8, u64)>, Error> {
        if query.slots.is_none() {
            return Ok(Vec::new());
        }
        let asked = self.all().iter().filter(|shard| shard.is_up());
        let ask = |shard: &'_ RedisQueue| {
            let (shard, worker_id) = (shard.clone(), query.worker_id.clone());
            async move { Ok((shard.number(), shard.taken(&worker_id).await?)) }
        };
        try_join_all(asked.map(ask)).await
    }

    /// Removes a waiter from the lists of these shards. A wakeup that crosses this finds no waiter and is passed on.
    async fn leave(&self, waiter: &Waiter, reach: &Capability, shards: impl Iterator<Item = &RedisQueue>) {
        for outcome in join_all(shards.map(|shard| shard.unpark(waiter, reach))).await {
            if let Err(error) = outcome {
                tracing::debug!(%error, "a lease poll stays parked on a shard; its wakeup will be passed on");
            }
        }
    }
}
