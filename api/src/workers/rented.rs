//! Rented instances in the autoscaler's ledger. An instance that the ledger no longer wants may neither join nor call.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use stokehold_queue::TokenRecord;
use stokehold_queue::registry::{MachineRecord, Wanted};

use crate::database::{Database, Error};
use crate::error::{Code, Problem};

/// Wanted state of each instance in the ledger, by ID.
type WantedById = HashMap<String, Wanted>;

/// Cache time of the wanted states.
const CACHE_TTL: Duration = Duration::from_secs(1);

/// The instances in the autoscaler's ledger.
pub(crate) struct Instances {
    db: Arc<Database>,
    wanted: Cache<(), Arc<WantedById>>,
}

impl Instances {
    pub(crate) fn new(db: Arc<Database>) -> Self {
        Self { db, wanted: Cache::builder().max_capacity(1).time_to_live(CACHE_TTL).build() }
    }

    /// Wanted state of each instance, at most one second old.
    async fn wanted(&self) -> Result<Arc<WantedById>, Error> {
        if let Some(wanted) = self.wanted.get(&()) {
            return Ok(wanted);
        }
        let all = self.db.ask("list the instances", self.db.registry.machines()).await?;
        let wanted: Arc<WantedById> = Arc::new(all.into_iter().map(|(id, machine)| (id, machine.wanted)).collect());
        self.wanted.insert((), wanted.clone());
        Ok(wanted)
    }

    /// Returns whether the worker with this token may continue to lease jobs and renew its token. The worker of an
    /// instance may while the instance should run; every other worker always may.
    pub(crate) async fn is_wanted(&self, token: &TokenRecord) -> Result<bool, Error> {
        let Some(machine) = &token.machine else { return Ok(true) };
        let listed = self.wanted().await?.get(machine).copied();
        // A record that cannot be read is not in the list. That is an error, not an instance that was given up.
        let wanted = match listed {
            Some(wanted) => Some(wanted),
            None => self.read(machine).await?.map(|known| known.wanted),
        };
        Ok(wanted == Some(Wanted::Running))
    }

    /// Checks that the worker of an instance may still call: one that should stop still reports its finished jobs; one
    /// that was released may not call.
    pub(crate) async fn check_here(&self, machine: &str) -> Result<(), Problem> {
        let is_ours = |wanted: Option<Wanted>| matches!(wanted, Some(Wanted::Running | Wanted::Stopped));
        if is_ours(self.wanted().await?.get(machine).copied()) {
            return Ok(());
        }
        // The instance may have been rented within this second.
        match is_ours(self.read(machine).await?.map(|known| known.wanted)) {
            true => Ok(()),
            false => Err(refused("this instance was given up: its worker is no longer accepted")),
        }
    }

    /// Returns the instance of a join token, if it should run now. Reads Redis.
    pub(crate) async fn to_join(&self, machine: &str) -> Result<MachineRecord, Problem> {
        match self.read(machine).await? {
            Some(known) if known.wanted == Wanted::Running => Ok(known),
            Some(_) => Err(refused(
                "this join token belongs to an instance that should not run now; no worker can join with it",
            )),
            None => Err(refused(
                "this join token belongs to an instance that the autoscaler does not have, or no longer has",
            )),
        }
    }

    async fn read(&self, machine: &str) -> Result<Option<MachineRecord>, Error> {
        self.db.ask("read an instance", self.db.registry.machine(machine)).await
    }
}

/// Slots of an instance per GPU if its offer has no number.
const SLOTS_OF_GPU: u64 = 64;

/// Maximum number of slots of an instance according to the ledger: the number in its offer per GPU, or in total without
/// GPUs.
pub(crate) fn slots_of(machine: &MachineRecord) -> u32 {
    let number = |name: &str| machine.offer.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
    let of_card = match number("slots") {
        0 => SLOTS_OF_GPU,
        slots => slots,
    };
    u32::try_from(of_card.saturating_mul(number("cards").max(1))).unwrap_or(u32::MAX)
}

fn refused(detail: &'static str) -> Problem {
    Problem::new(Code::Unauthorized, detail)
}
