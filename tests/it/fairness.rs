//! Fair shares in the hardest case: on one worker that has just started, with every tenant's jobs waiting at once.

use serde_json::{Value, json};
use stokehold_tests::stack::Stack;

use crate::api::{self, Api, attempts};

const JOBS: usize = 160;
const SLOTS: usize = 4;
const RUN_S: f64 = 0.2;

/// Deploys `slow` as a new tenant.
fn tenant(stack: &Stack, name: &str) -> Api {
    let _ = stack.stoke_ok(&["tenant", "create", name]);
    let token = stack.stoke_ok(&["token", "create", "--name", name, "--role", "admin", "--tenant", name, "--json"]);
    let token: Value = serde_json::from_str(&token).unwrap();
    let token = token["token"].as_str().unwrap();
    let deploy = stack.command(&["deploy", &api::handler("slow.py")]).env("STOKE_TOKEN", token).output().unwrap();
    assert!(deploy.status.success(), "{}", String::from_utf8_lossy(&deploy.stderr));
    Api::of(stack).with_token(token)
}

/// Loads the tenant's model. Returns the duration in seconds.
async fn warm_up(api: &Api) -> f64 {
    let job = api.ended(&api.submit("slow", json!({"n": 0})).await).await;
    let timing = &attempts(&job)[0]["timing"];
    let load_ms: u64 = ["boot_ms", "load_ms"].map(|part| timing[part].as_u64().unwrap_or(0)).iter().sum();
    load_ms as f64 / 1e3
}

/// Runs all jobs of a tenant. Returns the end times in order.
async fn ends(api: &Api) -> Vec<String> {
    let ids = api.submit_many("slow", (0..JOBS).map(|n| json!({"n": n, "seconds": RUN_S}))).await;
    let mut ends = Vec::new();
    for id in ids {
        let job = api.ended(&id).await;
        assert_eq!(job["state"], "succeeded", "{job}");
        ends.push(job["ended_at"].as_str().unwrap().to_owned());
    }
    ends.sort();
    ends
}

#[tokio::test(flavor = "multi_thread")]
async fn two_equal_tenants_that_start_at_once_on_a_fresh_worker_are_served_alike() {
    let (stack, _dir) = api::stack(&["--workers", "0"]);
    let (ann, bob) = (tenant(&stack, "ann"), tenant(&stack, "bob"));
    let _worker = stack.start_worker("fresh", &[("STOKE_SLOTS", &SLOTS.to_string())]);
    // Both models are warm, and their first jobs were much shorter than the following ones.
    let (ann_s, bob_s) = (warm_up(&ann).await, warm_up(&bob).await);
    let (anns, bobs) = tokio::join!(ends(&ann), ends(&bob));
    let (first, other) = if anns.last() < bobs.last() { (&anns, &bobs) } else { (&bobs, &anns) };
    let done = other.iter().filter(|end| *end <= first.last().unwrap()).count();
    // Jobs of loaded models may go first for three load times (docs/explanation/gpus.md): on all slots, at worst. A load on a busy
    // machine takes half a second.
    let ahead = SLOTS as f64 / RUN_S * 3.0 * ann_s.max(bob_s).max(0.5);
    let behind = (JOBS - done) as f64;
    assert!(
        behind <= ahead + 2.0 * SLOTS as f64,
        "one is through, and the other has {done} of {JOBS}: {ahead:.0} ahead"
    );
}
