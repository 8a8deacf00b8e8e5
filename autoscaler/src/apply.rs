//! Does what was decided, and makes no choices: writes down what it is about to ask for, asks for it, and writes down the answer.

use stokehold_queue::registry::{MachineRecord, Registry, Term, Wanted};
use stokehold_queue::{Error, WorkerRecord, now_ms};

use crate::live::chores::micros;
use crate::observation::Offer;
use crate::observe::Seen;
use crate::plan::{Action, Step};
use crate::provider::{Failure, Order, Provider, in_time};
use crate::providers::Providers;

/// An offer that was refused or has vanished is left alone for so long, milliseconds.
const REFUSED_MS: u64 = 60_000;

/// Why nothing more may be done now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stop {
    /// Another autoscaler leads by now.
    #[error("another autoscaler leads by now")]
    Deposed,
    /// What is done cannot be written down, so nothing is done.
    #[error("machines cannot be written down")]
    Unavailable(#[from] Error),
}

/// What became of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is being done.
    Done {
        /// The machine.
        machine: String,
    },
    /// It is done when the machine's jobs are.
    AfterItsJobs,
    /// It was not done, or perhaps not.
    Failed(String),
    /// It is not for us to do, or cannot be, as things are by now.
    LeftAlone(&'static str),
}

/// Of a machine that whoever asked names.
const DONE: Outcome = Outcome::Done { machine: String::new() };

/// Who does it: under this term, with these providers.
pub(crate) struct Hands<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) term: Term,
    pub(crate) providers: &'a Providers,
}

impl Hands<'_> {
    /// One step of a plan that was made of `seen`. Machines are looked up there, and written back.
    pub(crate) async fn step(&self, seen: &mut Seen, step: &Step) -> Result<Outcome, Stop> {
        match &step.action {
            Action::Rent { offer, bid_usd_per_hour, prefetch } => {
                let found = seen.offers.iter().find(|known| known.id == *offer).cloned();
                let Some(found) = found else { return Ok(Outcome::LeftAlone("there is no such offer by now")) };
                let prefetch = prefetch.iter().map(ToString::to_string).collect();
                self.rent(seen, found, *bid_usd_per_hour, prefetch).await
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
        seen: &mut Seen,
        id: &str,
        act: impl AsyncFnOnce(MachineRecord, &Seen) -> Result<(Option<MachineRecord>, Outcome), Stop>,
    ) -> Result<Outcome, Stop> {
        let Some(machine) = seen.machines.get(id).cloned() else {
            let is_joined = seen.workers.iter().any(|worker| worker.worker_id == id);
            let why = if is_joined { "it was not started from here" } else { "there is no such machine by now" };
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
        seen: &mut Seen,
        offer: Offer,
        bid_usd_per_hour: Option<f64>,
        prefetch: Vec<String>,
    ) -> Result<Outcome, Stop> {
        let Some(provider) = self.providers.get(&offer.provider) else {
            return Ok(Outcome::LeftAlone("there is no such provider"));
        };
        let id = provider.label(&offer, &seen.machines.keys().cloned().collect());
        let now_ms = now_ms();
        let mut machine = record(now_ms, &id, &offer, bid_usd_per_hour);
        // Its name may have been another's that was drained.
        told(self.registry.drain(self.term, &id, None).await?)?;
        self.write(&machine).await?;
        seen.machines.insert(id.clone(), machine.clone());
        let order = Order { label: id.clone(), offer: offer.clone(), bid_usd_per_hour, prefetch };
        let failure = match in_time(provider, provider.rent(&order)).await {
            Ok(rental) => {
                (machine.rental, machine.is_done) = (Some(rental), true);
                self.write(&machine).await?;
                seen.machines.insert(id.clone(), machine);
                return Ok(Outcome::Done { machine: id });
            }
            Err(failure) => failure,
        };
        match &failure {
            Failure::Refused(_) | Failure::Vanished(_) => {
                self.forget(&id, &[]).await?;
                seen.machines.remove(&id);
                if !provider.leaves_with_us() {
                    told(self.registry.shun(self.term, &offer.id, now_ms + REFUSED_MS).await?)?;
                }
            }
            // It is cleared up by what its provider lists.
            Failure::Unknown(_) => {}
            Failure::Made { rental, .. } => {
                machine.rental = Some(rental.clone());
                let machine = self.ask(machine, Wanted::Gone).await?.0;
                seen.machines.insert(id, machine);
            }
        }
        Ok(Outcome::Failed(failure.to_string()))
    }

    async fn resume(&self, machine: MachineRecord) -> Result<(Option<MachineRecord>, Outcome), Stop> {
        told(self.registry.drain(self.term, &machine.id, None).await?)?;
        let (machine, failure) =
            self.ask(MachineRecord { drained_ms: None, then: None, ..machine }, Wanted::Running).await?;
        Ok((Some(machine), failure.map_or(DONE, |why| Outcome::Failed(why.to_string()))))
    }

    /// From now on it is given no more jobs.
    async fn drain(&self, machine: &MachineRecord, then: Option<Wanted>) -> Result<MachineRecord, Stop> {
        let since_ms = machine.drained_ms.unwrap_or_else(now_ms);
        let machine = MachineRecord { drained_ms: Some(since_ms), then, ..machine.clone() };
        self.write(&machine).await?;
        told(self.registry.drain(self.term, &machine.id, Some(since_ms)).await?)?;
        Ok(machine)
    }

    async fn undrain(&self, machine: MachineRecord) -> Result<(Option<MachineRecord>, Outcome), Stop> {
        if machine.wanted != Wanted::Running {
            return Ok((Some(machine), Outcome::LeftAlone("it does not run by now")));
        }
        told(self.registry.drain(self.term, &machine.id, None).await?)?;
        let machine = MachineRecord { drained_ms: None, then: None, ..machine };
        self.write(&machine).await?;
        Ok((Some(machine), DONE))
    }

    /// Stops it or gives it back: now, if it certainly holds no job; else it is drained first.
    async fn end(
        &self,
        machine: MachineRecord,
        seen: &Seen,
        wanted: Wanted,
    ) -> Result<(Option<MachineRecord>, Outcome), Stop> {
        let is_lost = seen.worker_of(&machine).is_some_and(|worker| seen.is_silent(worker));
        if machine.wanted == Wanted::Running && !seen.is_done(&machine) && !is_lost {
            let machine = self.drain(&machine, Some(wanted)).await?;
            return Ok((Some(machine), Outcome::AfterItsJobs));
        }
        let (after, failure) = self.ended(machine, seen, wanted).await?;
        Ok((after, failure.map_or(DONE, |why| Outcome::Failed(why.to_string()))))
    }

    /// Stops it or gives it back. One that its provider keeps no list of is gone with that.
    pub(crate) async fn ended(
        &self,
        machine: MachineRecord,
        seen: &Seen,
        wanted: Wanted,
    ) -> Result<(Option<MachineRecord>, Option<Failure>), Stop> {
        let (machine, failure) = self.ask(machine, wanted).await?;
        let lists = self.providers.get(&machine.provider).is_some_and(Provider::keeps_list);
        if failure.is_none() && wanted == Wanted::Gone && !lists {
            self.forget(&machine.id, &seen.workers).await?;
            return Ok((None, None));
        }
        Ok((Some(machine), failure))
    }

    /// Has its provider do what is wanted of it: written down first, and the answer after.
    async fn ask(&self, mut machine: MachineRecord, wanted: Wanted) -> Result<(MachineRecord, Option<Failure>), Stop> {
        (machine.wanted, machine.wanted_ms, machine.is_done) = (wanted, now_ms(), false);
        self.write(&machine).await?;
        let Some(provider) = self.providers.get(&machine.provider) else {
            let why = Failure::Refused(format!("the provider {} is not in the settings", machine.provider));
            return Ok((machine, Some(why)));
        };
        let rental = match &machine.rental {
            Some(rental) => rental.clone(),
            None if !provider.keeps_list() => machine.id.clone(),
            // It may not be there; the list will tell.
            None => return Ok((machine, None)),
        };
        let answer = match wanted {
            Wanted::Running => in_time(provider, provider.resume(&rental)).await,
            Wanted::Stopped => in_time(provider, provider.stop(&rental)).await,
            Wanted::Gone => in_time(provider, provider.release(&rental)).await,
        };
        match answer {
            Ok(()) => {
                machine.is_done = true;
                self.write(&machine).await?;
                Ok((machine, None))
            }
            Err(failure) => Ok((machine, Some(failure))),
        }
    }

    pub(crate) async fn write(&self, machine: &MachineRecord) -> Result<(), Stop> {
        let written = self.registry.put_machine(self.term, machine).await?;
        told(written)
    }

    /// It is gone, and its worker with it.
    pub(crate) async fn forget(&self, id: &str, workers: &[WorkerRecord]) -> Result<(), Stop> {
        let gone: Vec<&str> =
            workers.iter().filter(|worker| worker.name == id).map(|worker| worker.worker_id.as_str()).collect();
        self.registry.drop_workers(&gone).await?;
        let forgotten = self.registry.drop_machine(self.term, id).await?;
        told(forgotten)
    }

    pub(crate) async fn shun(&self, host: &str, until_ms: u64) -> Result<(), Stop> {
        let shunned = self.registry.shun(self.term, host, until_ms).await?;
        told(shunned)
    }
}

/// A machine that is about to be, as it is written down first.
fn record(now_ms: u64, id: &str, offer: &Offer, bid_usd_per_hour: Option<f64>) -> MachineRecord {
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
        usd_micros_per_hour: micros(bid_usd_per_hour.unwrap_or(offer.usd_per_hour)),
        stopped_usd_micros_per_hour: micros(offer.stopped_usd_per_hour.unwrap_or(0.0)),
        is_interruptible: bid_usd_per_hour.is_some(),
        missed: 0,
        on_disk: Vec::new(),
    }
}

/// A machine of ours that somebody else has started, and whose worker is here.
pub(crate) fn adopted(seen_ms: u64, id: &str, offer: &Offer) -> MachineRecord {
    MachineRecord { rental: Some(id.to_owned()), is_done: true, ..record(seen_ms, id, offer, None) }
}

/// A write is refused to one that no longer leads.
fn told(is_ours: bool) -> Result<(), Stop> {
    if is_ours { Ok(()) } else { Err(Stop::Deposed) }
}
