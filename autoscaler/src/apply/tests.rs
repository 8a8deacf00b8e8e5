#![allow(clippy::unwrap_used, reason = "tests")]
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use stokehold_planner::plan::Reason;
use stokehold_queue::registry::Registry;
use stokehold_queue::{RedisConfig, Shards, now_ms};
use stokehold_tests::redis_server::RedisServer;

use super::*;
use crate::provider::Rental;

/// A provider that answers every rent with the given outcome and records the calls.
struct Cloud {
    answer: Mutex<Result<String, ProviderError>>,
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
    fn offers(&self) -> BoxFuture<'_, Result<Vec<Offer>, ProviderError>> {
        Box::pin(async { Ok(vec![offer()]) })
    }
    fn rentals(&self) -> BoxFuture<'_, Result<Option<Vec<Rental>>, ProviderError>> {
        Box::pin(async { Ok(Some(vec![])) })
    }
    fn rent<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<String, ProviderError>> {
        Box::pin(async {
            let written = self.registry.machines().await.unwrap();
            assert!(written.contains_key(&order.label), "it is written down before anybody is asked");
            self.note("rent".to_owned());
            let answer = self.answer.lock().unwrap().clone();
            match answer {
                Err(ProviderError::Unknown(why)) if why == "silence" => std::future::pending().await,
                answer => answer,
            }
        })
    }
    fn stop<'a>(&'a self, rental: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
        self.note(format!("stop {rental}"));
        Box::pin(async { Ok(()) })
    }
    fn resume<'a>(&'a self, rental: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
        self.note(format!("resume {rental}"));
        Box::pin(async { Ok(()) })
    }
    fn release<'a>(&'a self, rental: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
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
        "cards": 1, "vram_gib": 24.0, "speed": 1.0, "usd_per_hour": 0.35, "stopped_usd_per_hour": 0.01, "boot_s": 90.0});
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
    async fn new(answer: Result<String, ProviderError>) -> Self {
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

    async fn does(&mut self, action: Action) -> Result<Outcome, ExecutorError> {
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

    async fn rent(&mut self) -> Result<Outcome, ExecutorError> {
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
    let machine = stokehold_planner::Name::from(machine);
    let rented = world.only().await;
    assert_eq!((rented.rental.as_deref(), rented.is_done, rented.usd_micros_per_hour), (Some("9001"), true, 350_000));
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
    world.does(Action::Release { machine: stokehold_planner::Name::from(machine) }).await.unwrap();
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
    let mut world = World::new(Err(ProviderError::Vanished("rented by somebody else".to_owned()))).await;
    assert!(matches!(world.rent().await.unwrap(), Outcome::Failed(_)));
    assert!(world.registry.machines().await.unwrap().is_empty());
    assert!(world.registry.shunned().await.unwrap().contains_key("77"));
}

#[tokio::test]
async fn a_rent_that_is_not_answered_stays_written_down() {
    let mut world = World::new(Err(ProviderError::Unknown("silence".to_owned()))).await;
    assert!(matches!(world.rent().await.unwrap(), Outcome::Failed(_)));
    let machine = world.only().await;
    assert_eq!((machine.rental, machine.is_done, machine.wanted), (None, false, Wanted::Running));
}

#[tokio::test]
async fn what_an_error_left_behind_is_given_back() {
    let made = ProviderError::Made { rental: "9002".to_owned(), why: "500".to_owned() };
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
    assert!(matches!(world.rent().await, Err(ExecutorError::Deposed)));
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
