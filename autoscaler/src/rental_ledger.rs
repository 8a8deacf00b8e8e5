//! The ledger of rented machines. Each rent is written before it is requested, so that the next leader finds every
//! machine after a crash.

#[cfg(test)]
pub(crate) mod memory;

use futures::future::BoxFuture;
use stokehold_queue::Error;
use stokehold_queue::registry::{Caps, Granted, MachineRecord, Registry, Term};

/// Writes of the ledger of machines. One autoscaler leads; writes in an older term are refused.
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
    fn cool_down<'a>(&'a self, term: Term, host: &'a str, until_ms: u64) -> BoxFuture<'a, Result<bool, Error>>;

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

    fn cool_down<'a>(&'a self, term: Term, host: &'a str, until_ms: u64) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(self.shun(term, host, until_ms))
    }

    fn drop_workers<'a>(&'a self, ids: &'a [&'a str]) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.drop_workers(ids))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;
    use stokehold_queue::{Clock, ManualClock, RedisConfig, Shards};
    use stokehold_tests::redis_server::RedisServer;

    use super::memory::MemoryLedger;
    use super::*;

    const CAPS: Caps = Caps { machines: 3, usd_micros_per_hour: 1_000_000, rents: 4, window_ms: 3_600_000 };

    fn machine(id: &str, wanted: &str) -> MachineRecord {
        let machine = json!({"id": id, "provider": "cloud", "offer": {}, "wanted": wanted, "wanted_ms": 1, "is_done": true, "rented_ms": 1,
            "usd_micros_per_hour": 400_000, "stopped_usd_micros_per_hour": 100_000});
        serde_json::from_value(machine).unwrap()
    }

    /// Tests the behavior of both ledgers. `stale` is an older term than `term`.
    async fn suite(ledger: &dyn RentalLedger, term: Term, stale: Term) {
        let rent = |id: &'static str| async move { ledger.rent(term, &machine(id, "running"), CAPS).await.unwrap() };
        assert_eq!(ledger.rent(stale, &machine("m-0", "running"), CAPS).await.unwrap(), Granted::Stale);
        assert_eq!(
            [rent("m-1").await, rent("m-1").await, rent("m-2").await],
            [Granted::Yes; 3],
            "the same is the same"
        );
        assert_eq!(rent("m-3").await, Granted::Spend(800_000));
        assert!(ledger.put_machine(term, &machine("m-2", "gone")).await.unwrap());
        assert_eq!(rent("m-3").await, Granted::Spend(800_000), "it may be there still");
        assert!(ledger.put_machine(term, &machine("m-2", "stopped")).await.unwrap());
        assert_eq!(rent("m-3").await, Granted::Yes, "a disk costs less");
        assert_eq!(rent("m-2").await, Granted::Spend(800_000), "to be resumed it is counted anew");
        assert!(!ledger.drop_machine(stale, "m-3").await.unwrap());
        assert!(ledger.drop_machine(term, "m-3").await.unwrap());
        assert_eq!(rent("m-4").await, Granted::Yes);
        let charged = |usd_micros_per_hour, agreed: u64| MachineRecord {
            usd_micros_per_hour,
            agreed_usd_micros_per_hour: Some(agreed),
            ..machine("m-4", "running")
        };
        for dear in [charged(600_000, 300_000), charged(300_000, 600_000)] {
            assert!(ledger.put_machine(term, &dear).await.unwrap());
            assert_eq!(
                rent("m-5").await,
                Granted::Spend(1_100_000),
                "the larger of what was agreed and what is charged"
            );
        }
        assert!(ledger.drop_machine(term, "m-4").await.unwrap());
        assert_eq!(rent("m-5").await, Granted::Rents(4), "as many as may be");
        let few = Caps { machines: 1, ..CAPS };
        assert_eq!(ledger.rent(term, &machine("m-5", "running"), few).await.unwrap(), Granted::Machines(1));
        assert!(ledger.drain(term, "m-1", Some(7)).await.unwrap() && !ledger.drain(stale, "m-1", None).await.unwrap());
        assert!(ledger.cool_down(term, "box", 9).await.unwrap() && !ledger.cool_down(stale, "box", 0).await.unwrap());
    }

    #[tokio::test]
    async fn the_ledger_in_memory_is_as_strict() {
        let clock = ManualClock::new(1_000);
        let ledger = MemoryLedger::new(Clock::Manual(clock.clone()));
        let stale = ledger.lead("one", 5).unwrap();
        clock.advance_ms(6);
        let term = ledger.lead("two", 60_000).unwrap();
        assert_eq!(ledger.lead("one", 5), None);
        suite(&ledger, term, stale).await;
        let rows = ledger.rows();
        assert_eq!((rows.machines.len(), rows.drains["m-1"], rows.cooldowns["box"]), (2, 7, 9));
    }

    #[tokio::test]
    async fn the_ledger_in_redis_is_as_strict() {
        let dir = tempfile::tempdir().unwrap();
        let server = RedisServer::start(dir.path(), &[]);
        let registry =
            Shards::connect(RedisConfig { url: server.url(), ..RedisConfig::default() }).await.unwrap().registry();
        let stale = registry.lead("one", 0).await.unwrap().unwrap();
        let term = registry.lead("two", 60_000).await.unwrap().unwrap();
        suite(&registry, term, stale).await;
        assert_eq!((registry.machines().await.unwrap().len(), registry.drains().await.unwrap()["m-1"]), (2, 7));
        assert_eq!(registry.shunned().await.unwrap()["box"], 9);
    }
}
