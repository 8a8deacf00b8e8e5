//! The ledger in memory, for simulations. It yields before and after each call, so that an autoscaler can be killed at
//! both points.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};

use futures::future::BoxFuture;
use stokehold_queue::registry::{Caps, Granted, MachineRecord, Term, Wanted};
use stokehold_queue::{Clock, Error};
use tokio::task::yield_now;

use super::RentalLedger;
use crate::sync::lock;

/// The records.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) term: u64,
    holder: String,
    until_ms: u64,
    pub(crate) machines: BTreeMap<String, MachineRecord>,
    pub(crate) cooldowns: HashMap<String, u64>,
    pub(crate) drains: HashMap<String, u64>,
    rents: BTreeMap<String, u64>,
}

/// The ledger in memory, see the module.
pub(crate) struct MemoryLedger {
    rows: Mutex<Rows>,
    clock: Clock,
}

impl MemoryLedger {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { rows: Mutex::default(), clock }
    }

    pub(crate) fn rows(&self) -> MutexGuard<'_, Rows> {
        lock(&self.rows)
    }

    /// Same as `lead.lua`.
    pub(crate) fn lead(&self, holder: &str, ttl_ms: u64) -> Option<Term> {
        let now_ms = self.clock.now_ms();
        let mut rows = self.rows();
        if rows.holder != holder {
            if rows.until_ms > now_ms {
                return None;
            }
            rows.holder = holder.to_owned();
            rows.term += 1;
        }
        rows.until_ms = now_ms + ttl_ms;
        Some(rows.term.into())
    }

    async fn write<T>(&self, term: Term, stale: T, write: impl FnOnce(&mut Rows) -> T) -> Result<T, Error> {
        yield_now().await;
        let answer = {
            let mut rows = self.rows();
            if term == Term::from(rows.term) { write(&mut rows) } else { stale }
        };
        yield_now().await;
        Ok(answer)
    }
}

/// Same as `rent.lua`.
fn granted(rows: &Rows, machine: &MachineRecord, caps: Caps, now_ms: u64) -> Granted {
    let (mut machines, mut spend) = (0, 0);
    for known in rows.machines.values().filter(|known| known.id != machine.id) {
        match known.wanted {
            Wanted::Stopped if known.is_done => spend += known.stopped_usd_micros_per_hour,
            Wanted::Gone if known.counted_usd_micros_per_hour() == 0 => {}
            _ => (machines, spend) = (machines + 1, spend + known.counted_usd_micros_per_hour()),
        }
    }
    if machines + 1 > u64::from(caps.machines) {
        return Granted::Machines(machines);
    }
    if machine.counted_usd_micros_per_hour() == 0 {
        return Granted::Yes;
    }
    if spend + machine.counted_usd_micros_per_hour() > caps.usd_micros_per_hour {
        return Granted::Spend(spend);
    }
    let lately = rows.rents.values().filter(|at_ms| **at_ms > now_ms.saturating_sub(caps.window_ms)).count() as u64;
    if lately >= u64::from(caps.rents) { Granted::Rents(lately) } else { Granted::Yes }
}

fn set<V>(map: &mut HashMap<String, V>, name: &str, value: Option<V>) {
    match value {
        Some(value) => drop(map.insert(name.to_owned(), value)),
        None => drop(map.remove(name)),
    }
}

impl RentalLedger for MemoryLedger {
    fn rent<'a>(&'a self, term: Term, machine: &'a MachineRecord, caps: Caps) -> BoxFuture<'a, Result<Granted, Error>> {
        Box::pin(self.write(term, Granted::Stale, move |rows| {
            let now_ms = self.clock.now_ms();
            let granted = granted(rows, machine, caps, now_ms);
            if granted == Granted::Yes {
                rows.machines.insert(machine.id.clone(), machine.clone());
                if machine.counted_usd_micros_per_hour() > 0 {
                    rows.rents.retain(|_, at_ms| *at_ms > now_ms.saturating_sub(caps.window_ms));
                    rows.rents.insert(machine.id.clone(), now_ms);
                }
            }
            granted
        }))
    }

    fn put_machine<'a>(&'a self, term: Term, machine: &'a MachineRecord) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(self.write(term, false, move |rows| {
            rows.machines.insert(machine.id.clone(), machine.clone());
            true
        }))
    }

    fn drop_machine<'a>(&'a self, term: Term, id: &'a str) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(self.write(term, false, move |rows| {
            rows.machines.remove(id);
            rows.drains.remove(id);
            true
        }))
    }

    fn drain<'a>(&'a self, term: Term, worker: &'a str, since_ms: Option<u64>) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(self.write(term, false, move |rows| {
            set(&mut rows.drains, worker, since_ms);
            true
        }))
    }

    fn cool_down<'a>(&'a self, term: Term, host: &'a str, until_ms: u64) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(self.write(term, false, move |rows| {
            set(&mut rows.cooldowns, host, (until_ms > 0).then_some(until_ms));
            true
        }))
    }

    fn drop_workers<'a>(&'a self, ids: &'a [&'a str]) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            yield_now().await;
            // The simulation has no records of workers.
            let _ = ids;
            Ok(())
        })
    }
}
