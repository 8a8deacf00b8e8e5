//! Who has machines: what each way to get one must be able to do. Calls are made with a limit of time, and what they
//! leave behind when they fail is part of their answer.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::BoxFuture;
use stokehold_queue::nonce;

use crate::observation::{Offer, Traits};
use crate::secret::Secret;
use crate::snapshot::Needs;

/// Somebody who has machines.
///
/// Whoever calls has written down what it is about to do. A call that is not answered in time is of unknown outcome: it
/// may have been done, and may still be. Nothing is rented twice to find out; what was made is known by its label.
pub trait Provider: Send + Sync {
    /// The word for it, as in [`Offer::provider`].
    fn name(&self) -> &'static str;

    /// What could be had now.
    fn offers(&self) -> BoxFuture<'_, Result<Vec<Offer>, Failure>>;

    /// All that it has of ours, every page of it, by our labels; an error unless all were read. `None`: it keeps no
    /// list, and what we wrote down is all that is known.
    fn rentals(&self) -> BoxFuture<'_, Result<Option<Vec<Rental>>, Failure>>;

    /// Gets a machine. Its own id of it.
    fn rent<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<String, Failure>>;

    /// What an hour of a machine that was just made costs, dollars, where its provider says so at once; `None`: its
    /// list tells, or nothing does.
    fn price<'a>(&'a self, _rental: &'a str) -> BoxFuture<'a, Result<Option<f64>, Failure>> {
        Box::pin(async { Ok(None) })
    }

    /// Gives its cards back and keeps its disk. Repeating it changes nothing.
    fn stop<'a>(&'a self, rental: &'a str) -> BoxFuture<'a, Result<(), Failure>>;

    /// Has a stopped one run again, when its cards are free.
    fn resume<'a>(&'a self, rental: &'a str) -> BoxFuture<'a, Result<(), Failure>>;

    /// Gives it back for good. Repeating it changes nothing, and one that is not there is given back already.
    fn release<'a>(&'a self, rental: &'a str) -> BoxFuture<'a, Result<(), Failure>>;

    /// What it has charged for rentals of ours since then, unix seconds, also for those that are gone; an error unless
    /// all of it was read. `None`: it sends no bills.
    fn charges(&self, _since_s: u64) -> BoxFuture<'_, Result<Option<Vec<Charge>>, Failure>> {
        Box::pin(async { Ok(None) })
    }

    /// What it has charged for a machine so long after its end is all that it will.
    fn charges_settle_after(&self) -> Duration {
        Duration::from_secs(600)
    }

    /// Whether the cards are paid for while a machine comes up; else only its disk is until it runs.
    fn charges_boots(&self) -> bool {
        true
    }

    /// What is left to spend there, dollars. `None`: nothing is paid ahead.
    fn credit(&self) -> BoxFuture<'_, Result<Option<f64>, Failure>> {
        Box::pin(async { Ok(None) })
    }

    /// What a machine of this offer is to be called, other than those.
    fn label(&self, _offer: &Offer, _taken: &BTreeSet<String>) -> String {
        format!("m-{}", nonce())
    }

    /// The offer that a worker of this name stands for, when it is one of the provider's machines that nobody asked
    /// for: somebody else started it.
    fn adopts(&self, _worker: &str) -> Option<Offer> {
        None
    }

    /// A call that takes longer is of unknown outcome.
    fn call_limit(&self) -> Duration {
        Duration::from_secs(30)
    }

    /// A machine whose worker has not joined by then is given back.
    fn join_limit(&self) -> Duration;

    /// What was rented shows in the list after this time at the latest, and what was given back no longer does.
    fn settles_after(&self) -> Duration {
        Duration::from_secs(120)
    }

    /// Whether [`Provider::rentals`] lists anything.
    fn keeps_list(&self) -> bool {
        true
    }

    /// Ends what cannot outlive this process. Its names are free again.
    fn leave(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Boxes, as [`Offer::host`] names them, that are left alone: what stands there need not be offered.
    fn avoid(&self, _hosts: &BTreeSet<String>) {}

    /// What machines must have that may be needed, the most pressing first: offers of others need not be searched for.
    /// Nothing: any.
    fn look_for(&self, _needs: &[Needs]) {}

    /// Whether its machines are told what to join with when they are rented: [`Order::join_token`].
    fn takes_join_token(&self) -> bool {
        false
    }

    /// Whether its machines end with this process.
    fn leaves_with_us(&self) -> bool {
        false
    }
}

/// Lets workers join.
pub trait Invites: Send + Sync {
    /// A token that one worker may join with, soon, and as this machine only.
    fn invite<'a>(&'a self, machine: &'a str, traits: &'a Traits) -> BoxFuture<'a, Result<Secret, Failure>>;
}

/// What to rent, and what to call it.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// The machine's id, its label there, and the name of its worker.
    pub label: String,
    /// Of what.
    pub offer: Offer,
    /// What to bid for an interruptible one, dollars an hour; `None` for one that is ours until given back.
    pub bid_usd_per_hour: Option<f64>,
    /// What its worker joins with: good for one worker of this label, and not for long. Empty where workers are given
    /// theirs otherwise.
    pub join_token: Secret,
}

/// What a provider has charged for one rental, all in all since the moment that was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Charge {
    /// The provider's id of it.
    pub rental: String,
    /// What we called it, where the bill says.
    pub label: Option<String>,
    /// For its cards, dollars.
    pub gpu_usd: f64,
    /// For its disk, dollars.
    pub disk_usd: f64,
    /// For bytes, both ways, dollars.
    pub traffic_usd: f64,
}

/// A machine of ours, as its provider tells of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Rental {
    /// The provider's id.
    pub id: String,
    /// What we called it.
    pub label: String,
    /// How it is.
    pub state: RentalState,
    /// What an hour costs now, dollars, where it says.
    pub usd_per_hour: Option<f64>,
}

/// How a rented machine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RentalState {
    /// On its way.
    Starting,
    /// It runs; whether its worker does is for the worker to say.
    Running,
    /// Its cards are given back, its disk is kept.
    Stopped,
    /// Taken away by somebody who pays more, or out of its provider's sight.
    Lost,
    /// It will never run.
    Broken,
}

/// What became of a call that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Certainly not done; it may be tried again later.
    #[error("{0}")]
    Refused(String),
    /// Certainly not done, and what was asked for is not there any more.
    #[error("no longer available: {0}")]
    Vanished(String),
    /// It may have been done, now or later.
    #[error("outcome unknown: {0}")]
    Unknown(String),
    /// It failed and has left a machine behind, which costs money and is to be given back.
    #[error("{why}; instance {rental} was created nevertheless")]
    Made {
        /// The provider's id.
        rental: String,
        /// Why it failed.
        why: String,
    },
}

/// A call with the provider's limit of time.
pub(crate) async fn in_time<T>(
    provider: &dyn Provider,
    call: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let limit = provider.call_limit();
    tokio::select! {
        // Before the call: one that stood still for longer than that goes no further, for by now its intent may have
        // been struck off.
        biased;
        () = tokio::time::sleep(limit) => Err(Failure::Unknown(format!("no response within {} s", limit.as_secs()))),
        answer = call => answer,
    }
}
