//! Autoscalers that are killed at every await, stand still in the middle of a round while another leads, and rent from somebody where
//! everything goes wrong: what P12, I16 and I17 promise holds all the same. Seeded; time is simulated.

mod cloud;
mod fleet;
mod killed;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use stokehold_fake_vast::{Fault, OutbidLook, Route, Rule};
use stokehold_queue::registry::Term;

use self::cloud::World;
use self::fleet::Fleet;
use self::killed::{Killed, killed_after};
use crate::live::Settings;
use crate::live::look::Asker;
use crate::live::notices::Notices;
use crate::live::round::round;
use crate::mind::Mind;
use crate::observation::Traits;
use crate::policy::Policy;
use crate::provider::{Failure, Invites, Provider};
use crate::providers::Providers;
use crate::providers::vast::Vast;
use crate::secret::Secret;

/// How long a leader leads without saying so again, milliseconds.
const LEASE_MS: u64 = 15_000;

/// What may be rented at once, machines and dollars per hour.
const MACHINES: u32 = 12;
const USD_PER_HOUR: f64 = 4.0;

/// Rounds of one storm, and at most of the calm after it, in which everything is to end.
const ROUNDS: usize = 2_500;
const CALM_ROUNDS: usize = 3_000;

/// One autoscaler's life: what it has in memory, and is gone with it.
struct Scaler {
    holder: String,
    mind: Mind,
    asker: Asker,
    notices: Notices,
    providers: Providers,
    settings: Settings,
}

struct Anybody;

impl Invites for Anybody {
    fn invite<'a>(&'a self, _: &'a str, _: &'a Traits) -> BoxFuture<'a, Result<Secret, Failure>> {
        Box::pin(async { Ok(Secret::new("jt_storm")) })
    }
}

fn policy() -> Policy {
    Policy {
        max_machines: MACHINES,
        max_usd_per_hour: USD_PER_HOUR,
        max_rents_per_hour: 100_000,
        may_bid: true,
        host_penalty_s: 600.0,
        min_reliability: 0.0,
        ..Policy::default()
    }
}

impl Scaler {
    fn new(holder: String, world: &World) -> Self {
        let settings = Settings { tick: Duration::from_secs(2), policy: policy(), holder: None };
        let vast =
            Vast::new(cloud::settings(), &settings.policy, "http://gateway", "true".to_owned(), world.cloud.clone());
        let vast: Arc<dyn Provider> = Arc::new(vast.unwrap());
        Self {
            holder,
            mind: Mind::new(settings.policy.clone()),
            asker: Asker::new(settings.policy.min_credit_usd),
            notices: Notices::default(),
            providers: std::iter::once(vast).collect(),
            settings,
        }
    }

    /// One round in a term that may have ended by now. What is in memory lives on if it is not killed.
    async fn round(mut self, world: World, fleet: Fleet, term: Term) -> Self {
        let answers = self.asker.ask(&self.providers).await;
        let look = self.asker.look(world.seen(&fleet), answers);
        let clock = world.cloud.clock();
        let hands = self.settings.hands(&*world.ledger, &clock, term, &self.providers, Some(&Anybody));
        let patience = self.settings.patience();
        // What stops a round is what it is about.
        drop(round(&hands, &mut self.mind, patience, look, &mut self.notices, |_, _| {}).await);
        self.notices.end_round(clock.now_ms());
        self
    }
}

/// What goes wrong: everything that the reliability document lists for a provider, each for a while.
fn faults(random: &mut StdRng) -> Vec<Rule> {
    let after = |random: &mut StdRng| random.random_range(30.0..600.0);
    let mut rules = vec![
        Rule::on(Route::Rent, Fault::DropAfter { hold: false }).with_probability(0.15),
        Rule::on(Route::Rent, Fault::DropBefore { hold: false }).with_probability(0.1),
        Rule::on(Route::Rent, Fault::StatusAfter { status: 502 }).with_probability(0.1),
        Rule::on(Route::Rent, Fault::StatusBefore { status: 500 }).with_probability(0.05),
        Rule::on(Route::Rent, Fault::RefusedButCreated).with_probability(0.1),
        Rule::on(Route::Rent, Fault::NoSuchAsk { status: 404 }).with_probability(0.1),
        Rule::on(Route::Rent, Fault::Unsuccessful { message: "busy".into() }).with_probability(0.05),
        Rule::on(Route::Destroy, Fault::DropAfter { hold: false }).with_probability(0.2),
        Rule::on(Route::Destroy, Fault::StatusBefore { status: 503 }).with_probability(0.2),
        Rule::on(Route::Destroy, Fault::NotFoundForAuth).with_probability(0.1),
        Rule::on(Route::Set, Fault::StatusAfter { status: 504 }).with_probability(0.1),
        Rule::of(Fault::HiddenAtFirst { for_s: 45.0 }).with_probability(0.3),
        Rule::of(Fault::Ghost { for_s: 60.0 }).with_probability(0.3),
        Rule::of(Fault::StuckLoading).with_probability(0.1),
        Rule::of(Fault::RuntimeError).with_probability(0.1),
        Rule::of(Fault::SlowBoot { factor: 4.0 }).with_probability(0.1),
        Rule::of(Fault::Outbid { after_s: after(random), look: OutbidLook::Stopped }).with_probability(0.1),
        Rule::of(Fault::Outbid { after_s: after(random), look: OutbidLook::Loading }).with_probability(0.1),
        Rule::of(Fault::HostOffline { after_s: after(random), for_s: 300.0 }).with_probability(0.05),
        Rule::of(Fault::Exit { after_s: after(random) }).with_probability(0.05),
        Rule::on(Route::Search, Fault::Varying { keep: 0.7 }).with_probability(0.5),
    ];
    let lists = [
        Fault::EmptyList,
        Fault::PartialList,
        Fault::Malformed,
        Fault::Html,
        Fault::WrongType,
        Fault::StatusBefore { status: 500 },
        Fault::TooMany { retry_after_s: Some(3.0) },
        Fault::NotFoundForAuth,
        Fault::DropBefore { hold: true },
    ];
    let fault = lists[random.random_range(0..lists.len())].clone();
    rules.push(Rule::on(Route::List, fault).with_probability(if random.random_bool(0.3) { 0.9 } else { 0.05 }));
    rules
}

/// What a storm came to.
#[derive(Debug, Default)]
struct Outcome {
    rounds: usize,
    kills: usize,
    /// At how many different awaits.
    places: std::collections::BTreeSet<usize>,
    /// Rounds that stood still while another led, and went on after.
    stood_still: usize,
    rented: usize,
    wrong: Vec<String>,
}

/// `rounds` of a storm, and calm after it.
async fn storm(seed: u64, rounds: usize) -> Outcome {
    let mut random = StdRng::seed_from_u64(seed);
    let world = World::new(seed);
    let fleet = Fleet::default();
    let mut outcome = Outcome::default();
    let mut still: Vec<(tokio::time::Instant, BoxFuture<'static, Killed<Scaler>>)> = Vec::new();
    let (mut scalers, mut last): ([Option<Scaler>; 2], usize) = ([None, None], 0);
    // What the longest of the last rounds took.
    let (mut lives, mut polls) = (0, 10.0_f64);
    for n in 0..rounds + CALM_ROUNDS {
        let is_calm = n >= rounds;
        if is_calm && still.is_empty() && world.is_empty() {
            break;
        }
        if n % 50 == 0 {
            world.cloud.set_faults(if is_calm { Vec::new() } else { faults(&mut random) });
        }
        tokio::time::sleep(Duration::from_secs_f64(random.random_range(1.0..10.0))).await;
        fleet.step(&world, &mut random, is_calm);
        // Those that stood still go on, whoever leads by now.
        let now = tokio::time::Instant::now();
        while let Some(place) = still.iter().position(|(until, _)| *until <= now) {
            drop(still.swap_remove(place).1.await);
        }
        // The one that led last is likelier to lead still.
        let who = if random.random_bool(0.8) { last } else { 1 - last };
        let scaler = scalers[who].take().unwrap_or_else(|| {
            lives += 1;
            Scaler::new(format!("a-{lives}"), &world)
        });
        let Some(term) = world.ledger.lead(&scaler.holder, LEASE_MS) else {
            scalers[who] = Some(scaler);
            continue;
        };
        last = who;
        let going = scaler.round(world.clone(), fleet.clone(), term);
        outcome.rounds += 1;
        let (is_killed, stands_still) = (!is_calm && random.random_bool(0.6), !is_calm && random.random_bool(0.05));
        let after = if is_killed || stands_still { random.random_range(0..polls.ceil() as usize) } else { usize::MAX };
        match killed_after(after, Box::pin(going)).await {
            Killed::Ended(took, scaler) => {
                scalers[who] = Some(scaler);
                polls = (polls * 0.9).max(took as f64);
            }
            Killed::At(place, rest) => {
                outcome.kills += usize::from(!stands_still);
                outcome.places.insert(place);
                if stands_still {
                    outcome.stood_still += 1;
                    let until = tokio::time::Instant::now() + Duration::from_secs(random.random_range(5..300));
                    still.push((until, Box::pin(killed_after(usize::MAX, rest))));
                }
            }
        }
        world.check(&fleet, is_calm, &mut outcome.wrong);
    }
    world.check_end(&mut outcome.wrong);
    outcome.rented = world.cloud.rented();
    outcome
}

fn run(seed: u64, rounds: usize) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(storm(seed, rounds))
}

/// Ten seeds of a thousand rounds each, two at a time.
#[test]
fn whatever_happens_to_it_an_autoscaler_orphans_nothing_buys_nothing_twice_and_stays_within_its_limits() {
    let seeds: Vec<u64> = (1..=10).collect();
    let storms: Vec<Outcome> = std::thread::scope(|scope| {
        let halves: Vec<_> = seeds
            .chunks(5)
            .map(|seeds| scope.spawn(move || seeds.iter().map(|seed| run(*seed, ROUNDS)).collect::<Vec<_>>()))
            .collect();
        halves.into_iter().flat_map(|half| half.join().unwrap()).collect()
    });
    for (seed, storm) in seeds.iter().zip(&storms) {
        assert_eq!(storm.wrong, Vec::<String>::new(), "seed {seed}: {storm:?}");
    }
    let sum = |of: fn(&Outcome) -> usize| storms.iter().map(of).sum::<usize>();
    let (rounds, kills, rented) = (sum(|it| it.rounds), sum(|it| it.kills), sum(|it| it.rented));
    let places: std::collections::BTreeSet<usize> = storms.iter().flat_map(|it| it.places.clone()).collect();
    let still = sum(|it| it.stood_still);
    println!("{rounds} rounds, {kills} kills at {} awaits, {still} stood still, {rented} rented", places.len());
    assert!(
        rounds > 10_000 && kills > 3_000 && places.len() > 20 && still > 100 && rented > 300,
        "nothing much happened"
    );
}
