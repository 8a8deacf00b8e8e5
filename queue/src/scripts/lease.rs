use serde_json::value::RawValue;

use super::{LEASE, unexpected};
use crate::clock::Clock;
use crate::connection::Connection;
use crate::error::Error;
use crate::id::{Fence, nonce};
use crate::keys::Keys;
use crate::queue::{Lease, LeaseQuery, WarmLane};
use crate::stored_spec;

/// Call of `lease.lua`.
pub(crate) struct TakeLeases<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) clock: &'a Clock,
    pub(crate) lease_ms: u64,
    pub(crate) age_after_ms: u64,
    pub(crate) query: &'a LeaseQuery,
}

impl TakeLeases<'_> {
    pub(crate) async fn run(&self, connection: &Connection) -> Result<Vec<Lease>, Error> {
        loop {
            let mut reply = self.once(connection).await?.into_iter();
            match reply.next().as_deref() {
                Some("ok") => return decode(reply),
                // Each such call clears what was in the way, so that this ends.
                Some("again") => {}
                word => return Err(unexpected(&LEASE, &word)),
            }
        }
    }

    async fn once(&self, connection: &Connection) -> Result<Vec<String>, Error> {
        let query = self.query;
        let waiter = query.park.as_ref().map_or(String::new(), |waiter| waiter.listed(&query.reach));
        let mut call = LEASE.call(&[self.keys.root()]);
        call.arg(self.clock.script_arg()).arg(&query.worker_id).arg(query.want).arg(query.reach.to_string());
        call.arg(self.lease_ms).arg(nonce()).arg(waiter).arg(self.age_after_ms);
        let warm: Vec<String> = query.warm.iter().map(WarmLane::to_string).collect();
        call.arg(query.rank).arg(query.patience_ms).arg(warm.join(" "));
        call.arg(query.only.map_or(String::new(), |class| class.to_string()));
        connection.eval(&LEASE, &call).await
    }
}

fn decode(mut parts: impl Iterator<Item = String>) -> Result<Vec<Lease>, Error> {
    let mut leases = Vec::new();
    while let Some(id) = parts.next() {
        let lease = (|| {
            let (lane, spec, input) = (parts.next()?, parts.next()?, parts.next()?);
            let (attempt, fence, queued_ms) = (parts.next()?, parts.next()?, parts.next()?);
            Some(Lease {
                job_id: id.parse().ok()?,
                spec: stored_spec::decode(&lane, &spec).ok()?,
                input: RawValue::from_string(input).ok()?,
                attempt: attempt.parse().ok()?,
                fence: Fence(fence),
                queued_ms: queued_ms.parse().ok()?,
            })
        })();
        leases.push(lease.ok_or_else(|| unexpected(&LEASE, &id))?);
    }
    Ok(leases)
}
