//! Engines that fill their GPU, on every kind of GPU in the catalogue, with the memory that its driver reports.

use std::collections::BTreeSet;

use futures::future::join_all;
use serde_json::json;
use stokehold_nvml::{FakeGpu, StandIn};
use stokehold_protocol::endpoint::EndpointSpec;
use stokehold_protocol::gateway::ModelStatus;
use stokehold_protocol::gpus::{Gpu, KINDS, Kind};
use stokehold_protocol::vram::{VramNeed, usable_mib};

use crate::stage::{Setup, Stage, pack, result, spec};

/// Minimum that vLLM's endpoint declares, GiB: less than any GPU here.
const LEAST_GIB: f64 = 4.0;

/// A worker with one empty GPU of this kind, and its two endpoints.
struct Bench {
    stage: Stage,
    _gpus: StandIn,
    kind: &'static Kind,
}

impl Bench {
    async fn new(kind: &'static Kind) -> Self {
        let name = format!("NVIDIA {}", kind.name);
        let gpus = StandIn::new([FakeGpu { name, ..FakeGpu::of_mib(kind.reported_mib) }]).unwrap();
        let library = gpus.library().to_string_lossy().into_owned();
        let variables = vec![("STOKE_SLOTS", "1".to_owned()), ("STOKE_NVML_LIBRARY", library)];
        let stage = Stage::with(Setup { variables, ..Setup::default() }).await;
        let source = include_str!("handlers/gpu.py").replace("@CLAIMS@", &gpus.claims().to_string_lossy());
        for (endpoint, spec) in [("vllm", Self::vllm()), ("comfyui", Self::comfyui(kind))] {
            stage.gateway.deploy(endpoint, pack(&source), spec);
        }
        Self { stage, _gpus: gpus, kind }
    }

    fn vllm() -> EndpointSpec {
        EndpointSpec { vram_gib: LEAST_GIB, vram_fraction: Some(0.9), ..spec("Model") }
    }

    /// Declares no share, but the size in the data sheet.
    fn comfyui(kind: &Kind) -> EndpointSpec {
        EndpointSpec { vram_gib: f64::from(kind.sold_gib), ..spec("Model") }
    }

    /// Runs a job whose process takes this much memory, and returns the state of its model on the GPU.
    async fn run(&self, endpoint: &str, mib: u64) -> ModelStatus {
        let job = self.stage.submit_to(endpoint, json!({"mib": mib}));
        let report = self.stage.gateway.end(&job).await;
        assert_eq!(result(&report), json!("0"), "{}: {report:?}", self.kind.name);
        let name = format!("{endpoint}@1");
        let holds =
            |model: &&ModelStatus| model.name == name && model.cards.first().is_some_and(|on| on.seen_mib == Some(mib));
        let what = format!("{endpoint} on a {} holding {mib} MiB", self.kind.name);
        self.stage.gateway.until(&what, |seen| seen.status.models.iter().find(holds).cloned()).await
    }

    /// Whether the queue would still place a job of this endpoint on an empty GPU of this kind, with what has been
    /// measured so far, and in the class of its declaration.
    fn is_placed_as_declared(&self, endpoint: &str, spec: &EndpointSpec) {
        let gpu =
            Gpu { name: format!("NVIDIA {}", self.kind.name), vram_mib: self.kind.reported_mib, ..Gpu::default() };
        let learned = self.stage.gateway.seen().learned.clone();
        let learned = learned.into_iter().filter(|need| need.endpoint == endpoint);
        let need: VramNeed = spec.vram_need(learned.map(|need| (need.gpu, need.need_mib)).collect());
        assert!(need.fits_empty(&gpu), "{}: {need:?}", self.kind.name);
        assert_eq!(need.class_gib(), spec.vram_need([].into()).class_gib(), "{}: {need:?}", self.kind.name);
    }
}

/// Two loads of each engine on one kind of GPU, each of which finds it empty because the other one is unloaded for it,
/// and a second job on the loaded process.
async fn fills_it_again_and_again(kind: &'static Kind) {
    let (bench, total_mib) = (Bench::new(kind).await, kind.reported_mib);
    let empty_gib =
        bench.stage.gateway.until("its capability", |seen| Some(seen.reach_gib).filter(|gib| *gib > 0)).await;
    assert!(empty_gib >= kind.sold_gib, "an empty {} takes the size that it was sold with", kind.name);
    let share_mib = total_mib * 9 / 10;
    for _ in 0..2 {
        for _ in 0..2 {
            let model = bench.run("vllm", share_mib).await;
            assert_eq!(model.cards[0].held_mib, share_mib, "{}: the share, and no margin", kind.name);
        }
        bench.is_placed_as_declared("vllm", &Bench::vllm());
        let model = bench.run("comfyui", usable_mib(total_mib)).await;
        assert_eq!(model.cards[0].held_mib, usable_mib(total_mib), "{}: the whole GPU", kind.name);
        bench.is_placed_as_declared("comfyui", &Bench::comfyui(kind));
    }
    let learned = bench.stage.gateway.seen().learned.clone();
    let of_share = learned.iter().find(|need| need.endpoint == "vllm");
    assert_eq!(of_share, None, "{}: nothing is learned of a share", kind.name);
}

/// The kinds of the catalogue, one for each amount of memory: nothing else of a GPU matters here.
fn kinds() -> Vec<&'static Kind> {
    let mut sizes = BTreeSet::new();
    KINDS.iter().filter(|kind| sizes.insert(kind.reported_mib)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn engines_that_fill_their_gpu_load_again_on_every_kind_of_the_catalogue() {
    let kinds = kinds();
    assert!(kinds.len() >= 30, "{} kinds", kinds.len());
    for some in kinds.chunks(4) {
        join_all(some.iter().map(|kind| fills_it_again_and_again(kind))).await;
    }
}
