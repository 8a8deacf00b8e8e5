//! Jobs on GPUs as NVML reports them: a stand-in defines the GPUs, and the models report their memory use to it.

use serde_json::{Value, json};
use stokehold_nvml::{FakeGpu, StandIn};
use stokehold_tests::stack::{Stack, Worker};
use tempfile::TempDir;

use crate::api::{self, Api, attempts};

const GIB: u64 = 1024;

async fn stack() -> (Stack, TempDir, Api) {
    let (stack, dir) = api::stack(&["--workers", "0"]);
    let _ = stack.stoke_ok(&["deploy", &format!("{}:Vram", api::handler("vram.py"))]);
    let api = Api::of(&stack);
    (stack, dir, api)
}

fn card(gib: u64) -> StandIn {
    StandIn::new([FakeGpu::of_mib(gib * GIB)]).unwrap()
}

/// A worker that finds these GPUs.
fn worker(stack: &Stack, name: &str, cards: &StandIn) -> Worker {
    stack.start_worker(name, &[("LD_LIBRARY_PATH", &cards.path().to_string_lossy()), ("STOKE_SLOTS", "2")])
}

/// The worker, once the API shows it in this state.
async fn known(api: &Api, name: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..3_000 {
        let workers = api.get("/v1/workers").await;
        let found =
            workers["workers"].as_array().unwrap().iter().find(|worker| worker["name"] == name && is_so(worker));
        if let Some(worker) = found {
            return worker.clone();
        }
        // Heartbeats cannot be awaited from here.
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{name} is not as expected: {}", api.get("/v1/workers").await);
}

async fn submit(api: &Api, input: Value) -> String {
    // One attempt: a failure of the GPU costs none.
    let body = json!({"endpoint": "vram", "input": input, "max_attempts": 1});
    let answer = api.request("POST", "/v1/jobs").json(&body).send().await.unwrap();
    let job: Value = answer.error_for_status().unwrap().json().await.unwrap();
    job["id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_declares_too_little_goes_on_on_a_larger_gpu_and_the_next_job_goes_there_at_once() {
    let (stack, _dir, api) = stack().await;
    let (six, twelve) = (card(6), card(12));
    // Until its memory is free, the larger GPU is known and out of reach.
    twelve.change(|cards| cards.cards[0].foreign_mib = 11 * GIB).unwrap();
    let _workers = (worker(&stack, "six", &six), worker(&stack, "twelve", &twelve));
    known(&api, "six", |worker| worker["gpus"][0]["vram_free_mib"].as_u64() > Some(5_000)).await;
    let large = known(&api, "twelve", |worker| worker["gpus"][0]["vram_foreign_mib"] == 11 * GIB).await;

    let first = submit(&api, json!({"mib": 9 * GIB})).await;
    let small = api.running(&first, 1).await["attempts"][0]["worker_id"].clone();
    assert_ne!(small, large["id"]);
    while api.get(&format!("/v1/jobs/{first}")).await["oom_events"] == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    twelve.change(|cards| cards.cards[0].foreign_mib = 0).unwrap();
    let job = api.ended(&first).await;
    assert_eq!((&job["state"], &job["oom_events"]), (&json!("succeeded"), &json!(1)), "{job}");
    assert_eq!(job["result"]["mib"], 9 * GIB);
    assert_eq!(attempts(&job).len(), 2, "{job}");
    assert_eq!(job["attempts"][0]["error"]["code"], "oom_gpu");
    assert_eq!(job["attempts"][1]["worker_id"], large["id"]);

    let second = api.ended(&submit(&api, json!({"mib": 9 * GIB})).await).await;
    assert_eq!((attempts(&second).len(), &second["oom_events"]), (1, &json!(0)), "{second}");
    assert_eq!(second["attempts"][0]["worker_id"], large["id"]);
    // The need on that kind of GPU is known now.
    let learned = known(&api, "twelve", |worker| worker["gpus"][0]["vram_held_mib"].as_u64() >= Some(9 * GIB)).await;
    assert_eq!(learned["gpus"][0]["vram_foreign_mib"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_larger_than_every_gpu_fails_and_says_so() {
    let (stack, _dir, api) = stack().await;
    let cards = card(6);
    let _worker = worker(&stack, "six", &cards);
    let job = api.ended(&submit(&api, json!({"mib": 9 * GIB})).await).await;
    assert_eq!((&job["state"], &job["error"]["code"]), (&json!("failed"), &json!("oom_gpu")), "{job}");
    assert_eq!((&job["error"]["class"], &job["oom_events"]), (&json!("torch.OutOfMemoryError"), &json!(1)));
    // The GPU still works.
    assert_eq!(api.ended(&submit(&api, json!({"mib": 2 * GIB})).await).await["state"], "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_does_not_exit_is_killed_and_a_gpu_that_keeps_its_memory_is_faulty() {
    let (stack, _dir, api) = stack().await;
    let cards = StandIn::new([FakeGpu::of_mib(12 * GIB), FakeGpu::of_mib(12 * GIB)]).unwrap();
    let worker = worker(&stack, "two-cards", &cards);
    for keeps_dead in [false, true] {
        let id = submit(&api, json!({"mib": 9 * GIB, "deaf": true})).await;
        let job = api.running(&id, 1).await;
        assert_eq!(attempts(&job).len(), 1, "{job}");
        let busy = known(&api, "two-cards", |worker| worker["models"][0]["cards"][0]["seen_mib"] == 9 * GIB).await;
        let card = busy["models"][0]["cards"][0]["index"].as_u64().unwrap() as usize;
        cards.change(|cards| cards.cards[card].keeps_dead = keeps_dead).unwrap();
        let runners = worker.runners();
        let _ = stack.stoke_ok(&["cancel", &id]);
        let next = api.ended(&submit(&api, json!({"mib": 9 * GIB})).await).await;
        assert_eq!(next["state"], "succeeded", "{next}");
        // The next job may have got its own model meanwhile, on the other GPU.
        while worker.runners().contains(&runners[0]) {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        if keeps_dead {
            assert_eq!(next["result"]["card"], 1 - card, "{next}");
            let faulty = known(&api, "two-cards", |worker| worker["gpus"][card]["health"] == "faulty").await;
            let why = faulty["gpus"][card]["why"].as_str().unwrap();
            assert!(why.contains("9216 MiB remain allocated after their process exited"), "{why}");
        } else {
            known(&api, "two-cards", |worker| {
                let cards = worker["gpus"].as_array().unwrap();
                let used: u64 = cards.iter().filter_map(|card| card["vram_used_mib"].as_u64()).sum();
                let moved = worker["models"][0]["cards"][0]["index"] == next["result"]["card"];
                moved && used == 9 * GIB && cards.iter().all(|card| card["health"] == "healthy")
            })
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_is_particular_about_its_gpu_waits_for_it_and_is_told_so() {
    let (stack, _dir) = api::stack(&["--workers", "0"]);
    let api = Api::of(&stack);
    let _ = stack.stoke_ok(&["deploy", &format!("{}:particular", api::handler("particular.py"))]);
    let named = |name: &str| FakeGpu { name: name.to_owned(), ..FakeGpu::of_mib(24 * GIB) };
    let other = StandIn::new([named("NVIDIA GeForce RTX 3090"), named("NVIDIA RTX 4090 Laptop GPU")]).unwrap();
    other.change(|cards| cards.cards[1].compute_capability = (7, 5)).unwrap();
    let _other = worker(&stack, "other", &other);
    known(&api, "other", |worker| worker["gpus"][1]["vram_free_mib"].as_u64() > Some(0)).await;
    let id = api.submit("particular", json!({})).await;
    let job = api.get(&format!("/v1/jobs/{id}")).await;
    assert_eq!(job["waiting"]["reason"], "unschedulable", "{job}");
    let why = "no worker meets the job's requirements: it needs a GPU of model RTX 4090 with compute capability 8.0 or higher";
    assert_eq!(job["waiting"]["message"], why);
    let queue = api.get("/v1/queue").await;
    assert_eq!(queue["lanes"][0]["demands"]["gpu_models"], json!(["RTX 4090"]), "{queue}");

    let wanted = StandIn::new([named("NVIDIA GeForce RTX 3090"), named("NVIDIA GeForce RTX 4090")]).unwrap();
    let _wanted = worker(&stack, "wanted", &wanted);
    let job = api.ended(&id).await;
    assert_eq!((&job["state"], &job["result"]["card"]), (&json!("succeeded"), &json!(1)), "{job}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_model_is_not_starved_by_small_ones_that_always_fit() {
    let (stack, _dir) = api::stack(&["--workers", "0"]);
    let api = Api::of(&stack);
    for name in ["left", "right", "large"] {
        let _ = stack.stoke_ok(&["deploy", &format!("{}:{name}", api::handler("particular.py"))]);
    }
    let cards = card(24);
    let _worker = worker(&stack, "one-card", &cards);
    known(&api, "one-card", |worker| worker["gpus"][0]["vram_free_mib"].as_u64() > Some(20_000)).await;
    // Small jobs for two minutes, of which two run at any time: a GPU is reserved for a large job that has waited for
    // 20 seconds. Whenever both end at once, there seems to be room for it.
    for name in ["left", "right"] {
        api.submit_many(name, (0..700).map(|_| json!({}))).await;
    }
    known(&api, "one-card", |worker| worker["running"] == 2).await;
    let large = api.submit("large", json!({})).await;
    let job = api.ended(&large).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    assert!(job["attempts"].as_array().unwrap().len() <= 10, "leased in vain too often: {job}");
    let queue = api.get("/v1/queue").await;
    let waiting: u64 = queue["lanes"].as_array().unwrap().iter().filter_map(|lane| lane["jobs"].as_u64()).sum();
    assert!(waiting > 0, "small ones waited still when it ran");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_lost_its_gpu_is_replaced_and_a_gpu_that_does_not_work_is_faulty() {
    let (stack, _dir, api) = stack().await;
    let cards = StandIn::new([FakeGpu::of_mib(12 * GIB), FakeGpu::of_mib(12 * GIB)]).unwrap();
    let _worker = worker(&stack, "two-cards", &cards);
    let pid = async || api.ended(&submit(&api, json!({"mib": GIB})).await).await["result"]["pid"].clone();
    let lost = json!({"mib": GIB, "says": "CUDA error: an illegal memory access was encountered"});
    let first = pid().await;
    let job = api.ended(&submit(&api, lost.clone()).await).await;
    assert_eq!((&job["state"], &job["error"]["code"]), (&json!("failed"), &json!("handler_error")), "{job}");
    assert_ne!(pid().await, first, "the next one has a process that can use its card");
    let healthy = |worker: &Value| worker["gpus"].as_array().unwrap().iter().all(|card| card["health"] == "healthy");
    known(&api, "two-cards", healthy).await;

    cards.change(|cards| cards.cards[0].cuda = 719).unwrap();
    let broken = submit(&api, lost).await;
    let faulty = known(&api, "two-cards", |worker| worker["gpus"][0]["health"] == "faulty").await;
    assert_eq!(faulty["gpus"][0]["why"], "the GPU test failed: cuCtxCreate_v2 returned CUDA_ERROR_LAUNCH_FAILED");
    // The failure counted as the GPU's, so the job runs again on the other GPU; there it counts as the handler's.
    let job = api.ended(&broken).await;
    assert_eq!(job["attempts"][0]["error"]["code"], "infra", "{job}");
    assert_eq!((attempts(&job).len(), &job["error"]["code"]), (2, &json!("handler_error")), "{job}");
    assert_eq!(api.ended(&submit(&api, json!({"mib": GIB})).await).await["result"]["card"], 1);
}

/// Five kinds of GPU with the name and the memory that their drivers report. The largest is first, so that the need
/// learned there would exclude the endpoint from the others.
const KINDS: [(&str, u64); 5] = [
    ("NVIDIA H200", 143_771),
    ("NVIDIA A100-SXM4-80GB", 81_920),
    ("NVIDIA GeForce RTX 4090", 24_564),
    ("NVIDIA A10", 23_028),
    ("Tesla T4", 15_360),
];

/// Runs ten jobs in a row of an engine that takes 90 % of any GPU, alone and alternating with another model, on each of
/// five kinds of GPU.
async fn an_engine_runs_on_every_kind(endpoint: &str) {
    let (stack, _dir) = api::stack(&["--workers", "0"]);
    let api = Api::of(&stack);
    for (object, name) in [("Engine", "engine"), ("Elastic", "elastic"), ("Vram", "vram")] {
        if name == endpoint || name == "vram" {
            let _ = stack.stoke_ok(&["deploy", &format!("{}:{object}", api::handler("vram.py"))]);
        }
    }
    for (name, mib) in KINDS {
        let cards = StandIn::new([FakeGpu { name: name.to_owned(), ..FakeGpu::of_mib(mib) }]).unwrap();
        let _worker = worker(&stack, &name.replace(' ', "-"), &cards);
        known(&api, &name.replace(' ', "-"), |worker| worker["gpus"][0]["vram_free_mib"].as_u64() > Some(0)).await;
        for n in 0..20 {
            // The second ten alternate with another model.
            if n >= 10 {
                let other = api.ended(&submit(&api, json!({"mib": GIB})).await).await;
                assert_eq!(
                    (&other["state"], &other["oom_events"]),
                    (&json!("succeeded"), &json!(0)),
                    "{name} {n}: {other}"
                );
            }
            let job = api.ended(&api.submit(endpoint, json!({})).await).await;
            assert_eq!((&job["state"], &job["oom_events"]), (&json!("succeeded"), &json!(0)), "{name} {n}: {job}");
            assert_eq!(attempts(&job).len(), 1, "{name} {n}: {job}");
            assert_eq!(job["result"]["mib"], mib * 9 / 10, "{name} {n}: {job}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_fills_every_gpu_runs_on_five_kinds_alone_and_beside_another_model() {
    an_engine_runs_on_every_kind("engine").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_says_its_share_runs_on_five_kinds_and_is_given_that_share() {
    an_engine_runs_on_every_kind("elastic").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_runs_on_a_gpu_that_has_what_it_declares_whatever_the_gpu_is_sold_as() {
    let (stack, _dir) = api::stack(&["--workers", "0"]);
    let api = Api::of(&stack);
    for object in ["Eighteen", "TwentyFour"] {
        let _ = stack.stoke_ok(&["deploy", &format!("{}:{object}", api::handler("vram.py"))]);
    }
    let cards = StandIn::new([FakeGpu { name: "NVIDIA A10".to_owned(), ..FakeGpu::of_mib(23_028) }]).unwrap();
    let _worker = worker(&stack, "a10", &cards);
    known(&api, "a10", |worker| worker["gpus"][0]["vram_free_mib"].as_u64() > Some(0)).await;
    for (endpoint, held_mib) in [("eighteen", 18 * GIB), ("twenty-four", 23_028 - 23_028 / 20)] {
        let job = api.ended(&api.submit(endpoint, json!({"mib": held_mib})).await).await;
        assert_eq!(job["state"], "succeeded", "{job}");
    }
}
