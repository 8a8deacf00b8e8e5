//! Rents with an unknown outcome: the autoscaler was killed or suspended, or the list does not show the machine.

use std::pin::Pin;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use stokehold_fake_vast::{self as fake, Fault, Listing, Route, Rule};
use stokehold_planner::Policy;

use super::super::LEASE_MS;
use super::super::cloud::id_of;
use super::super::fleet::Endpoint;
use super::super::killed::{Killed, killed_after};
use super::super::scaler::Scaler;
use super::super::stage::{Stage, market, play, policy};
use super::{DRAW, FILM, listing};

/// An orphan is adopted or destroyed within this time, seconds.
const ORPHAN_S: f64 = 600.0;

type Going = Pin<Box<dyn Future<Output = Scaler> + Send>>;

/// A stage on which one machine has to exist, and never a second one unless `may_be_two`.
fn one_machine(seed: u64, boot_s: f64, may_be_two: bool) -> Stage {
    let market = stokehold_fake_vast::Settings { boot_s: (boot_s, boot_s), ..market(8, &listing()) };
    let policy = Policy { min_machines: 1, max_machines: 1 + u32::from(may_be_two), ..policy() };
    Stage::new(seed, market, policy, &[DRAW])
}

/// Whether there are machines, and each is in the ledger with its number and serves.
fn all_serve(stage: &Stage) -> bool {
    let rows = stage.world.ledger.rows();
    let instances = stage.world.cloud.instances();
    !instances.is_empty()
        && instances.iter().all(|instance| {
            let id = id_of(instance["label"].as_str().unwrap_or_default());
            let rental = rows.machines.get(id).and_then(|machine| machine.rental.clone());
            rental == Some(instance["id"].to_string()) && stage.fleet.serves(id)
        })
}

/// Polls a round until `is_so` holds, and `more` times after that. Returns the suspended round, or the autoscaler if
/// the round has ended.
async fn until(mut going: Going, mut more: usize, is_so: impl Fn() -> bool) -> Result<Scaler, Going> {
    loop {
        match killed_after(1, going).await {
            Killed::Ended(_, scaler) => return Ok(scaler),
            Killed::At(_, rest) => going = rest,
        }
        if is_so() {
            if more == 0 {
                return Err(going);
            }
            more -= 1;
        }
    }
}

/// A thousand small GPUs cost less than the first sufficient one, and a response holds 64.
pub(in super::super) fn large_among_small() -> Vec<String> {
    play(async {
        let small =
            Listing { gpu_name: "RTX 3060".into(), usd_per_hour: 0.05, min_bid_usd_per_hour: 0.03, ..listing() };
        let listings = [vec![small; 1_000], vec![listing(); 3]].concat();
        let market = fake::Settings { listings, ..market(0, &listing()) };
        let large = Endpoint { name: "write", class: 20, ..DRAW };
        let mut stage = Stage::new(1, market, Policy { may_bid: true, ..policy() }, &[large, DRAW]);
        stage.submit(0, 3);
        stage.run_until(40.0, "one that holds it is rented", |stage| stage.world.cloud.rented() > 0).await;
        stage.run_until(600.0, "the work is done", |stage| stage.fleet.count(0) == (0, 3)).await;
        // The same with an additional small job, for which every offer is suitable.
        stage.submit(1, 1);
        stage.run_for(60.0).await;
        stage.run_until(3_600.0, "all is given back", |stage| stage.world.is_empty()).await;
        let before = stage.world.cloud.rented();
        stage.submit(1, 1);
        stage.submit(0, 1);
        stage.run_until(60.0, "each is rented for", |stage| stage.world.cloud.rented() > before).await;
        stage.run_until(600.0, "both are done", |stage| stage.fleet.count(0) == (0, 4)).await;
        stage.end()
    })
}

/// Batch work that can wait for some minutes, in a market of many pages.
pub(in super::super) fn bids_for_batch() -> Vec<String> {
    play(async {
        let policy = Policy { may_bid: true, batch_target_s: 500.0, ..policy() };
        let mut stage = Stage::new(1, market(600, &listing()), policy, &[FILM]);
        stage.submit(0, 12);
        stage.run_until(300.0, "one is rented", |stage| stage.world.cloud.rented() > 0).await;
        let bids =
            stage.world.ledger.rows().machines.values().map(|machine| machine.is_interruptible).collect::<Vec<_>>();
        stage.claim(bids.iter().all(|is_bid| *is_bid), format!("bids: {bids:?}"));
        stage.run_until(1_200.0, "the work is done", |stage| stage.fleet.count(0) == (0, 12)).await;
        stage.end()
    })
}

pub(in super::super) fn killed_in_the_middle() -> Vec<String> {
    (0..20).flat_map(|n| play(killed_at(n))).collect()
}

async fn killed_at(n: u64) -> Vec<String> {
    let mut stage = one_machine(n, 20.0 + 10.0 * n as f64, false);
    if n % 4 == 3 {
        stage.world.cloud.set_faults(vec![Rule::of(Fault::HiddenAtFirst { for_s: 45.0 })]);
    }
    stage.pass(4.0).await;
    let scaler = stage.next();
    let term = stage.world.ledger.lead(&scaler.holder, LEASE_MS).unwrap();
    let going = Box::pin(scaler.round(stage.world.clone(), stage.fleet.clone(), term));
    let cloud = stage.world.cloud.clone();
    // The provider has carried out the rent, and the answer is in transit, being read, or being written to the ledger.
    let is_killed = until(going, (n % 3) as usize, || cloud.rented() > 0).await.is_err();
    stage.claim(is_killed, format!("{n}: the round came to its end"));
    stage.run_until(ORPHAN_S, "the machine is adopted", all_serve).await;
    stage.run_for(ORPHAN_S).await;
    let rented = stage.world.cloud.rented();
    stage.claim(rented == 1, format!("{n}: {rented} were rented"));
    stage.end()
}

pub(in super::super) fn answer_lost() -> Vec<String> {
    let faults =
        [Fault::DropAfter { hold: false }, Fault::DropAfter { hold: true }, Fault::StatusAfter { status: 502 }];
    let of = async |(seed, fault)| {
        let mut stage = one_machine(seed, 60.0, false);
        stage.world.cloud.set_faults(vec![Rule::on(Route::Rent, fault).times(1)]);
        stage.run_until(ORPHAN_S, "the machine is found", all_serve).await;
        stage.run_for(ORPHAN_S).await;
        let rented = stage.world.cloud.rented();
        stage.claim(rented == 1, format!("{rented} were rented"));
        stage.end()
    };
    (0..).zip(faults).flat_map(|it| play(of(it))).collect()
}

/// The list may lack a new machine for a minute and a half.
pub(in super::super) fn hidden_for_a_while() -> Vec<String> {
    play(async {
        let mut stage = one_machine(1, 110.0, false);
        let faults =
            [Rule::on(Route::Rent, Fault::DropAfter { hold: false }), Rule::of(Fault::HiddenAtFirst { for_s: 96.0 })];
        stage.world.cloud.set_faults(faults.map(|rule| rule.times(1)).to_vec());
        stage.run_until(ORPHAN_S, "the machine is found", all_serve).await;
        stage.run_for(ORPHAN_S).await;
        let rented = stage.world.cloud.rented();
        stage.claim(rented == 1, format!("{rented} were rented"));
        stage.end()
    })
}

/// A machine that is absent for longer cannot be distinguished from one that was never created.
pub(in super::super) fn hidden_for_long() -> Vec<String> {
    play(async {
        let mut stage = one_machine(1, 190.0, true);
        let faults =
            [Rule::on(Route::Rent, Fault::DropAfter { hold: false }), Rule::of(Fault::HiddenAtFirst { for_s: 180.0 })];
        stage.world.cloud.set_faults(faults.map(|rule| rule.times(1)).to_vec());
        stage.run_until(ORPHAN_S, "another is rented", |stage| stage.world.cloud.rented() == 2).await;
        stage.run_for(180.0).await;
        stage
            .run_until(ORPHAN_S, "the first is destroyed", |stage| {
                stage.world.cloud.instances().len() == 1 && all_serve(stage)
            })
            .await;
        let rented = stage.world.cloud.rented();
        stage.claim(rented == 2, format!("{rented} were rented"));
        stage.end()
    })
}

pub(in super::super) fn two_at_once() -> Vec<String> {
    (0..6).flat_map(|seed| play(two(seed))).collect()
}

async fn two(seed: u64) -> Vec<String> {
    let mut random = StdRng::seed_from_u64(seed);
    let policy = Policy { max_machines: 4, max_usd_per_hour: 1.5, host_penalty_s: 300.0, ..policy() };
    let mut stage = Stage::new(seed, market(60, &listing()), policy, &[DRAW]);
    // Every machine exits, so that another one is rented repeatedly.
    stage.world.cloud.set_faults(vec![Rule::of(Fault::Exit { after_s: 100.0 })]);
    let mut scalers: [Option<Scaler>; 2] = std::array::from_fn(|_| Some(stage.next()));
    let mut still: Vec<(f64, Going, u64)> = Vec::new();
    let mut stood = 0;
    for n in 0..600 {
        stage.pass(random.random_range(2.0..9.0)).await;
        if random.random_bool(0.2) {
            stage.submit(0, random.random_range(1..60));
        }
        let now_s = stage.now_s();
        while let Some(place) = still.iter().position(|(until_s, ..)| *until_s <= now_s) {
            let (_, going, term) = still.swap_remove(place);
            let before = stage.world.ledger.rows().machines.clone();
            let is_old = stage.world.ledger.rows().term != term;
            drop(going.await);
            let is_same = stage.world.ledger.rows().machines == before;
            stage.claim(is_same || !is_old, format!("{n}: written in an old term"));
        }
        let who = usize::from(random.random_bool(0.3));
        let scaler = scalers[who].take().unwrap_or_else(|| stage.next());
        let Some(term) = stage.world.ledger.lead(&scaler.holder, LEASE_MS) else {
            scalers[who] = Some(scaler);
            continue;
        };
        let written = stage.world.ledger.rows().machines.len();
        let going = Box::pin(scaler.round(stage.world.clone(), stage.fleet.clone(), term));
        let (ledger, more) = (stage.world.ledger.clone(), random.random_range(0..7));
        match until(going, more, || ledger.rows().machines.len() > written).await {
            Ok(scaler) => scalers[who] = Some(scaler),
            Err(going) => {
                stood += 1;
                let term = stage.world.ledger.rows().term;
                still.push((stage.now_s() + random.random_range(20.0..300.0), going, term));
            }
        }
    }
    stage.claim(stood > 0, "no round was suspended");
    for (_, going, _) in still {
        drop(tokio::time::timeout(Duration::from_secs(120), going).await);
    }
    stage.world.cloud.set_faults(Vec::new());
    stage.fleet.calm();
    stage.run_until(4.0 * 3_600.0, "everything is given back", |stage| stage.world.is_empty()).await;
    stage.end()
}
