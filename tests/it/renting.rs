//! Instances are rented for the available work, and their cost is the provider's charge.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use stokehold_autoscaler::history;
use stokehold_planner::Observation;
use stokehold_planner::plan::{Action, Reason};
use stokehold_tests::stack::Stack;

use crate::api::{self, Api};

/// Each endpoint needs more GPU memory (GiB) than the one before it.
const ENDPOINTS: [(&str, u32); 4] = [("sketch", 6), ("draw", 10), ("write", 20), ("film", 40)];

fn deploy(stack: &Stack, dir: &std::path::Path) {
    let slow = std::fs::read_to_string(api::handler("slow.py")).unwrap();
    for (name, vram_gib) in ENDPOINTS {
        let path = dir.join(format!("{name}.py"));
        std::fs::write(&path, slow.replace("\"slow\"", &format!("{name:?}, vram_gib={vram_gib}"))).unwrap();
        let _ = stack.stoke_ok(&["deploy", &path.to_string_lossy()]);
    }
}

/// Repeats `look` until it returns a value. No signal crosses processes for this.
pub(crate) async fn until<T>(what: &str, stack: &Stack, look: impl AsyncFn() -> Option<T>) -> T {
    for _ in 0..4_000 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{what}\n{}", stack.log_tail());
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_are_rented_to_fit_are_given_back_and_cost_what_the_provider_charges() {
    let (stack, dir) = api::stack(&["--fake-vast", "--workers", "0..3"]);
    let api = Api::of(&stack);
    deploy(&stack, dir.path());
    let mut ids = Vec::new();
    for (name, _) in ENDPOINTS {
        ids.extend(api.submit_many(name, (0..8).map(|n| json!({"n": n, "seconds": 0.5}))).await);
    }
    let mut direct = 0;
    for id in &ids {
        let job = api.ended(id).await;
        assert_eq!(job["state"], "succeeded", "{job}\n{}", stack.log_tail());
        direct += job["cost_usd_micros"].as_u64().expect("its machine has a price");
    }
    let machines = async || api.get("/v1/fleet").await["machines"].as_array().unwrap().clone();
    let nobody = async || machines().await.is_empty().then_some(());
    until("machines stay", &stack, nobody).await;

    // The provider keeps its own ledger, which does not depend on the renter's accounting.
    let state: Value = reqwest::get(format!("{}/_fake/state", stack.fake_vast())).await.unwrap().json().await.unwrap();
    assert_eq!(state["instances"], json!([]), "nothing is rented any more");
    let spent = state["spent_usd"].as_f64().unwrap();
    let costs = until("the provider has not said its last word", &stack, async || {
        let costs = api.get("/v1/costs?by=endpoint").await;
        (costs["total"]["is_estimate"] == json!(false)).then_some(costs)
    })
    .await;
    let total = costs["total"]["total_usd_micros"].as_f64().unwrap() / 1e6;
    assert!((total - spent).abs() < 0.005, "{total} is not {spent}: {costs}");
    let rows: u64 = costs["rows"].as_array().unwrap().iter().map(|row| row["total_usd_micros"].as_u64().unwrap()).sum();
    assert_eq!(Some(rows), costs["total"]["total_usd_micros"].as_u64(), "what each endpoint cost is all of it");
    assert!(direct > 0 && (direct as f64) / 1e6 < total, "booting and idling cost something too");

    // Every rented instance could run a waiting job, and each action has its reason.
    let history = history::read(&dir.path().join("autoscaler.jsonl")).unwrap();
    let rented = |step: &stokehold_planner::Step| match &step.action {
        Action::Rent { offer, .. } => Some(offer.clone()),
        _ => None,
    };
    let mut offers = BTreeSet::new();
    for round in &history.rounds {
        for offer in round.plan.steps.iter().filter_map(rented) {
            let found = round.seen.offers.iter().find(|known| known.id == offer).expect("it was on offer");
            assert!(found.vram.gib() >= 6.0 && offers.insert(offer), "an offer is taken once");
        }
    }
    assert!(!offers.is_empty());
}

/// An engine that takes its GPU for itself, and runs 64 jobs at once.
const CHAT: &str = "
import asyncio

from stokehold import endpoint

@endpoint(name='chat', vram_gib=6, vram_fraction=0.9, max_concurrency=64)
async def chat(n: int) -> int:
    await asyncio.sleep(2)
    return n
";

/// 320 prompts, of which an engine runs 64 at once, are five times 64, and standard jobs start at once: 5 GPUs, less
/// the tenth of one that is left to chance, rounded up. One by one they would need 320, i.e. all 12 that are allowed.
/// Later plans follow the measured durations, which are longer on a busy machine.
#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_of_an_engine_rents_the_gpus_that_can_run_it_at_once() {
    let (stack, dir) = api::stack(&["--fake-vast", "--workers", "0..12"]);
    let api = Api::of(&stack);
    let path = dir.path().join("chat.py");
    std::fs::write(&path, CHAT).unwrap();
    let _ = stack.stoke_ok(&["deploy", &path.to_string_lossy()]);
    let ids = api.submit_many("chat", (0..320).map(|n| json!({"n": n}))).await;
    for id in &ids {
        let job = api.ended(id).await;
        assert_eq!(job["state"], "succeeded", "{job}\n{}", stack.log_tail());
    }
    let history = history::read(&dir.path().join("autoscaler.jsonl")).unwrap();
    let work = |step: &stokehold_planner::Step| match &step.reason {
        Reason::Work(shortage) => Some(shortage.need),
        _ => None,
    };
    let needs: Vec<usize> = history.rounds.iter().flat_map(|round| round.plan.steps.iter().filter_map(work)).collect();
    assert_eq!(needs.first(), Some(&5), "{needs:?}");
    assert!(needs.iter().all(|need| *need < 12), "{needs:?}");
    let rented =
        |seen: &Observation| (seen.machines.iter().map(|machine| machine.cards).sum::<u32>(), seen.machines.len());
    let (gpus, machines) = history.rounds.iter().map(|round| rented(&round.seen)).max().unwrap();
    assert!(gpus >= 5 && machines < 12, "{gpus} GPUs in {machines} machines");
}
