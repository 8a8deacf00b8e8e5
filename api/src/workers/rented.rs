//! Rented machines as the autoscaler's ledger has them: what it does not want any more may neither join nor speak.

use std::collections::HashMap;
use std::sync::Arc;

use stokehold_queue::TokenRecord;
use stokehold_queue::registry::{MachineRecord, Wanted};

use crate::error::{Code, Problem};
use crate::state::App;

/// What is wanted of each machine in the ledger.
pub(crate) type Machines = HashMap<String, Wanted>;

impl App {
    /// What is wanted of each machine, as of a second ago at most.
    pub(crate) async fn machines(&self) -> Result<Arc<Machines>, Problem> {
        if let Some(machines) = self.machines.get(&()) {
            return Ok(machines);
        }
        let all = self.ask("list the instances", self.registry.machines()).await?;
        let machines: Arc<Machines> = Arc::new(all.into_iter().map(|(id, machine)| (id, machine.wanted)).collect());
        self.machines.insert((), machines.clone());
        Ok(machines)
    }

    /// Whether the worker with this token may go on taking jobs, and have its token renewed: one of a rented machine may while that is to
    /// run, every other one always.
    pub(crate) async fn is_wanted(&self, token: &TokenRecord) -> Result<bool, Problem> {
        let Some(machine) = &token.machine else { return Ok(true) };
        Ok(self.machines().await?.get(machine) == Some(&Wanted::Running))
    }
}

/// Checks that the worker of an instance may still call: one that should stop still reports the ends of its jobs; one
/// that was released may not.
pub(crate) async fn check_here(app: &App, machine: &str) -> Result<(), Problem> {
    let is_ours = |wanted: Option<Wanted>| matches!(wanted, Some(Wanted::Running | Wanted::Stopped));
    if is_ours(app.machines().await?.get(machine).copied()) {
        return Ok(());
    }
    // It may have been rented within this second.
    let known = app.ask("read an instance", app.registry.machine(machine)).await?;
    match is_ours(known.map(|known| known.wanted)) {
        true => Ok(()),
        false => Err(refused("this instance was given up: its worker is no longer accepted")),
    }
}

/// The machine that a join token is for, which the ledger wants to run now: read afresh.
pub(crate) async fn to_join(app: &App, machine: &str) -> Result<MachineRecord, Problem> {
    let known = app.ask("read an instance", app.registry.machine(machine)).await?;
    match known {
        Some(known) if known.wanted == Wanted::Running => Ok(known),
        Some(_) => {
            Err(refused("this join token belongs to an instance that should not run now; no worker can join with it"))
        }
        None => {
            Err(refused("this join token belongs to an instance that the autoscaler does not have, or no longer has"))
        }
    }
}

/// The slots of an instance per GPU if its offer has no number.
const SLOTS_OF_CARD: u64 = 64;

/// The most slots of an instance according to the ledger: what its offer states per GPU, or in total without GPUs.
pub(crate) fn slots_of(machine: &MachineRecord) -> u32 {
    let number = |name: &str| machine.offer.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
    let of_card = match number("slots") {
        0 => SLOTS_OF_CARD,
        slots => slots,
    };
    u32::try_from(of_card.saturating_mul(number("cards").max(1))).unwrap_or(u32::MAX)
}

fn refused(detail: &'static str) -> Problem {
    Problem::new(Code::Unauthorized, detail)
}
