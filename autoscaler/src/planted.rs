//! Planted bugs, one at a time and in tests alone: what storms and their scenarios must catch.

use std::cell::Cell;

thread_local! {
    static CHOSEN: Cell<&'static str> = const { Cell::new("") };
}

/// Every one, and what is wrong with it.
pub(crate) const MUTANTS: [(&str, &str); 12] = [
    ("rent-before-intent", "a machine is asked for, and written down after"),
    ("unknown-is-failed", "a rent of unknown outcome is taken for one that failed, so that the next round rents again"),
    ("strangers-kept", "what nobody wrote down is left as it is"),
    (
        "destroy-believed",
        "a machine is forgotten when it was asked to be destroyed, whatever the answer, a 404 among them",
    ),
    ("one-list-is-enough", "a machine that one list lacks is gone"),
    ("empty-list-believed", "a list that has none of the machines is believed"),
    ("given-back-not-counted", "the reservation does not count machines that are being given back"),
    ("limits-ignored", "the reservation is always granted"),
    ("old-term-writes", "who leads no more writes all the same"),
    ("destroy-asked-once", "a destroy is asked for once only"),
    ("outbid-kept", "machines that were outbid are kept"),
    ("host-not-shunned", "a host whose machine was taken away is rented from again at once"),
];

/// Whether this is the one that was chosen, on this thread.
pub(crate) fn is(name: &str) -> bool {
    CHOSEN.get() == name
}

/// What comes of it with this bug.
pub(crate) fn with<T>(name: &'static str, run: impl FnOnce() -> T) -> T {
    CHOSEN.set(name);
    let outcome = run();
    CHOSEN.set("");
    outcome
}
