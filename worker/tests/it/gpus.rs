//! GPUs as NVML reports them: announced to the gateway, shared by their actual use, and taken out of use when they
//! fail.

use serde_json::{Value, json};
use stokehold_nvml::{FakeGpu, StandIn};
use stokehold_protocol::endpoint::EndpointSpec;
use stokehold_protocol::gateway::{GpuHealth, GpuReading, ModelRef, ModelState};
use stokehold_protocol::job::ErrorCode;
use stokehold_protocol::requirements::Requirements;

use crate::gateway::Seen;
use crate::stage::{Setup, Stage, error, pack, result, spec};

/// A worker on simulated GPUs of these sizes, with `one` and `two` deployed: models that declare 4 GiB and use the
/// amount that their input sets.
async fn stage(sizes_mib: &[u64]) -> (Stage, StandIn) {
    let gpus = StandIn::new(sizes_mib.iter().map(|size| FakeGpu::of_mib(*size))).unwrap();
    let library = gpus.library().to_string_lossy().into_owned();
    let variables = vec![("STOKE_SLOTS", "2".to_owned()), ("STOKE_NVML_LIBRARY", library)];
    let stage = Stage::with(Setup { variables, ..Setup::default() }).await;
    for name in ["one", "two"] {
        deploy(&stage, &gpus, name, EndpointSpec { vram_gib: 4.0, ..spec("Model") });
    }
    (stage, gpus)
}

fn deploy(stage: &Stage, gpus: &StandIn, name: &str, spec: EndpointSpec) {
    let claims = gpus.claims().to_string_lossy().into_owned();
    stage.gateway.deploy(name, pack(&include_str!("handlers/gpu.py").replace("@CLAIMS@", &claims)), spec);
}

fn model(endpoint: &str) -> ModelRef {
    ModelRef { tenant: "default".to_owned(), endpoint: endpoint.to_owned(), version: 1 }
}

async fn reading(stage: &Stage, index: usize, what: &str, is_so: impl Fn(&GpuReading) -> bool) -> GpuReading {
    let look = |seen: &crate::gateway::Seen| seen.status.gpus.get(index).filter(|gpu| is_so(gpu)).cloned();
    stage.gateway.until(what, look).await
}

async fn run(stage: &Stage, endpoint: &str, mib: u64) -> Value {
    result(&stage.gateway.end(&stage.submit_to(endpoint, json!({"mib": mib}))).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gpus_and_their_health_are_reported() {
    let (stage, gpus) = stage(&[24_576, 12_288]).await;
    let join = stage.gateway.until("the join", |seen| seen.joins.first().cloned()).await;
    assert_eq!((join.driver.as_deref(), join.cuda.as_deref()), (Some("570.86.10"), Some("12.8")));
    let sizes: Vec<_> = join.gpus.iter().map(|gpu| (gpu.index, gpu.uuid.as_str(), gpu.vram_mib)).collect();
    assert_eq!(sizes, [(0, "GPU-stand-in-0", 24_576), (1, "GPU-stand-in-1", 12_288)]);
    assert_eq!(join.gpus[0].compute_capability.as_deref(), Some("8.9"));
    gpus.change(|gpus| {
        let gpu = &mut gpus.cards[1];
        (gpu.temperature_c, gpu.utilisation_percent, gpu.power_w, gpu.foreign_mib) = (55, 30, 120, 1_000);
    })
    .unwrap();
    // The worker reads the memory and the temperature one after the other, and the change may fall in between.
    let is_new = |gpu: &GpuReading| gpu.temperature_c == Some(55) && gpu.vram_used_mib == Some(1_000);
    let told = reading(&stage, 1, "the new readings", is_new).await;
    let expected = GpuReading {
        index: 1,
        vram_used_mib: Some(1_000),
        vram_held_mib: 0,
        vram_free_mib: 12_288 - 614 - (1_000 - 614),
        vram_foreign_mib: 1_000,
        temperature_c: Some(55),
        utilisation_pct: Some(30),
        power_w: Some(120),
        ecc_uncorrected: Some(0),
        health: GpuHealth::Healthy,
        why: None,
    };
    assert_eq!(told, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_that_fails_is_marked_faulty_with_the_reason_and_the_others_go_on() {
    let (stage, gpus) = stage(&[24_576, 12_288, 12_288, 12_288]).await;
    reading(&stage, 3, "four GPUs", |gpu| gpu.health == GpuHealth::Healthy).await;
    gpus.change(|gpus| {
        gpus.cards[0].xid = (79, 1);
        gpus.cards[1].ecc_uncorrected = Some(2);
        gpus.cards[2].answer = 15;
        // Caused by a program, not by the GPU.
        gpus.cards[3].xid = (31, 1);
    })
    .unwrap();
    for (index, why) in [(0, "Xid 79"), (1, "2 uncorrected ECC errors"), (2, "NVML has lost the GPU")] {
        let told = reading(&stage, index, why, |gpu| gpu.health == GpuHealth::Faulty).await;
        assert!(told.why.as_deref().is_some_and(|told| told.starts_with(why)), "{told:?}");
        assert_eq!(told.vram_free_mib, 0);
    }
    assert_eq!(run(&stage, "one", 4_000).await, json!("3"));
    gpus.change(|gpus| (gpus.cards[0].xid, gpus.cards[1].ecc_uncorrected, gpus.cards[2].answer) = ((0, 0), Some(0), 0))
        .unwrap();
    let told = reading(&stage, 3, "its heartbeat", |gpu| gpu.health == GpuHealth::Healthy).await;
    assert!(told.why.is_none());
    assert_eq!(stage.gateway.seen().status.gpus[2].health, GpuHealth::Faulty, "what failed is not believed again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hot_gpu_takes_no_work_until_it_is_cooler() {
    let (stage, gpus) = stage(&[12_288]).await;
    reading(&stage, 0, "its room", |gpu| gpu.vram_free_mib > 0).await;
    gpus.change(|gpus| gpus.cards[0].temperature_c = 95).unwrap();
    reading(&stage, 0, "a hot GPU", |gpu| gpu.health == GpuHealth::Hot && gpu.vram_free_mib == 0).await;
    gpus.change(|gpus| gpus.cards[0].temperature_c = 60).unwrap();
    reading(&stage, 0, "a cool GPU", |gpu| gpu.health == GpuHealth::Healthy && gpu.vram_free_mib > 0).await;
}

/// Heats a GPU, and waits until the worker has noticed.
async fn heat(stage: &Stage, gpus: &StandIn, index: usize) {
    gpus.change(|gpus| gpus.cards[index].temperature_c = 88).unwrap();
    reading(stage, index, "a hot GPU", |gpu| gpu.health == GpuHealth::Hot).await;
}

async fn cool(stage: &Stage, gpus: &StandIn, index: usize) {
    gpus.change(|gpus| gpus.cards[index].temperature_c = 60).unwrap();
    reading(stage, index, "a cool GPU", |gpu| gpu.health == GpuHealth::Healthy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hot_gpu_begins_no_job_of_the_model_that_is_loaded_there() {
    let (stage, gpus) = stage(&[12_288]).await;
    run(&stage, "one", 4_000).await;
    stage.gateway.until("the offer of the model", |seen| (seen.warm == ["one@1"]).then_some(())).await;
    heat(&stage, &gpus, 0).await;
    // The waiting lease call is repeated, because it had offered the model.
    stage.gateway.until("an offer without it", |seen| seen.warm.is_empty().then_some(())).await;
    // This gateway grants every job: the worker returns it, again and again.
    let job = stage.submit_to("one", json!({"mib": 4_000}));
    stage.gateway.until("the job to come back", |seen| (seen.released.len() >= 3).then_some(())).await;
    assert!(!stage.gateway.seen().finished.contains_key(&job.job_id));
    assert_eq!(stage.gateway.seen().status.loaded, ["one@1"], "it stays loaded");
    cool(&stage, &gpus, 0).await;
    assert_eq!(result(&stage.gateway.end(&job).await), json!("0"));
    stage.gateway.until("the offer of the model", |seen| (seen.warm == ["one@1"]).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_on_a_hot_gpu_goes_on_and_what_waits_behind_it_does_not_begin() {
    // No room for a second process.
    let (stage, gpus) = stage(&[8_192]).await;
    let runs = stage.submit_to("one", json!({"mib": 4_000, "gate": stage.signal_file()}));
    stage.gateway.first_log(&runs).await;
    let waits = stage.submit_to("one", json!({"mib": 4_000}));
    stage.gateway.until("two leases", |seen| (seen.extended.len() == 2).then_some(())).await;
    heat(&stage, &gpus, 0).await;
    stage
        .gateway
        .until("the one that waits to come back", |seen| seen.released.contains(&waits.job_id).then_some(()))
        .await;
    std::fs::write(stage.signal_file(), "").unwrap();
    assert_eq!(result(&stage.gateway.end(&runs).await), json!("0"));
    let released = stage.gateway.seen().released.len();
    stage.gateway.until("it to come back again", |seen| (seen.released.len() > released).then_some(())).await;
    assert!(!stage.gateway.seen().finished.contains_key(&waits.job_id));
    cool(&stage, &gpus, 0).await;
    assert_eq!(result(&stage.gateway.end(&waits).await), json!("0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_not_full_yet_does_not_begin_on_a_hot_gpu() {
    let (stage, gpus) = stage(&[8_192]).await;
    let source = include_str!("handlers/batched.py").replace("@GATE@", "");
    let batched = EndpointSpec { vram_gib: 4.0, max_batch_size: 2, max_wait_ms: 600_000.0, ..spec("batched") };
    stage.gateway.deploy("batched", pack(&source), batched);
    let first = stage.submit_to("batched", json!({"how": "fine"}));
    let busy = |seen: &Seen| {
        seen.status
            .models
            .iter()
            .any(|model| model.name == "batched@1" && model.state == ModelState::Busy)
            .then_some(())
    };
    stage.gateway.until("a job that waits for another", busy).await;
    heat(&stage, &gpus, 0).await;
    stage.gateway.until("it to come back", |seen| seen.released.contains(&first.job_id).then_some(())).await;
    cool(&stage, &gpus, 0).await;
    let second = stage.submit_to("batched", json!({"how": "fine"}));
    for job in [first, second] {
        assert_eq!(stage.gateway.end(&job).await.timing.batch_size, 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_on_a_hot_gpu_is_loaded_on_another() {
    let (stage, gpus) = stage(&[12_288, 12_288]).await;
    assert_eq!(run(&stage, "one", 4_000).await, json!("0"));
    heat(&stage, &gpus, 0).await;
    assert_eq!(run(&stage, "one", 4_000).await, json!("1"));
    heat(&stage, &gpus, 1).await;
    let job = stage.submit_to("one", json!({"mib": 4_000}));
    stage.gateway.until("the job to come back", |seen| (seen.released.len() >= 3).then_some(())).await;
    assert!(!stage.gateway.seen().finished.contains_key(&job.job_id));
    cool(&stage, &gpus, 1).await;
    assert_eq!(result(&stage.gateway.end(&job).await), json!("1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_grows_beyond_the_room_makes_an_idle_one_go() {
    let (stage, _gpus) = stage(&[24_576]).await;
    run(&stage, "one", 4_000).await;
    run(&stage, "two", 4_000).await;
    stage.gateway.until("both", |seen| (seen.status.loaded.len() == 2).then_some(())).await;
    // While it runs, only the other one is idle.
    let grows = stage.submit_to("two", json!({"mib": 19_800, "linger_s": 3}));
    stage.gateway.until("the idle one to go", |seen| (seen.status.loaded == ["two@1"]).then_some(())).await;
    let told = reading(&stage, 0, "what it holds", |gpu| gpu.vram_used_mib == Some(19_800)).await;
    assert_eq!((told.vram_held_mib, told.vram_foreign_mib), (19_800, 0));
    assert_eq!(result(&stage.gateway.end(&grows).await), json!("0"));
}

/// The process of a run that ran out of memory may keep what the run took.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_not_blamed_for_the_memory_that_earlier_runs_left_in_its_process() {
    let (stage, _gpus) = stage(&[12_288]).await;
    let end =
        async |mib: u64, how: &str| stage.gateway.end(&stage.submit_to("one", json!({"mib": mib, "how": how}))).await;
    error(&end(11_500, "oom").await, ErrorCode::OomGpu);
    // It fails in a process that has taken more than 10,000 MiB.
    assert_eq!(result(&end(3_000, "tidy").await), json!("0"), "the process that failed is gone");
    assert_eq!(result(&end(11_000, "fine").await), json!("0"));
    assert_eq!(result(&end(3_000, "tidy").await), json!("0"), "it was repeated in a new process");
}

#[tokio::test(flavor = "multi_thread")]
async fn warm_up_inputs_run_first_and_what_they_take_replaces_what_was_declared() {
    let (stage, gpus) = stage(&[24_576]).await;
    let claims = gpus.claims().to_string_lossy().into_owned();
    let source = include_str!("handlers/gpu.py").replace("@CLAIMS@", &claims);
    let warmup = vec![json!({"mib": 3_000}), json!({"mib": 9_000_u64, "note": "the largest comes first"})];
    let warmed = EndpointSpec { vram_gib: 20.0, warmup, ..spec("Model") };
    stage.gateway.deploy("warmed", pack(&source.replace("mib: int,", "mib: int, note: str = \"\",")), warmed);
    let end = stage.gateway.end(&stage.submit_to("warmed", json!({"mib": 4_000}))).await;
    assert_eq!(result(&end), json!("0"));
    assert!(end.timing.warmup_ms > 0 && end.timing.load_ms < 60_000);
    // 5 % above the peak; the endpoint asked for 20 GiB.
    reading(&stage, 0, "its measured need", |gpu| gpu.vram_held_mib == 9_450).await;
    let learned = stage.gateway.until("what was learned", |seen| seen.learned.last().cloned()).await;
    assert_eq!((learned.endpoint.as_str(), learned.version, learned.gpu.as_str()), ("warmed", 1, "Stand-in 24"));
    assert_eq!(learned.need_mib, 9_450);
    // The last received heartbeat may be older than the job's end.
    let succeeded = |seen: &Seen| seen.status.models.first().filter(|model| model.succeeded_ms.is_some()).cloned();
    let model = stage.gateway.until("the model's success", succeeded).await;
    assert_eq!((model.name.as_str(), model.cards[0].index), ("warmed@1", 0));
    assert!(model.mean_ms.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_up_that_fails_fails_the_load_with_the_reason() {
    let (stage, gpus) = stage(&[24_576]).await;
    let claims = gpus.claims().to_string_lossy().into_owned();
    let source = include_str!("handlers/gpu.py").replace("@CLAIMS@", &claims);
    let warmed = EndpointSpec { vram_gib: 4.0, warmup: vec![json!({"mib": "many"})], ..spec("Model") };
    stage.gateway.deploy("warmed", pack(&source.replace("hold(mib)", "hold(mib + 1)")), warmed);
    let end = stage.gateway.end(&stage.submit_to("warmed", json!({"mib": 1}))).await;
    let told = error(&end, ErrorCode::SetupFailed);
    assert!(told.message.starts_with("a warm-up input failed: "), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_whose_driver_does_not_answer_takes_cpu_jobs() {
    let gpus = StandIn::new([FakeGpu::default()]).unwrap();
    gpus.change(|gpus| gpus.init = 9).unwrap();
    let variables = vec![("STOKE_NVML_LIBRARY", gpus.library().to_string_lossy().into_owned())];
    let stage = Stage::with(Setup { variables, ..Setup::default() }).await;
    result(&stage.end_of("fine").await);
    assert!(stage.gateway.seen().joins[0].gpus.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_several_gpus_has_each_for_itself() {
    let (stage, gpus) = stage(&[24_576, 24_576, 24_576]).await;
    let demands = Requirements { gpus: 2, ..Requirements::default() };
    deploy(&stage, &gpus, "pair", EndpointSpec { vram_gib: 10.0, demands, ..spec("Model") });
    assert_eq!(run(&stage, "one", 4_000).await, json!("0"));
    assert_eq!(run(&stage, "pair", 9_000).await, json!("1,2"), "the first is taken");
    let told = reading(&stage, 1, "both GPUs", |gpu| gpu.vram_used_mib == Some(9_000)).await;
    assert_eq!((told.vram_held_mib, told.vram_free_mib), (10_240, 0), "nobody else is let in");
    let pair = |seen: &crate::gateway::Seen| seen.status.models.iter().find(|model| model.name == "pair@1").cloned();
    let pair = stage.gateway.until("the pair", pair).await;
    let on: Vec<_> = pair.cards.iter().map(|on| (on.index, on.held_mib, on.seen_mib)).collect();
    assert_eq!(on, [(1, 10_240, Some(9_000)), (2, 10_240, Some(9_000))]);
    // The idle model on one of them is evicted for the next one.
    let demands = Requirements { gpus: 3, ..Requirements::default() };
    deploy(&stage, &gpus, "three", EndpointSpec { vram_gib: 10.0, demands, ..spec("Model") });
    assert_eq!(run(&stage, "three", 9_000).await, json!("0,1,2"));
    stage.gateway.until("the others to go", |seen| (seen.status.loaded == ["three@1"]).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_is_kept_warm_is_not_evicted_and_its_jobs_need_no_room() {
    let (stage, gpus) = stage(&[24_576]).await;
    let kept = EndpointSpec { vram_gib: 16.0, keep_warm_s: 3_600, ..spec("Model") };
    deploy(&stage, &gpus, "kept", kept);
    run(&stage, "kept", 14_000).await;
    stage.gateway.until("what is left", |seen| (seen.reach_gib == 6).then_some(())).await;
    run(&stage, "one", 4_000).await;
    assert_eq!(run(&stage, "kept", 14_000).await, json!("0"));
    let both = |seen: &crate::gateway::Seen| (seen.status.loaded == ["kept@1", "one@1"]).then_some(());
    stage.gateway.until("both", both).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_to_stay_loaded_is_loaded_without_a_job_and_what_waits_is_fetched_ahead() {
    let (stage, _gpus) = stage(&[24_576]).await;
    stage.gateway.change(|seen| seen.keep = vec![model("one")]);
    let idle = |seen: &crate::gateway::Seen| {
        seen.status.models.iter().any(|model| model.name == "one@1" && model.state == ModelState::Idle).then_some(())
    };
    stage.gateway.until("the model without a job", idle).await;
    // All tests share the cache: this package is unique.
    let source = format!("# {:?}\n{}", stage.dir.path(), include_str!("handlers/plain.py"));
    stage.gateway.deploy("fresh", pack(&source), spec("plain"));
    let fetched = stage.gateway.seen().fetched;
    stage.gateway.change(|seen| seen.next = vec![model("fresh")]);
    stage.gateway.until("the package of what waits", |seen| (seen.fetched == fetched + 1).then_some(())).await;
    result(&stage.gateway.end(&stage.submit_to("fresh", json!({"how": "fine"}))).await);
    assert_eq!(stage.gateway.seen().fetched, fetched + 1, "not again for its job");
}
