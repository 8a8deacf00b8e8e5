//! Interruptible machines that are outbid.

use stokehold_fake_vast::{self as fake, Fault, OutbidLook, Rule};
use stokehold_planner::Policy;

use super::super::stage::{Stage, market, play, policy};
use super::{DRAW, FILM, listing};

/// Time during which work arrives, seconds.
const WORK_S: f64 = 2.0 * 3_600.0;

/// Time in which an outbid machine is destroyed, seconds.
const REST_S: f64 = 120.0;

/// The same work on the same market, with bids and without.
pub(in super::super) fn outbid() -> Vec<String> {
    let (mut wrong, bids_usd, lost) = play(mixed(true));
    let (others, usd, _) = play(mixed(false));
    wrong.extend(others);
    println!("with bids ${bids_usd:.2}, {lost} jobs lost and done again; without ${usd:.2}");
    if bids_usd >= usd || lost == 0 {
        wrong.push(format!("bids cost ${bids_usd}, others ${usd}; {lost} jobs were lost"));
    }
    wrong
}

async fn mixed(may_bid: bool) -> (Vec<String>, f64, usize) {
    let policy = Policy { max_machines: 12, may_bid, ..policy() };
    // The cheapest offers are rented and lost first, and are available again soon.
    let cheaper = |n: u32| fake::Listing {
        usd_per_hour: 0.4 + 0.002 * f64::from(n),
        min_bid_usd_per_hour: 0.2 + 0.001 * f64::from(n),
        ..listing()
    };
    let listings = (0..24).map(cheaper).collect();
    let market = fake::Settings { taken_s: 30.0, listings, ..market(0, &listing()) };
    let mut stage = Stage::new(5, market, policy, &[DRAW, FILM]);
    let looks = [OutbidLook::Exited, OutbidLook::Stopped, OutbidLook::Loading];
    let lost = looks.map(|look| Rule::of(Fault::Outbid { after_s: 300.0, look }).with_probability(0.3).times(3));
    stage.world.cloud.set_faults(lost.to_vec());
    let began_s = stage.now_s();
    let (mut ticks, mut sent) = (0_usize, [0, 0]);
    while stage.now_s() < began_s + WORK_S {
        for (endpoint, every, jobs) in [(0, 2, 1), (1, 450, 300)] {
            if ticks.is_multiple_of(every) {
                stage.submit(endpoint, jobs);
                sent[endpoint] += jobs as u64;
            }
        }
        ticks += 1;
        stage.tick().await;
    }
    let is_done = |stage: &Stage| stage.fleet.count(0) == (0, sent[0]) && stage.fleet.count(1) == (0, sent[1]);
    stage.run_until(2.0 * 3_600.0, "all work is done", is_done).await;
    stage.run_until(4.0 * 3_600.0, "everything is given back", |stage| stage.world.is_empty()).await;
    let rest_s = stage.world.cloud.longest_rest_s();
    stage.claim(rest_s < REST_S, format!("what was left of a machine stayed for {rest_s:.0} s"));
    let again = stage.fleet.returned_to(3_600_000);
    stage.claim(again.is_empty(), format!("rented again at {again:?}"));
    let usd = stage.world.cloud.invoice().iter().map(|bill| bill.items.total().usd()).sum();
    let lost = stage.fleet.lost_jobs();
    (stage.end(), usd, lost)
}
