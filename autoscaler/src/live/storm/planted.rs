//! Planted bugs, which storms and scenarios must catch. Each is a provider or a ledger that misbehaves in place of the
//! real one, so that the autoscaler behaves as if it had the bug. The autoscaler itself contains no hook.

mod ledger;
mod provider;

use std::cell::Cell;
use std::sync::Arc;

use self::ledger::PlantedLedger;
use self::provider::PlantedProvider;
pub(super) use self::provider::Shared;
use super::cloud::World;
use crate::live::collect::{Answers, Asker, Poll};
use crate::observe::RawState;
use crate::provider::Provider;
use crate::rental_ledger::RentalLedger;

thread_local! {
    static CHOSEN: Cell<&'static str> = const { Cell::new("") };
}

/// Every planted bug: its name and its effect.
pub(super) const MUTANTS: [(&str, &str); 12] = [
    ("rent-before-intent", "a machine is rented before it is written down"),
    ("unknown-is-failed", "a rent of unknown outcome counts as failed, so that the next round rents again"),
    ("strangers-kept", "a machine that the ledger lacks is left running"),
    ("destroy-believed", "a machine is struck off as soon as its destroy was sent, whatever the answer, e.g. 404"),
    ("one-list-is-enough", "a machine that one list lacks is gone"),
    ("empty-list-believed", "a list that has none of the machines is believed"),
    ("given-back-not-counted", "the reservation does not count machines that are being given back"),
    ("limits-ignored", "the reservation is always granted"),
    ("old-term-writes", "an autoscaler that no longer leads still writes"),
    ("destroy-asked-once", "a destroy is sent once only"),
    ("outbid-kept", "machines that were outbid are kept"),
    ("host-not-shunned", "a host whose machine was taken away is rented from again at once"),
];

/// Whether this bug is planted on this thread.
fn is(name: &str) -> bool {
    debug_assert!(MUTANTS.iter().any(|(known, _)| *known == name), "{name} is no planted bug");
    CHOSEN.get() == name
}

/// Runs `run` with a bug planted on this thread.
pub(super) fn with<T>(name: &'static str, run: impl FnOnce() -> T) -> T {
    CHOSEN.set(name);
    let outcome = run();
    CHOSEN.set("");
    outcome
}

/// The provider that an autoscaler of the simulation rents from: the given one, with the planted bug.
pub(super) fn provider(inner: Arc<dyn Provider>, world: &World) -> Arc<dyn Provider> {
    Arc::new(PlantedProvider::new(inner, world.ledger.clone(), world.planted.clone()))
}

/// The ledger that an autoscaler of the simulation writes to: the ledger of the world, with the planted bug.
pub(super) fn ledger(world: &World, provider: Arc<dyn Provider>) -> Box<dyn RentalLedger> {
    Box::new(PlantedLedger::new(world.ledger.clone(), provider))
}

/// The state that an autoscaler of the simulation reads, with the planted bug.
pub(super) fn read(mut seen: RawState) -> RawState {
    if is("one-list-is-enough") {
        // The record looks as if an earlier list had lacked the machine.
        seen.machines.values_mut().for_each(|machine| machine.missed_ms = Some(0));
    }
    seen
}

/// The poll result of the providers' answers, with the planted bug.
pub(super) fn poll(asker: &mut Asker, mut seen: RawState, answers: Answers) -> Poll {
    if !is("empty-list-believed") {
        return asker.poll(seen, answers);
    }
    // The asker gets no machines, so that every list is plausible.
    let machines = std::mem::take(&mut seen.machines);
    let mut poll = asker.poll(seen, answers);
    poll.seen.machines = machines;
    poll
}
