//! Where it is written down what was rented, or is about to be: before anybody is asked, so that whoever comes after a crash finds each, and
//! ends it.

#[cfg(test)]
pub(crate) mod memory;

use futures::future::BoxFuture;
use stokehold_queue::Error;
use stokehold_queue::registry::{Caps, Granted, MachineRecord, Registry, Term};

/// The ledger of machines. One autoscaler leads; what another writes in an older term is refused.
pub(crate) trait RentalLedger: Send + Sync {
    /// See [`Registry::rent`].
    fn rent<'a>(&'a self, term: Term, machine: &'a MachineRecord, caps: Caps) -> BoxFuture<'a, Result<Granted, Error>>;

    /// See [`Registry::put_machine`].
    fn put_machine<'a>(&'a self, term: Term, machine: &'a MachineRecord) -> BoxFuture<'a, Result<bool, Error>>;

    /// See [`Registry::drop_machine`].
    fn drop_machine<'a>(&'a self, term: Term, id: &'a str) -> BoxFuture<'a, Result<bool, Error>>;

    /// See [`Registry::drain`].
    fn drain<'a>(&'a self, term: Term, worker: &'a str, since_ms: Option<u64>) -> BoxFuture<'a, Result<bool, Error>>;

    /// See [`Registry::shun`].
    fn shun<'a>(&'a self, term: Term, host: &'a str, until_ms: u64) -> BoxFuture<'a, Result<bool, Error>>;

    /// See [`Registry::drop_workers`].
    fn drop_workers<'a>(&'a self, ids: &'a [&'a str]) -> BoxFuture<'a, Result<(), Error>>;
}

impl RentalLedger for Registry {
    fn rent<'a>(&'a self, term: Term, machine: &'a MachineRecord, caps: Caps) -> BoxFuture<'a, Result<Granted, Error>> {
        Box::pin(self.rent(term, machine, caps, None))
    }

    fn put_machine<'a>(&'a self, term: Term, machine: &'a MachineRecord) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(self.put_machine(term, machine))
    }

    fn drop_machine<'a>(&'a self, term: Term, id: &'a str) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(self.drop_machine(term, id))
    }

    fn drain<'a>(&'a self, term: Term, worker: &'a str, since_ms: Option<u64>) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(self.drain(term, worker, since_ms))
    }

    fn shun<'a>(&'a self, term: Term, host: &'a str, until_ms: u64) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(self.shun(term, host, until_ms))
    }

    fn drop_workers<'a>(&'a self, ids: &'a [&'a str]) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.drop_workers(ids))
    }
}
