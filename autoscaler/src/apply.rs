//! Executes plans without making choices: each intent is written to the ledger, then requested from the provider, then
//! the response is written.

use stokehold_planner::observation::Offer;
use stokehold_planner::plan::{Action, Step};
use stokehold_queue::registry::{Caps, Granted, MachineRecord, Term, Wanted};
use stokehold_queue::{Clock, Error, WorkerRecord};
use stokehold_units::UsdMicros;

use crate::observe::RawState;
use crate::provider::{Invites, Order, Provider, ProviderError, in_time};
use crate::providers::Providers;
use crate::rental_ledger::RentalLedger;
use crate::secret::Secret;

/// Cooldown of an offer that was refused or has vanished, milliseconds.
const REFUSED_MS: u64 = 60_000;

/// Maximum time between writing an intent and the request, milliseconds. After a longer pause another autoscaler may
/// have led and struck the intent off.
const SOON_MS: u64 = 10_000;

/// A reason to stop the execution.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExecutorError {
    /// Another autoscaler leads now.
    #[error("another autoscaler leads now")]
    Deposed,
    /// The ledger cannot be written, so nothing may be requested.
    #[error("cannot write to the ledger of machines")]
    Unavailable(#[from] Error),
}

/// Outcome of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The step is carried out.
    Done {
        /// ID of the machine.
        machine: String,
    },
    /// The step is carried out once the machine's jobs have ended.
    AfterItsJobs,
    /// The step failed, or its outcome is unknown.
    Failed(String),
    /// The step is no longer possible, or not for the autoscaler to take.
    LeftAlone(&'static str),
    /// A limit is reached.
    Withheld(Granted),
}

/// Success for a machine that the caller names.
const DONE: Outcome = Outcome::Done { machine: String::new() };

/// Executes steps in one term with a set of providers.
#[derive(Clone, Copy)]
pub(crate) struct Executor<'a> {
    pub(crate) ledger: &'a dyn RentalLedger,
    pub(crate) clock: &'a Clock,
    pub(crate) term: Term,
    pub(crate) caps: Caps,
    pub(crate) providers: &'a Providers,
    pub(crate) invites: Option<&'a dyn Invites>,
    /// Whether machines are given back without waiting for their jobs.
    pub(crate) is_urgent: bool,
}

impl Executor<'_> {
    /// Executes a step of a plan for the state `seen`, and updates the machines in that state.
    pub(crate) async fn step(&self, seen: &mut RawState, step: &Step) -> Result<Outcome, ExecutorError> {
        match &step.action {
            Action::Rent { offer, bid_usd_per_hour, .. } => {
                let found = seen.offers.iter().find(|known| known.id == *offer).cloned();
                let Some(found) = found else { return Ok(Outcome::LeftAlone("the offer is gone")) };
                self.rent(seen, found, *bid_usd_per_hour).await
            }
            Action::Resume { machine } => self.on(seen, machine, async |machine, _| self.resume(machine).await).await,
            Action::Drain { machine } => {
                self.on(seen, machine, async |machine, _| {
                    let machine = self.drain(&machine, machine.then).await?;
                    Ok((Some(machine), DONE))
                })
                .await
            }
            Action::Undrain { machine } => self.on(seen, machine, async |machine, _| self.undrain(machine).await).await,
            Action::Stop { machine } => {
                self.on(seen, machine, async |machine, seen| self.end(machine, seen, Wanted::Stopped).await).await
            }
            Action::Release { machine } => {
                self.on(seen, machine, async |machine, seen| self.end(machine, seen, Wanted::Gone).await).await
            }
        }
    }

    async fn on(
        &self,
        seen: &mut RawState,
        id: &str,
        act: impl AsyncFnOnce(MachineRecord, &RawState) -> Result<(Option<MachineRecord>, Outcome), ExecutorError>,
    ) -> Result<Outcome, ExecutorError> {
        let Some(machine) = seen.machines.get(id).cloned() else {
            let is_joined = seen.workers.iter().any(|worker| worker.worker_id == id);
            let why = if is_joined { "this autoscaler did not start it" } else { "the machine is gone" };
            return Ok(Outcome::LeftAlone(why));
        };
        let (after, outcome) = act(machine, seen).await?;
        match after {
            Some(machine) => drop(seen.machines.insert(id.to_owned(), machine)),
            None => drop(seen.machines.remove(id)),
        }
        Ok(match outcome {
            Outcome::Done { .. } => Outcome::Done { machine: id.to_owned() },
            other => other,
        })
    }

    async fn rent(
        &self,
        seen: &mut RawState,
        offer: Offer,
        bid_usd_per_hour: Option<UsdMicros>,
    ) -> Result<Outcome, ExecutorError> {
        let Some(provider) = self.providers.get(&offer.provider) else {
            return Ok(Outcome::LeftAlone("the provider is not configured"));
        };
        let id = provider.label(&offer, &seen.machines.keys().cloned().collect());
        let now_ms = self.clock.now_ms();
        let mut machine = record(now_ms, &id, &offer, bid_usd_per_hour);
        if !provider.charges_boots() {
            machine.booting_usd_micros_per_hour = Some(machine.stopped_usd_micros_per_hour);
        }
        // An earlier machine of this name may have been drained.
        require_term(self.ledger.drain(self.term, &id, None).await?)?;
        match self.ledger.rent(self.term, &machine, self.caps).await? {
            Granted::Yes => drop(seen.machines.insert(id.clone(), machine.clone())),
            Granted::Stale => return Err(ExecutorError::Deposed),
            withheld => return Ok(Outcome::Withheld(withheld)),
        }
        if self.clock.now_ms().saturating_sub(now_ms) > SOON_MS {
            self.forget(&id, &[]).await?;
            seen.machines.remove(&id);
            return Ok(Outcome::Failed("writing the intent to the ledger took too long".to_owned()));
        }
        let rented = async {
            let join_token = self.invite(provider, &id, &offer).await?;
            let order = Order { label: id.clone(), offer: offer.clone(), bid_usd_per_hour, join_token };
            provider.rent(&order).await
        };
        let failure = match in_time(provider, rented).await {
            Ok(rental) => {
                (machine.rental, machine.is_done) = (Some(rental), true);
                machine.made_ms = Some(self.clock.now_ms());
                self.write(&machine).await?;
                let machine = self.priced(provider, machine).await?;
                seen.machines.insert(id.clone(), machine);
                return Ok(Outcome::Done { machine: id });
            }
            Err(failure) => failure,
        };
        match &failure {
            ProviderError::Refused(_) | ProviderError::Vanished(_) => {
                self.forget(&id, &[]).await?;
                seen.machines.remove(&id);
                if !provider.leaves_with_us() {
                    require_term(self.ledger.cool_down(self.term, &offer.id, now_ms + REFUSED_MS).await?)?;
                }
            }
            // The provider's list resolves it.
            ProviderError::Unknown(_) => {}
            ProviderError::Made { rental, .. } => {
                machine.rental = Some(rental.clone());
                let machine = self.ask(machine, Wanted::Gone).await?.0;
                seen.machines.insert(id, machine);
            }
        }
        Ok(Outcome::Failed(failure.to_string()))
    }

    /// Records the charged price of a new machine before anything more is rented, because its offer may be outdated or
    /// wrong.
    async fn priced(&self, provider: &dyn Provider, machine: MachineRecord) -> Result<MachineRecord, ExecutorError> {
        let rental = machine.rental.as_deref().unwrap_or_default();
        let usd_per_hour = match in_time(provider, provider.price(rental)).await {
            Ok(usd_per_hour) => usd_per_hour,
            Err(failure) => {
                tracing::debug!(machine.id = machine.id, %failure, "price not known yet; it is read from the next list");
                None
            }
        };
        let Some(charged) = usd_per_hour.map(UsdMicros::micros).filter(|micros| *micros != machine.usd_micros_per_hour)
        else {
            return Ok(machine);
        };
        let machine = MachineRecord { usd_micros_per_hour: charged, ..machine };
        self.write(&machine).await?;
        Ok(machine)
    }

    /// Issues the join token of a worker, if its provider passes one on.
    async fn invite(&self, provider: &dyn Provider, id: &str, offer: &Offer) -> Result<Secret, ProviderError> {
        match self.invites {
            Some(invites) if provider.takes_join_token() => invites.invite(id, &offer.traits).await,
            None if provider.takes_join_token() => {
                Err(ProviderError::Refused("no join token can be made for its worker".to_owned()))
            }
            _ => Ok(Secret::default()),
        }
    }

    async fn resume(&self, machine: MachineRecord) -> Result<(Option<MachineRecord>, Outcome), ExecutorError> {
        require_term(self.ledger.drain(self.term, &machine.id, None).await?)?;
        let wanted = MachineRecord { drained_ms: None, then: None, ..machine.clone() };
        let wanted = self.wanted(wanted, Wanted::Running);
        match self.ledger.rent(self.term, &wanted, self.caps).await? {
            Granted::Yes => {}
            Granted::Stale => return Err(ExecutorError::Deposed),
            withheld => return Ok((Some(machine), Outcome::Withheld(withheld))),
        }
        let (machine, failure) = self.call(wanted).await?;
        Ok((Some(machine), failure.map_or(DONE, |why| Outcome::Failed(why.to_string()))))
    }

    /// Stops giving a machine new jobs.
    pub(crate) async fn drain(
        &self,
        machine: &MachineRecord,
        then: Option<Wanted>,
    ) -> Result<MachineRecord, ExecutorError> {
        let since_ms = machine.drained_ms.unwrap_or_else(|| self.clock.now_ms());
        let machine = MachineRecord { drained_ms: Some(since_ms), then, ..machine.clone() };
        self.write(&machine).await?;
        require_term(self.ledger.drain(self.term, &machine.id, Some(since_ms)).await?)?;
        Ok(machine)
    }

    async fn undrain(&self, machine: MachineRecord) -> Result<(Option<MachineRecord>, Outcome), ExecutorError> {
        if machine.wanted != Wanted::Running {
            return Ok((Some(machine), Outcome::LeftAlone("it no longer runs")));
        }
        require_term(self.ledger.drain(self.term, &machine.id, None).await?)?;
        let machine = MachineRecord { drained_ms: None, then: None, ..machine };
        self.write(&machine).await?;
        Ok((Some(machine), DONE))
    }

    /// Stops a machine or gives it back: at once if it certainly holds no job, otherwise after a drain.
    async fn end(
        &self,
        machine: MachineRecord,
        seen: &RawState,
        wanted: Wanted,
    ) -> Result<(Option<MachineRecord>, Outcome), ExecutorError> {
        let is_lost = seen.worker_of(&machine).is_some_and(|worker| seen.is_silent(worker));
        if machine.wanted == Wanted::Running && !seen.is_done(&machine) && !is_lost && !self.is_urgent {
            let machine = self.drain(&machine, Some(wanted)).await?;
            return Ok((Some(machine), Outcome::AfterItsJobs));
        }
        let (after, failure) = self.ended(machine, wanted).await?;
        Ok((after, failure.map_or(DONE, |why| Outcome::Failed(why.to_string()))))
    }

    /// Stops a machine or gives it back at once. Its record stays until it is known to be gone.
    pub(crate) async fn ended(
        &self,
        machine: MachineRecord,
        wanted: Wanted,
    ) -> Result<(Option<MachineRecord>, Option<ProviderError>), ExecutorError> {
        let (machine, failure) = self.ask(machine, wanted).await?;
        Ok((Some(machine), failure))
    }

    /// Writes the wanted state of a machine, requests it from the provider, and writes the response.
    async fn ask(
        &self,
        machine: MachineRecord,
        wanted: Wanted,
    ) -> Result<(MachineRecord, Option<ProviderError>), ExecutorError> {
        let machine = self.wanted(machine, wanted);
        self.write(&machine).await?;
        self.call(machine).await
    }

    /// The record of a machine with a new wanted state that is not requested yet.
    fn wanted(&self, machine: MachineRecord, wanted: Wanted) -> MachineRecord {
        let released_ms = machine.released_ms.filter(|_| wanted == Wanted::Gone);
        MachineRecord { wanted, wanted_ms: self.clock.now_ms(), is_done: false, then: None, released_ms, ..machine }
    }

    async fn call(&self, mut machine: MachineRecord) -> Result<(MachineRecord, Option<ProviderError>), ExecutorError> {
        let Some(provider) = self.providers.get(&machine.provider) else {
            let why = ProviderError::Refused(format!("provider {} is not configured", machine.provider));
            return Ok((machine, Some(why)));
        };
        let rental = match &machine.rental {
            Some(rental) => rental.clone(),
            None if !provider.keeps_list() => machine.id.clone(),
            // The machine may not exist; the list will show it.
            None => return Ok((machine, None)),
        };
        let answer = match machine.wanted {
            Wanted::Running => in_time(provider, provider.resume(&rental)).await,
            Wanted::Stopped => in_time(provider, provider.stop(&rental)).await,
            Wanted::Gone => in_time(provider, provider.release(&rental)).await,
        };
        match answer {
            Ok(()) => {
                machine.is_done = true;
                if machine.wanted == Wanted::Gone {
                    machine.released_ms.get_or_insert(self.clock.now_ms());
                }
                self.write(&machine).await?;
                Ok((machine, None))
            }
            Err(failure) => Ok((machine, Some(failure))),
        }
    }

    pub(crate) async fn write(&self, machine: &MachineRecord) -> Result<(), ExecutorError> {
        let written = self.ledger.put_machine(self.term, machine).await?;
        require_term(written)
    }

    /// Removes a machine and its worker from the ledger.
    pub(crate) async fn forget(&self, id: &str, workers: &[WorkerRecord]) -> Result<(), ExecutorError> {
        let gone: Vec<&str> =
            workers.iter().filter(|worker| worker.name == id).map(|worker| worker.worker_id.as_str()).collect();
        self.ledger.drop_workers(&gone).await?;
        let forgotten = self.ledger.drop_machine(self.term, id).await?;
        require_term(forgotten)
    }

    pub(crate) async fn cool_down(&self, host: &str, until_ms: u64) -> Result<(), ExecutorError> {
        let written = self.ledger.cool_down(self.term, host, until_ms).await?;
        require_term(written)
    }
}

/// Record of a machine before it is rented.
fn record(now_ms: u64, id: &str, offer: &Offer, bid_usd_per_hour: Option<UsdMicros>) -> MachineRecord {
    let agreed = bid_usd_per_hour.unwrap_or(offer.usd_per_hour).micros();
    MachineRecord {
        id: id.to_owned(),
        provider: offer.provider.to_string(),
        rental: None,
        offer: serde_json::to_value(offer).unwrap_or_default(),
        wanted: Wanted::Running,
        wanted_ms: now_ms,
        is_done: false,
        rented_ms: now_ms,
        drained_ms: None,
        then: None,
        usd_micros_per_hour: agreed,
        agreed_usd_micros_per_hour: Some(agreed),
        booting_usd_micros_per_hour: None,
        made_ms: None,
        listed_ms: None,
        released_ms: None,
        stopped_usd_micros_per_hour: offer.stopped_usd_per_hour.unwrap_or_default().micros(),
        is_interruptible: bid_usd_per_hour.is_some(),
        missed_ms: None,
        on_disk: Vec::new(),
    }
}

/// Record of a machine of a provider that something else started and whose worker has joined.
pub(crate) fn adopted(seen_ms: u64, id: &str, offer: &Offer) -> MachineRecord {
    MachineRecord { rental: Some(id.to_owned()), is_done: true, ..record(seen_ms, id, offer, None) }
}

/// Fails if a write was refused because another autoscaler leads.
fn require_term(is_ours: bool) -> Result<(), ExecutorError> {
    if is_ours { Ok(()) } else { Err(ExecutorError::Deposed) }
}

#[cfg(test)]
mod tests;
