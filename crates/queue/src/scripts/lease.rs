use serde_json::value::RawValue;

use super::{LEASE, Put, unexpected};
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
                Some("ok") => {
                    let is_empty = reply.len() == 0;
                    let leases = self.decode(reply, connection).await;
                    // None of the leases could be read: no waiter is parked, and there may be more jobs.
                    if is_empty || !leases.is_empty() {
                        return Ok(leases);
                    }
                }
                Some("full") => return Err(Error::Full),
                // Each such call removes entries that were skipped, so the loop ends.
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
        call.arg(query.only.map_or(String::new(), |class| class.to_string())).arg(query.max_bytes);
        call.arg(query.slots.map_or(String::new(), |slots| slots.to_string())).arg(query.taken_elsewhere);
        connection.eval(&LEASE, &call).await
    }

    /// Decodes the leases of a reply. A job that cannot be read goes to the quarantine, and the others to the worker.
    /// Otherwise all of them would wait for their leases to expire, and would be leased together again.
    async fn decode(&self, mut parts: impl Iterator<Item = String>, connection: &Connection) -> Vec<Lease> {
        let mut leases = Vec::new();
        while let Some(id) = parts.next() {
            match decode(&id, parts.by_ref().take(LEASE_PARTS).collect()) {
                Ok(lease) => leases.push(lease),
                Err(why) => {
                    tracing::error!(job.id = %id, why, "a leased job cannot be read; moving it to the quarantine");
                    let put = Put { keys: self.keys, clock: self.clock, id: &id, why: &why };
                    // The others must reach the worker. The lease of this one expires, and it is found again.
                    if let Err(error) = put.run(connection).await {
                        tracing::warn!(error = &error as &dyn std::error::Error, "it stays in place for now");
                    }
                }
            }
        }
        leases
    }
}

/// Number of parts of the reply that form one lease, after its id.
const LEASE_PARTS: usize = 7;

fn decode(id: &str, parts: Vec<String>) -> Result<Lease, String> {
    let [lane, spec, input, attempt, fence, queued_ms, behind] =
        <[String; LEASE_PARTS]>::try_from(parts).map_err(|parts| format!("{} parts are not a lease", parts.len()))?;
    Ok(Lease {
        job_id: id.parse().map_err(|_| "its id cannot be read".to_owned())?,
        spec: stored_spec::decode(&lane, &spec).map_err(|why| format!("the field \"spec\" cannot be read: {why}"))?,
        input: RawValue::from_string(input).map_err(|why| format!("the field \"input\" cannot be read: {why}"))?,
        attempt: attempt.parse().map_err(|_| "the field \"attempt\" cannot be read".to_owned())?,
        fence: Fence(fence),
        queued_ms: queued_ms.parse().map_err(|_| "the field \"entry\" cannot be read".to_owned())?,
        behind: behind.parse().map_err(|_| "the number of jobs left in its lane cannot be read".to_owned())?,
    })
}
