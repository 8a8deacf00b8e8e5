//! A ledger with planted bugs.

use std::sync::Arc;

use futures::future::BoxFuture;
use stokehold_planner::observation::Offer;
use stokehold_queue::Error;
use stokehold_queue::registry::{Caps, Granted, MachineRecord, Term, Wanted};

use super::is;
use crate::provider::{Order, Provider};
use crate::rental_ledger::RentalLedger;
use crate::rental_ledger::memory::MemoryLedger;
use crate::secret::Secret;

pub(super) struct PlantedLedger {
    inner: Arc<MemoryLedger>,
    provider: Arc<dyn Provider>,
}

impl PlantedLedger {
    pub(super) fn new(inner: Arc<MemoryLedger>, provider: Arc<dyn Provider>) -> Self {
        Self { inner, provider }
    }

    /// The term that a write uses: the current one if the bug lets old terms write.
    fn term(&self, term: Term) -> Term {
        if is("old-term-writes") { self.inner.rows().term.into() } else { term }
    }

    /// The limits without the part that the planted bug does not count.
    fn caps(&self, caps: Caps) -> Caps {
        if is("limits-ignored") {
            return Caps { machines: u32::MAX, usd_micros_per_hour: u64::MAX, rents: u32::MAX, ..caps };
        }
        if is("given-back-not-counted") {
            let rows = self.inner.rows();
            let given_back = rows.machines.values().filter(|machine| machine.wanted == Wanted::Gone);
            return given_back.fold(caps, |caps, machine| Caps {
                machines: caps.machines + 1,
                usd_micros_per_hour: caps.usd_micros_per_hour + machine.counted_usd_micros_per_hour(),
                ..caps
            });
        }
        caps
    }

    /// Makes the provider create a machine before it is written to the ledger.
    async fn rent_early(&self, machine: &MachineRecord) {
        let (offer, _) = Offer::recovered(&machine.offer);
        let bid_usd_per_hour = machine.is_interruptible.then(|| machine.usd_micros_per_hour.into());
        let order = Order { label: machine.id.clone(), offer, bid_usd_per_hour, join_token: Secret::new("jt_storm") };
        drop(self.provider.rent(&order).await);
    }
}

impl RentalLedger for PlantedLedger {
    fn rent<'a>(&'a self, term: Term, machine: &'a MachineRecord, caps: Caps) -> BoxFuture<'a, Result<Granted, Error>> {
        Box::pin(async move {
            if is("rent-before-intent") && machine.rental.is_none() {
                self.rent_early(machine).await;
            }
            self.inner.rent(self.term(term), machine, self.caps(caps)).await
        })
    }

    fn put_machine<'a>(&'a self, term: Term, machine: &'a MachineRecord) -> BoxFuture<'a, Result<bool, Error>> {
        if is("destroy-believed") && machine.wanted == Wanted::Gone && machine.is_done {
            return self.drop_machine(term, &machine.id);
        }
        self.inner.put_machine(self.term(term), machine)
    }

    fn drop_machine<'a>(&'a self, term: Term, id: &'a str) -> BoxFuture<'a, Result<bool, Error>> {
        self.inner.drop_machine(self.term(term), id)
    }

    fn drain<'a>(&'a self, term: Term, worker: &'a str, since_ms: Option<u64>) -> BoxFuture<'a, Result<bool, Error>> {
        self.inner.drain(self.term(term), worker, since_ms)
    }

    fn cool_down<'a>(&'a self, term: Term, host: &'a str, until_ms: u64) -> BoxFuture<'a, Result<bool, Error>> {
        if is("host-not-shunned") {
            return Box::pin(async { Ok(true) });
        }
        self.inner.cool_down(self.term(term), host, until_ms)
    }

    fn drop_workers<'a>(&'a self, ids: &'a [&'a str]) -> BoxFuture<'a, Result<(), Error>> {
        self.inner.drop_workers(ids)
    }
}
