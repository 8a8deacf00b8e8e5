//! A provider with planted bugs.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use stokehold_planner::observation::Offer;
use stokehold_planner::snapshot::Needs;
use stokehold_queue::registry::{MachineRecord, Wanted};
use stokehold_units::UsdMicros;

use super::is;
use crate::provider::{Charge, Order, Provider, ProviderError, Rental, RentalState, in_time};
use crate::rental_ledger::memory::MemoryLedger;
use crate::sync::lock;

/// State that planted bugs of all autoscalers of one simulation share.
#[derive(Default)]
pub(in super::super) struct Shared {
    /// Rentals for which a destroy was sent.
    destroyed: Mutex<BTreeSet<String>>,
    /// Rentals that were listed as taken away while they should have run.
    outbid: Mutex<BTreeSet<String>>,
}

pub(super) struct PlantedProvider {
    inner: Arc<dyn Provider>,
    ledger: Arc<MemoryLedger>,
    shared: Arc<Shared>,
}

impl PlantedProvider {
    pub(super) fn new(inner: Arc<dyn Provider>, ledger: Arc<MemoryLedger>, shared: Arc<Shared>) -> Self {
        Self { inner, ledger, shared }
    }

    /// The machine of a rental, as the ledger has it.
    fn machine(&self, rental: &Rental) -> Option<MachineRecord> {
        let rows = self.ledger.rows();
        let is_it = |machine: &&MachineRecord| {
            machine.id == rental.label || machine.rental.as_deref() == Some(rental.id.as_str())
        };
        rows.machines.values().find(is_it).cloned()
    }

    /// Lists rentals as running that were taken away.
    fn hide_outbid(&self, rental: &mut Rental) {
        let is_away = matches!(rental.state, RentalState::Lost | RentalState::Stopped | RentalState::Broken);
        let should_run = self.machine(rental).is_some_and(|it| it.is_done && it.wanted == Wanted::Running);
        if is_away && should_run {
            lock(&self.shared.outbid).insert(rental.id.clone());
            rental.state = RentalState::Running;
        }
    }

    /// Whether a destroy is lost.
    fn is_swallowed(&self, rental: &str) -> bool {
        let is_repeated = !lock(&self.shared.destroyed).insert(rental.to_owned());
        is("destroy-asked-once") && is_repeated || is("outbid-kept") && lock(&self.shared.outbid).contains(rental)
    }
}

impl Provider for PlantedProvider {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn offers(&self) -> BoxFuture<'_, Result<Vec<Offer>, ProviderError>> {
        self.inner.offers()
    }

    fn rentals(&self) -> BoxFuture<'_, Result<Option<Vec<Rental>>, ProviderError>> {
        Box::pin(async {
            let mut listed = self.inner.rentals().await?;
            if let Some(rentals) = &mut listed {
                if is("strangers-kept") {
                    rentals.retain(|rental| self.machine(rental).is_some());
                }
                if is("outbid-kept") {
                    rentals.iter_mut().for_each(|rental| self.hide_outbid(rental));
                }
            }
            Ok(listed)
        })
    }

    fn rent<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<String, ProviderError>> {
        if !is("unknown-is-failed") {
            return self.inner.rent(order);
        }
        Box::pin(async {
            match in_time(&*self.inner, self.inner.rent(order)).await {
                Err(ProviderError::Unknown(why)) => Err(ProviderError::Refused(why)),
                answer => answer,
            }
        })
    }

    fn price<'a>(&'a self, rental: &'a str) -> BoxFuture<'a, Result<Option<UsdMicros>, ProviderError>> {
        self.inner.price(rental)
    }

    fn stop<'a>(&'a self, rental: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
        self.inner.stop(rental)
    }

    fn resume<'a>(&'a self, rental: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
        self.inner.resume(rental)
    }

    fn release<'a>(&'a self, rental: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
        Box::pin(async move {
            if self.is_swallowed(rental) {
                return Ok(());
            }
            let answer = self.inner.release(rental).await;
            if is("destroy-believed") {
                self.ledger.rows().machines.retain(|_, machine| machine.rental.as_deref() != Some(rental));
            }
            answer
        })
    }

    fn charges(&self, since_s: u64) -> BoxFuture<'_, Result<Option<Vec<Charge>>, ProviderError>> {
        self.inner.charges(since_s)
    }

    fn charges_settle_after(&self) -> Duration {
        self.inner.charges_settle_after()
    }

    fn charges_boots(&self) -> bool {
        self.inner.charges_boots()
    }

    fn credit(&self) -> BoxFuture<'_, Result<Option<UsdMicros>, ProviderError>> {
        self.inner.credit()
    }

    fn label(&self, offer: &Offer, taken: &BTreeSet<String>) -> String {
        self.inner.label(offer, taken)
    }

    fn adopts(&self, worker: &str) -> Option<Offer> {
        self.inner.adopts(worker)
    }

    fn call_limit(&self) -> Duration {
        self.inner.call_limit()
    }

    fn join_limit(&self) -> Duration {
        self.inner.join_limit()
    }

    fn settles_after(&self) -> Duration {
        self.inner.settles_after()
    }

    fn keeps_list(&self) -> bool {
        self.inner.keeps_list()
    }

    fn leave(&self) -> BoxFuture<'_, ()> {
        self.inner.leave()
    }

    fn avoid(&self, hosts: &BTreeSet<String>) {
        self.inner.avoid(hosts);
    }

    fn look_for(&self, needs: &[Needs]) {
        self.inner.look_for(needs);
    }

    fn takes_join_token(&self) -> bool {
        self.inner.takes_join_token()
    }

    fn leaves_with_us(&self) -> bool {
        self.inner.leaves_with_us()
    }
}
