//! A budget, a machine that cannot be destroyed, and an account with little credit.

use stokehold_fake_vast::{self as fake, Act, Fault, Listing, Route, Rule};
use stokehold_planner::Policy;
use stokehold_queue::registry::Wanted;

use super::super::fleet::Endpoint;
use super::super::stage::{Stage, market, play, policy};
use super::{DRAW, FILM, listing};

const HOUR_S: f64 = 3_600.0;

/// A budget of one dollar per hour: two machines.
fn a_dollar() -> Policy {
    Policy { max_usd_per_hour: 1.0, ..policy() }
}

/// Runs once with batch work for the same GPUs, and once with batch work that needs large GPUs.
pub(in super::super) fn budget() -> Vec<String> {
    let large = Listing { gpu_name: "RTX A6000".into(), ..listing() };
    let mixed = fake::Settings { listings: [vec![listing(); 10], vec![large; 10]].concat(), ..market(0, &listing()) };
    let mut wrong = play(spend(market(20, &listing()), FILM));
    wrong.extend(play(spend(mixed, Endpoint { class: 48, ..FILM })));
    wrong
}

async fn spend(market: fake::Settings, batch: Endpoint) -> Vec<String> {
    let mut stage = Stage::new(1, market, a_dollar(), &[DRAW, batch]);
    // Seven machines for an hour.
    stage.submit(1, 1_260);
    let began_s = stage.now_s();
    let mut ticks = 0_usize;
    while stage.now_s() < began_s + 2.0 * HOUR_S {
        if ticks.is_multiple_of(8) {
            stage.submit(0, 1);
        }
        ticks += 1;
        stage.tick().await;
        if ticks == 300 {
            // The waits for the first machines do not count.
            let _ = stage.fleet.longest_wait_ms(0);
            let etas = stage.scaler.iter().flat_map(|scaler| &scaler.etas);
            let eta_s = etas.filter(|eta| eta.priority == 2).filter_map(|eta| eta.seconds).max();
            stage.claim(eta_s.is_some_and(|eta_s| eta_s > 3_600), format!("the batch work takes {eta_s:?} s"));
        }
        if ticks > 300 {
            let says = stage.says("max_usd_per_hour");
            stage.claim(says, "the notice is missing");
        }
    }
    let (waiting, ended) = stage.fleet.count(1);
    stage.claim(waiting > 100 && ended > 100, format!("{waiting} of the batch work wait, {ended} have ended"));
    let waited_ms = stage.fleet.longest_wait_ms(0);
    stage.claim(waited_ms < 60_000, format!("interactive work waited for {waited_ms} ms behind it"));
    stage.end()
}

pub(in super::super) fn destroy_fails() -> Vec<String> {
    let of = async |fault| {
        let mut stage = Stage::new(1, market(8, &listing()), a_dollar(), &[DRAW]);
        stage.world.cloud.set_faults(vec![Rule::on(Route::Destroy, fault)]);
        stage.submit(0, 200);
        stage.run_until(2.0 * HOUR_S, "the work is done", |stage| stage.fleet.count(0) == (0, 200)).await;
        let all_end = |stage: &Stage| {
            let rows = stage.world.ledger.rows();
            rows.machines.len() == 2 && rows.machines.values().all(|machine| machine.wanted == Wanted::Gone)
        };
        stage.run_until(HOUR_S, "two are being given back", all_end).await;
        let stuck_s = stage.now_s();
        stage.submit(0, 50);
        stage.run_for(4.0 * HOUR_S).await;
        stage.claim(all_end(&stage), "they are not written down as they are");
        let says = stage.says("max_usd_per_hour");
        stage.claim(says, "the notice is missing");
        let count = |stage: &Stage, method: &str, since_s| {
            stage.world.cloud.changes_since(since_s).iter().filter(|call| call.method == method).count()
        };
        let rents = count(&stage, "PUT", stuck_s);
        stage.claim(rents == 0, format!("{rents} were asked for meanwhile"));
        let lately = count(&stage, "DELETE", stage.now_s() - 600.0);
        stage.claim(lately >= 4, format!("asked for {lately} times in the last ten minutes"));
        let healed_s = stage.now_s();
        stage.world.cloud.set_faults(Vec::new());
        stage.run_until(HOUR_S, "the rest is done", |stage| stage.fleet.count(0) == (0, 250)).await;
        let calls = stage.world.cloud.changes_since(healed_s);
        let first = |method: &str| calls.iter().find(|call| call.method == method).map(|call| call.at_s);
        let (Some(destroyed_s), Some(rented_s)) = (first("DELETE"), first("PUT")) else {
            stage.claim(false, "nothing was destroyed, or nothing rented");
            return stage.end();
        };
        stage.claim(rented_s > destroyed_s + 10.0, "the machine counted as gone before it was absent from two lists");
        stage.end()
    };
    let mut wrong = play(of(Fault::StatusBefore { status: 503 }));
    wrong.extend(play(of(Fault::NotFoundForAuth)));
    wrong
}

/// Offers with a price below the charged price.
pub(in super::super) fn overcharged() -> Vec<String> {
    let mut wrong = play(async {
        // Two machines at the price of their offers, one at the charged price.
        let mut stage = Stage::new(1, market(8, &listing()), a_dollar(), &[DRAW]);
        stage.world.cloud.set_faults(vec![Rule::on(Route::Rent, Fault::ChargedTimes { factor: 1.6 })]);
        stage.submit(0, 300);
        stage.run_for(300.0).await;
        let (rented, says) = (stage.world.cloud.rented(), stage.says("overcharged"));
        stage.claim(rented == 1 && says, format!("{rented} were rented, notice: {says}"));
        stage.run_until(6.0 * HOUR_S, "the work is done", |stage| stage.fleet.count(0) == (0, 300)).await;
        stage.end()
    });
    wrong.extend(play(async {
        // One machine alone exceeds the limit, which shows only after it is rented.
        let mut stage = Stage::new(1, market(8, &listing()), policy(), &[DRAW]);
        stage.policy = a_dollar();
        stage.world.cloud.set_faults(vec![Rule::on(Route::Rent, Fault::ChargedTimes { factor: 3.0 }).times(1)]);
        stage.submit(0, 100);
        let (mut over_since_s, mut longest_s) = (None, 0.0_f64);
        let until_s = stage.now_s() + HOUR_S;
        let boxes = |stage: &Stage| {
            let number = |one: &serde_json::Value| one["machine_id"].as_u64();
            stage.world.cloud.instances().iter().filter_map(number).collect::<Vec<_>>()
        };
        let (mut dear, mut again) = (None, 0);
        while stage.fleet.count(0) != (0, 100) && stage.now_s() < until_s {
            stage.tick().await;
            let usd = |one: &serde_json::Value| one["dph_total"].as_f64().unwrap_or_default();
            let now_s = stage.now_s();
            if stage.world.cloud.instances().iter().map(usd).sum::<f64>() > 1.0 {
                longest_s = longest_s.max(now_s - *over_since_s.get_or_insert(now_s));
                dear = dear.or_else(|| boxes(&stage).first().copied());
            } else {
                over_since_s = None;
                again += usize::from(boxes(&stage).iter().any(|it| Some(*it) == dear));
            }
        }
        stage.claim(dear.is_some() && longest_s < 30.0, format!("for {longest_s} s more was spent than may be"));
        stage.claim(again == 0, "the host that had overcharged was rented again");
        stage.claim(stage.fleet.count(0) == (0, 100), "the work is not done");
        stage.end()
    }));
    wrong
}

/// Boots that fail, and a list that is not trusted for ten minutes.
pub(in super::super) fn estimates() -> Vec<String> {
    play(async {
        let mut stage = Stage::new(1, market(12, &listing()), policy(), &[DRAW]);
        let failing = [Fault::RuntimeError, Fault::StuckLoading];
        stage.world.cloud.set_faults(failing.into_iter().map(|fault| Rule::of(fault).times(2)).collect());
        stage.submit(0, 400);
        stage.run_until(HOUR_S, "some serve", |stage| stage.fleet.serving() >= 2).await;
        stage.world.cloud.set_bare(true);
        stage.run_for(600.0).await;
        stage.world.cloud.set_bare(false);
        stage.run_until(6.0 * HOUR_S, "the work is done", |stage| stage.fleet.count(0) == (0, 400)).await;
        stage.run_until(4.0 * HOUR_S, "everything is given back", |stage| stage.world.is_empty()).await;
        let never_ran = |bill: &fake::Bill| bill.items.gpu == fake::Money::default();
        stage.claim_estimates("boots that failed", never_ran);
        stage.claim_estimates("machines that served", |bill| !never_ran(bill));
        stage.end()
    })
}

pub(in super::super) fn credit() -> Vec<String> {
    play(async {
        let market = fake::Settings { credit_usd: 0.5, ..market(8, &listing()) };
        let mut stage = Stage::new(1, market, policy(), &[DRAW]);
        stage.submit(0, 30);
        stage.run_for(600.0).await;
        let (rented, says) = (stage.world.cloud.rented(), stage.says("credit vast"));
        stage.claim(rented == 0 && says, format!("{rented} rented, notice: {says}"));
        stage.world.cloud.act(&Act::PayIn { usd: 10.0 });
        stage.run_until(HOUR_S, "the work is done", |stage| stage.fleet.count(0) == (0, 30)).await;
        let says = stage.says("credit vast");
        stage.claim(!says, "the notice has not been withdrawn");
        stage.end()
    })
}
