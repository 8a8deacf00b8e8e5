//! Executes plans without making choices: each intent is written to the ledger, then requested from the provider, then
//! the response is written.

use stokehold_queue::registry::{Caps, Granted, MachineRecord, Term, Wanted};
use stokehold_queue::{Clock, Error, WorkerRecord};

use crate::money::micros;
use crate::observation::Offer;
use crate::observe::RawState;
use crate::plan::{Action, Step};
use crate::provider::{Failure, Invites, Order, Provider, in_time};
use crate::providers::Providers;
use crate::rental_ledger::RentalLedger;
use crate::secret::Secret;

/// Cooldown of an offer that was refused or has vanished, milliseconds.
const REFUSED_MS: u64 = 60_000;

/// Maximum time between writing an intent and the request, milliseconds. After a longer pause another autoscaler may
/// have led and struck the intent off.
const SOON_MS: u64 = 10_000;

/// Reason to stop executing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stop {
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
    /// The step is carried out when the machine's jobs have ended.
    AfterItsJobs,
    /// The step failed, or its outcome is unknown.
    Failed(String),
    /// The step is not possible any more, or not the autoscaler's to take.
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
    /// Executes a step of a plan that was made of `seen`, and updates the machines in it.
    pub(crate) async fn step(&self, seen: &mut RawState, step: &Step) -> Result<Outcome, Stop> {
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
        act: impl AsyncFnOnce(MachineRecord, &RawState) -> Result<(Option<MachineRecord>, Outcome), Stop>,
    ) -> Result<Outcome, Stop> {
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

    async fn rent(&self, seen: &mut RawState, offer: Offer, bid_usd_per_hour: Option<f64>) -> Result<Outcome, Stop> {
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
        told(self.ledger.drain(self.term, &id, None).await?)?;
        match self.ledger.rent(self.term, &machine, self.caps).await? {
            Granted::Yes => drop(seen.machines.insert(id.clone(), machine.clone())),
            Granted::Stale => return Err(Stop::Deposed),
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
            Failure::Refused(_) | Failure::Vanished(_) => {
                self.forget(&id, &[]).await?;
                seen.machines.remove(&id);
                if !provider.leaves_with_us() {
                    told(self.ledger.cool_down(self.term, &offer.id, now_ms + REFUSED_MS).await?)?;
                }
            }
            // The provider's list resolves it.
            Failure::Unknown(_) => {}
            Failure::Made { rental, .. } => {
                machine.rental = Some(rental.clone());
                let machine = self.ask(machine, Wanted::Gone).await?.0;
                seen.machines.insert(id, machine);
            }
        }
        Ok(Outcome::Failed(failure.to_string()))
    }

    /// Records the charged price of a new machine before anything more is rented, because its offer may be outdated or
    /// wrong.
    async fn priced(&self, provider: &dyn Provider, machine: MachineRecord) -> Result<MachineRecord, Stop> {
        let rental = machine.rental.as_deref().unwrap_or_default();
        let usd_per_hour = match in_time(provider, provider.price(rental)).await {
            Ok(usd_per_hour) => usd_per_hour,
            Err(failure) => {
                tracing::debug!(machine.id = machine.id, %failure, "price not known yet; it is read from the next list");
                None
            }
        };
        let Some(charged) = usd_per_hour.map(micros).filter(|micros| *micros != machine.usd_micros_per_hour) else {
            return Ok(machine);
        };
        let machine = MachineRecord { usd_micros_per_hour: charged, ..machine };
        self.write(&machine).await?;
        Ok(machine)
    }

    /// Issues the join token of a worker, if its provider passes one on.
    async fn invite(&self, provider: &dyn Provider, id: &str, offer: &Offer) -> Result<Secret, Failure> {
        match self.invites {
            Some(invites) if provider.takes_join_token() => invites.invite(id, &offer.traits).await,
            None if provider.takes_join_token() => {
                Err(Failure::Refused("no join token can be made for its worker".to_owned()))
            }
            _ => Ok(Secret::default()),
        }
    }

    async fn resume(&self, machine: MachineRecord) -> Result<(Option<MachineRecord>, Outcome), Stop> {
        told(self.ledger.drain(self.term, &machine.id, None).await?)?;
        let wanted = MachineRecord { drained_ms: None, then: None, ..machine.clone() };
        let wanted = self.wanted(wanted, Wanted::Running);
        match self.ledger.rent(self.term, &wanted, self.caps).await? {
            Granted::Yes => {}
            Granted::Stale => return Err(Stop::Deposed),
            withheld => return Ok((Some(machine), Outcome::Withheld(withheld))),
        }
        let (machine, failure) = self.call(wanted).await?;
        Ok((Some(machine), failure.map_or(DONE, |why| Outcome::Failed(why.to_string()))))
    }

    /// Stops giving a machine new jobs.
    pub(crate) async fn drain(&self, machine: &MachineRecord, then: Option<Wanted>) -> Result<MachineRecord, Stop> {
        let since_ms = machine.drained_ms.unwrap_or_else(|| self.clock.now_ms());
        let machine = MachineRecord { drained_ms: Some(since_ms), then, ..machine.clone() };
        self.write(&machine).await?;
        told(self.ledger.drain(self.term, &machine.id, Some(since_ms)).await?)?;
        Ok(machine)
    }

    async fn undrain(&self, machine: MachineRecord) -> Result<(Option<MachineRecord>, Outcome), Stop> {
        if machine.wanted != Wanted::Running {
            return Ok((Some(machine), Outcome::LeftAlone("it no longer runs")));
        }
        told(self.ledger.drain(self.term, &machine.id, None).await?)?;
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
    ) -> Result<(Option<MachineRecord>, Outcome), Stop> {
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
    ) -> Result<(Option<MachineRecord>, Option<Failure>), Stop> {
        let (machine, failure) = self.ask(machine, wanted).await?;
        Ok((Some(machine), failure))
    }

    /// Writes the wanted state of a machine, requests it from the provider, and writes the response.
    async fn ask(&self, machine: MachineRecord, wanted: Wanted) -> Result<(MachineRecord, Option<Failure>), Stop> {
        let machine = self.wanted(machine, wanted);
        self.write(&machine).await?;
        self.call(machine).await
    }

    /// The record of a machine with a new wanted state that is not requested yet.
    fn wanted(&self, machine: MachineRecord, wanted: Wanted) -> MachineRecord {
        let released_ms = machine.released_ms.filter(|_| wanted == Wanted::Gone);
        MachineRecord { wanted, wanted_ms: self.clock.now_ms(), is_done: false, then: None, released_ms, ..machine }
    }

    async fn call(&self, mut machine: MachineRecord) -> Result<(MachineRecord, Option<Failure>), Stop> {
        let Some(provider) = self.providers.get(&machine.provider) else {
            let why = Failure::Refused(format!("provider {} is not configured", machine.provider));
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

    pub(crate) async fn write(&self, machine: &MachineRecord) -> Result<(), Stop> {
        let written = self.ledger.put_machine(self.term, machine).await?;
        told(written)
    }

    /// Removes a machine and its worker from the ledger.
    pub(crate) async fn forget(&self, id: &str, workers: &[WorkerRecord]) -> Result<(), Stop> {
        let gone: Vec<&str> =
            workers.iter().filter(|worker| worker.name == id).map(|worker| worker.worker_id.as_str()).collect();
        self.ledger.drop_workers(&gone).await?;
        let forgotten = self.ledger.drop_machine(self.term, id).await?;
        told(forgotten)
    }

    pub(crate) async fn cool_down(&self, host: &str, until_ms: u64) -> Result<(), Stop> {
        let written = self.ledger.cool_down(self.term, host, until_ms).await?;
        told(written)
    }
}

/// Record of a machine before it is rented.
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
        agreed_usd_micros_per_hour: Some(micros(bid_usd_per_hour.unwrap_or(offer.usd_per_hour))),
        booting_usd_micros_per_hour: None,
        made_ms: None,
        released_ms: None,
        stopped_usd_micros_per_hour: micros(offer.stopped_usd_per_hour.unwrap_or(0.0)),
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
fn told(is_ours: bool) -> Result<(), Stop> {
    if is_ours { Ok(()) } else { Err(Stop::Deposed) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use futures::future::BoxFuture;
    use stokehold_queue::registry::Registry;
    use stokehold_queue::{RedisConfig, Shards, now_ms};
    use stokehold_tests::redis_server::RedisServer;

    use super::*;
    use crate::plan::Reason;
    use crate::provider::Rental;

    /// Answers every rent as it is told to, and notes what it was asked.
    struct Cloud {
        answer: Mutex<Result<String, Failure>>,
        asked: Mutex<Vec<String>>,
        registry: Registry,
    }

    impl Cloud {
        fn note(&self, what: String) {
            self.asked.lock().unwrap().push(what);
        }
    }

    impl Provider for Cloud {
        fn name(&self) -> &'static str {
            "cloud"
        }
        fn offers(&self) -> BoxFuture<'_, Result<Vec<Offer>, Failure>> {
            Box::pin(async { Ok(vec![offer()]) })
        }
        fn rentals(&self) -> BoxFuture<'_, Result<Option<Vec<Rental>>, Failure>> {
            Box::pin(async { Ok(Some(vec![])) })
        }
        fn rent<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<String, Failure>> {
            Box::pin(async {
                let written = self.registry.machines().await.unwrap();
                assert!(written.contains_key(&order.label), "it is written down before anybody is asked");
                self.note("rent".to_owned());
                let answer = self.answer.lock().unwrap().clone();
                match answer {
                    Err(Failure::Unknown(why)) if why == "silence" => std::future::pending().await,
                    answer => answer,
                }
            })
        }
        fn stop<'a>(&'a self, rental: &'a str) -> BoxFuture<'a, Result<(), Failure>> {
            self.note(format!("stop {rental}"));
            Box::pin(async { Ok(()) })
        }
        fn resume<'a>(&'a self, rental: &'a str) -> BoxFuture<'a, Result<(), Failure>> {
            self.note(format!("resume {rental}"));
            Box::pin(async { Ok(()) })
        }
        fn release<'a>(&'a self, rental: &'a str) -> BoxFuture<'a, Result<(), Failure>> {
            self.note(format!("release {rental}"));
            Box::pin(async { Ok(()) })
        }
        fn call_limit(&self) -> Duration {
            Duration::from_millis(200)
        }
        fn join_limit(&self) -> Duration {
            Duration::from_secs(900)
        }
    }

    fn offer() -> Offer {
        let offer = serde_json::json!({"id": "77", "provider": "cloud", "kind": "RTX 4090", "host": "box-3", "count": 1,
            "cards": 1, "vram_gb": 24.0, "speed": 1.0, "usd_per_hour": 0.35, "stopped_usd_per_hour": 0.01, "boot_s": 90.0});
        serde_json::from_value(offer).unwrap()
    }

    struct World {
        cloud: Arc<Cloud>,
        providers: Providers,
        registry: Registry,
        term: Term,
        seen: RawState,
        caps: Caps,
        _server: (RedisServer, tempfile::TempDir),
    }

    impl World {
        async fn new(answer: Result<String, Failure>) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let server = RedisServer::start(dir.path(), &[]);
            let queue = Shards::connect(RedisConfig { url: server.url(), ..RedisConfig::default() }).await.unwrap();
            let registry = queue.registry();
            let term = registry.lead("test", 60_000).await.unwrap().unwrap();
            let asked = Mutex::default();
            let cloud = Arc::new(Cloud { answer: Mutex::new(answer), asked, registry: registry.clone() });
            let providers = std::iter::once(cloud.clone() as Arc<dyn Provider>).collect();
            let seen = RawState { now_ms: now_ms(), offers: vec![offer()], ..RawState::default() };
            let caps = Caps { machines: 2, usd_micros_per_hour: 600_000, rents: 3, window_ms: 60_000 };
            Self { cloud, providers, registry, term, seen, caps, _server: (server, dir) }
        }

        async fn does(&mut self, action: Action) -> Result<Outcome, Stop> {
            let executor = Executor {
                ledger: &self.registry,
                clock: &Clock::Own,
                term: self.term,
                caps: self.caps,
                providers: &self.providers,
                invites: None,
                is_urgent: false,
            };
            executor.step(&mut self.seen, &Step { action, reason: Reason::Lost }).await
        }

        async fn rent(&mut self) -> Result<Outcome, Stop> {
            self.does(Action::Rent { offer: "77".into(), bid_usd_per_hour: None, no_bid: None }).await
        }

        async fn only(&self) -> MachineRecord {
            let machines = self.registry.machines().await.unwrap();
            assert_eq!(machines, self.seen.machines, "what is known is what is written down");
            machines.into_values().next().unwrap()
        }

        fn asked(&self) -> Vec<String> {
            std::mem::take(&mut *self.cloud.asked.lock().unwrap())
        }
    }

    #[tokio::test]
    async fn a_machine_is_rented_stopped_resumed_and_released() {
        let mut world = World::new(Ok("9001".to_owned())).await;
        let Outcome::Done { machine } = world.rent().await.unwrap() else { panic!() };
        let machine = crate::Name::from(machine);
        let rented = world.only().await;
        assert_eq!(
            (rented.rental.as_deref(), rented.is_done, rented.usd_micros_per_hour),
            (Some("9001"), true, 350_000)
        );
        world.does(Action::Stop { machine: machine.clone() }).await.unwrap();
        assert_eq!((world.only().await.wanted, world.only().await.is_done), (Wanted::Stopped, true));
        world.does(Action::Resume { machine: machine.clone() }).await.unwrap();
        assert_eq!(world.only().await.wanted, Wanted::Running);
        world.does(Action::Release { machine: machine.clone() }).await.unwrap();
        assert_eq!(world.only().await.wanted, Wanted::Gone, "its record stays until it is seen to be gone");
        assert_eq!(world.asked(), ["rent", "stop 9001", "resume 9001", "release 9001"]);
    }

    #[tokio::test]
    async fn no_more_is_rented_than_may_be_spent_and_what_is_being_given_back_still_counts() {
        let mut world = World::new(Ok("9001".to_owned())).await;
        let Outcome::Done { machine } = world.rent().await.unwrap() else { panic!() };
        assert_eq!(world.rent().await.unwrap(), Outcome::Withheld(Granted::Spend(350_000)), "0.70 of 0.60");
        world.does(Action::Release { machine: crate::Name::from(machine) }).await.unwrap();
        assert_eq!(world.rent().await.unwrap(), Outcome::Withheld(Granted::Spend(350_000)), "it may be there still");
        world.caps.usd_micros_per_hour = 2_000_000;
        assert!(matches!(world.rent().await.unwrap(), Outcome::Done { .. }));
        assert_eq!(world.rent().await.unwrap(), Outcome::Withheld(Granted::Machines(2)));
        world.caps.machines = 10;
        assert!(matches!(world.rent().await.unwrap(), Outcome::Done { .. }));
        assert_eq!(world.rent().await.unwrap(), Outcome::Withheld(Granted::Rents(3)), "three within a minute");
        assert_eq!(world.asked(), ["rent", "release 9001", "rent", "rent"]);
    }

    #[tokio::test]
    async fn what_is_refused_leaves_nothing_behind_and_the_offer_is_left_alone() {
        let mut world = World::new(Err(Failure::Vanished("rented by somebody else".to_owned()))).await;
        assert!(matches!(world.rent().await.unwrap(), Outcome::Failed(_)));
        assert!(world.registry.machines().await.unwrap().is_empty());
        assert!(world.registry.shunned().await.unwrap().contains_key("77"));
    }

    #[tokio::test]
    async fn a_rent_that_is_not_answered_stays_written_down() {
        let mut world = World::new(Err(Failure::Unknown("silence".to_owned()))).await;
        assert!(matches!(world.rent().await.unwrap(), Outcome::Failed(_)));
        let machine = world.only().await;
        assert_eq!((machine.rental, machine.is_done, machine.wanted), (None, false, Wanted::Running));
    }

    #[tokio::test]
    async fn what_an_error_left_behind_is_given_back() {
        let made = Failure::Made { rental: "9002".to_owned(), why: "500".to_owned() };
        let mut world = World::new(Err(made)).await;
        assert!(matches!(world.rent().await.unwrap(), Outcome::Failed(_)));
        assert_eq!(world.asked(), ["rent", "release 9002"]);
        assert_eq!(world.only().await.wanted, Wanted::Gone);
    }

    #[tokio::test]
    async fn one_that_has_been_deposed_asks_nobody() {
        let mut world = World::new(Ok("9001".to_owned())).await;
        world.registry.lead("test", 0).await.unwrap();
        world.registry.lead("another", 60_000).await.unwrap();
        assert!(matches!(world.rent().await, Err(Stop::Deposed)));
        assert_eq!(world.asked(), [""; 0]);
    }

    #[tokio::test]
    async fn a_machine_with_jobs_is_drained_before_it_goes() {
        let mut world = World::new(Ok("9001".to_owned())).await;
        let Outcome::Done { machine } = world.rent().await.unwrap() else { panic!() };
        let worker = serde_json::json!({"worker_id": "w_1", "name": machine, "release": "", "slots": 1, "gpus": [],
            "joined_ms": now_ms(), "seen_ms": now_ms() + 1_000, "status": {"running": 1}});
        world.seen.workers = vec![serde_json::from_value(worker).unwrap()];
        let release = || Action::Release { machine: machine.as_str().into() };
        assert_eq!(world.does(release()).await.unwrap(), Outcome::AfterItsJobs);
        let draining = world.only().await;
        assert_eq!((draining.wanted, draining.then), (Wanted::Running, Some(Wanted::Gone)));
        assert!(world.registry.drains().await.unwrap().contains_key(&machine));
        world.does(Action::Undrain { machine: machine.as_str().into() }).await.unwrap();
        assert_eq!((world.only().await.then, world.registry.drains().await.unwrap().len()), (None, 0));
        world.does(release()).await.unwrap();
        let status = &mut world.seen.workers[0];
        (status.status.running, status.status.draining, status.seen_ms) = (0, true, now_ms() + 10_000);
        world.does(release()).await.unwrap();
        assert_eq!(world.asked(), ["rent", "release 9001"]);
    }
}
