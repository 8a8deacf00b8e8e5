//! Lists with wrong contents, while machines run, boot and drain.

use stokehold_fake_vast::{Fault, Route, Rule};
use stokehold_planner::Policy;
use stokehold_queue::registry::Wanted;

use super::super::stage::{Stage, market, play, policy};
use super::{DRAW, listing};

/// Duration of the fault, seconds.
const LASTS_S: f64 = 600.0;

/// Time for which a list from before the fault is used, seconds.
const FRESH_S: f64 = 10.0;

pub(in super::super) fn empty() -> Vec<String> {
    play(list_is(Some(Fault::EmptyList)))
}

/// A list without any instance, as for a new account.
pub(in super::super) fn bare() -> Vec<String> {
    play(list_is(None))
}

pub(in super::super) fn partial() -> Vec<String> {
    play(list_is(Some(Fault::PartialList)))
}

pub(in super::super) fn html() -> Vec<String> {
    play(list_is(Some(Fault::Html)))
}

async fn list_is(fault: Option<Fault>) -> Vec<String> {
    let policy = Policy { max_machines: 8, ..policy() };
    let mut stage = Stage::new(1, market(12, &listing()), policy, &[DRAW]);
    stage.submit(0, 20);
    stage.run_until(900.0, "two serve", |stage| stage.fleet.serving() >= 2).await;
    let serving = stage.world.cloud.instances().len();
    stage.submit(0, 400);
    stage.run_until(60.0, "more boot", |stage| stage.world.cloud.instances().len() > serving).await;
    drain_one(&mut stage);
    stage.world.cloud.set_bare(fault.is_none());
    stage.world.cloud.set_faults(fault.into_iter().map(|fault| Rule::on(Route::List, fault)).collect());
    stage.run_for(FRESH_S).await;
    let from_s = stage.now_s();
    stage.submit(0, 400);
    while stage.now_s() < from_s + LASTS_S {
        stage.tick().await;
        let says = stage.says("provider_unreachable vast");
        stage.claim(says, "the notice is missing");
    }
    let calls = stage.world.cloud.changes_since(from_s);
    stage.claim(calls.is_empty(), format!("{calls:?}"));
    stage.world.cloud.set_bare(false);
    stage.world.cloud.set_faults(Vec::new());
    stage.run_until(3_600.0, "the work is done", |stage| stage.fleet.count(0) == (0, 820)).await;
    let says = stage.says("provider_unreachable vast");
    stage.claim(!says, "the notice has not been withdrawn");
    stage.run_until(4.0 * 3_600.0, "everything is given back", |stage| stage.world.is_empty()).await;
    stage.end()
}

/// Marks one serving machine to be drained and released.
fn drain_one(stage: &mut Stage) {
    let now_ms = (stage.now_s() * 1e3) as u64;
    let mut rows = stage.world.ledger.rows();
    let Some(id) = rows.machines.keys().find(|id| stage.fleet.serves(id)).cloned() else { return };
    let machine = rows.machines.get_mut(&id).unwrap();
    (machine.drained_ms, machine.then) = (Some(now_ms), Some(Wanted::Gone));
    rows.drains.insert(id, now_ms);
}
