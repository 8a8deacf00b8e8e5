//! Providers of machines. Every call has a timeout. The error of a call includes what the call may have left behind.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::BoxFuture;
use stokehold_planner::observation::{Offer, Traits};
use stokehold_planner::snapshot::Needs;
use stokehold_queue::nonce;
use stokehold_units::UsdMicros;

use crate::secret::Secret;

/// A provider of machines.
///
/// The caller writes its intent to the ledger before each call. A call without a response in time has an unknown
/// outcome: it may have been carried out, or may still be. A rent is never repeated to find out; a machine is
/// recognized by its label.
pub trait Provider: Send + Sync {
    /// Name of the provider, as in [`Offer::provider`].
    fn name(&self) -> &'static str;

    /// Lists the offers that can be rented now.
    fn offers(&self) -> BoxFuture<'_, Result<Vec<Offer>, ProviderError>>;

    /// Lists all rentals of this installation, identified by their labels. Fails unless every page was read. `None`:
    /// the provider keeps no list, and the ledger is the only record.
    fn rentals(&self) -> BoxFuture<'_, Result<Option<Vec<Rental>>, ProviderError>>;

    /// Rents a machine. Returns the provider's ID of it.
    fn rent<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<String, ProviderError>>;

    /// Price per hour of a machine that was just rented. `None`: the provider does not report it at once; its
    /// list may.
    fn price<'a>(&'a self, _rental: &'a str) -> BoxFuture<'a, Result<Option<UsdMicros>, ProviderError>> {
        Box::pin(async { Ok(None) })
    }

    /// Gives back the GPUs of a machine and keeps its disk. Idempotent.
    fn stop<'a>(&'a self, rental: &'a str) -> BoxFuture<'a, Result<(), ProviderError>>;

    /// Starts a stopped machine again if its GPUs are free.
    fn resume<'a>(&'a self, rental: &'a str) -> BoxFuture<'a, Result<(), ProviderError>>;

    /// Gives a machine back for good. Idempotent; succeeds if the machine does not exist.
    fn release<'a>(&'a self, rental: &'a str) -> BoxFuture<'a, Result<(), ProviderError>>;

    /// Charges for rentals since a moment in unix seconds, including rentals that have ended. Fails unless all charges
    /// were read. `None`: the provider sends no bills.
    fn charges(&self, _since_s: u64) -> BoxFuture<'_, Result<Option<Vec<Charge>>, ProviderError>> {
        Box::pin(async { Ok(None) })
    }

    /// Time after the end of a machine at which its charges are final.
    fn charges_settle_after(&self) -> Duration {
        Duration::from_secs(600)
    }

    /// Whether GPUs are charged while a machine boots. Otherwise only its disk is.
    fn charges_boots(&self) -> bool {
        true
    }

    /// Remaining credit at the provider; may be negative. `None`: the provider is not prepaid.
    fn credit(&self) -> BoxFuture<'_, Result<Option<UsdMicros>, ProviderError>> {
        Box::pin(async { Ok(None) })
    }

    /// Chooses the ID of a new machine of an offer, different from the IDs in `_taken`.
    fn label(&self, _offer: &Offer, _taken: &BTreeSet<String>) -> String {
        format!("m-{}", nonce())
    }

    /// Returns the offer behind a worker of this name if it runs on a machine of the provider that something else
    /// started.
    fn adopts(&self, _worker: &str) -> Option<Offer> {
        None
    }

    /// Timeout of a call. After it the outcome is unknown.
    fn call_limit(&self) -> Duration {
        Duration::from_secs(30)
    }

    /// Time that a worker has to join. After it the machine is given back.
    fn join_limit(&self) -> Duration;

    /// Maximum time until a rented machine appears in the list and a released one disappears from it.
    fn settles_after(&self) -> Duration {
        Duration::from_secs(120)
    }

    /// Whether [`Provider::rentals`] returns a list.
    fn keeps_list(&self) -> bool {
        true
    }

    /// Ends the machines that cannot outlive this process. Their names become free.
    fn leave(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Sets the hosts, named as in [`Offer::host`], from which nothing is rented for now; their offers may be left out.
    fn avoid(&self, _hosts: &BTreeSet<String>) {}

    /// Sets the requirements that machines may have to meet, the most urgent first. Other offers need not be searched
    /// for. Empty: any.
    fn look_for(&self, _needs: &[Needs]) {}

    /// Whether rented machines get a join token: [`Order::join_token`].
    fn takes_join_token(&self) -> bool {
        false
    }

    /// Whether the machines of the provider end with this process.
    fn leaves_with_us(&self) -> bool {
        false
    }
}

/// Issues join tokens.
pub trait Invites: Send + Sync {
    /// Issues a token that is valid for a short time, for one worker, and for this machine only.
    fn invite<'a>(&'a self, machine: &'a str, traits: &'a Traits) -> BoxFuture<'a, Result<Secret, ProviderError>>;
}

/// Order for one machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// ID of the machine, which is also its label at the provider and the name of its worker.
    pub label: String,
    /// Offer to rent.
    pub offer: Offer,
    /// Bid per hour for an interruptible machine; `None` for an on-demand machine.
    pub bid_usd_per_hour: Option<UsdMicros>,
    /// Join token of the worker, valid for a short time and for one worker of this label. Empty if workers get their
    /// token elsewhere.
    pub join_token: Secret,
}

/// Total charge for one rental since the moment of the query.
#[derive(Debug, Clone, PartialEq)]
pub struct Charge {
    /// The provider's ID of the rental.
    pub rental: String,
    /// Label of the rental, if the bill contains it.
    pub label: Option<String>,
    /// Charge for GPUs.
    pub gpu_usd: UsdMicros,
    /// Charge for the disk.
    pub disk_usd: UsdMicros,
    /// Charge for traffic in both directions.
    pub traffic_usd: UsdMicros,
}

/// A rental of this installation, as the provider lists it.
#[derive(Debug, Clone, PartialEq)]
pub struct Rental {
    /// The provider's ID.
    pub id: String,
    /// Label of the machine.
    pub label: String,
    /// State of the machine.
    pub state: RentalState,
    /// Current price per hour, if the provider reports it.
    pub usd_per_hour: Option<UsdMicros>,
}

/// State of a rented machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RentalState {
    /// The machine boots.
    Starting,
    /// The machine runs. Whether its worker runs is known from heartbeats only.
    Running,
    /// The GPUs are given back, the disk is kept.
    Stopped,
    /// The machine was outbid, or the provider cannot reach its host.
    Lost,
    /// The machine will never run.
    Broken,
}

/// Outcome of a call that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// Not carried out. The call may be repeated later.
    #[error("{0}")]
    Refused(String),
    /// Not carried out, because its subject no longer exists.
    #[error("no longer available: {0}")]
    Vanished(String),
    /// Perhaps carried out, now or later.
    #[error("outcome unknown: {0}")]
    Unknown(String),
    /// Failed, but created a machine, which costs money and must be given back.
    #[error("{why}; instance {rental} was created nevertheless")]
    Made {
        /// The provider's ID of the machine.
        rental: String,
        /// Reason of the failure.
        why: String,
    },
}

/// Runs a call with the timeout of its provider.
pub(crate) async fn in_time<T>(
    provider: &dyn Provider,
    call: impl Future<Output = Result<T, ProviderError>>,
) -> Result<T, ProviderError> {
    let limit = provider.call_limit();
    tokio::select! {
        // Checked before the call: after a pause longer than the timeout its intent may have been struck off the
        // ledger, so the call must not start.
        biased;
        () = tokio::time::sleep(limit) => Err(ProviderError::Unknown(format!("no response within {} s", limit.as_secs()))),
        answer = call => answer,
    }
}
