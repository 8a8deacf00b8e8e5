//! Random histories of real processes on simulated GPUs: they load, grow, run side by side, crash, hang, are killed and
//! evicted. Memory in use and reserved memory never exceed what a GPU has, and nothing is left over. (The ledger alone
//! has 10,000 of them: `crates/vram/src/tests.rs`.)

use std::collections::HashSet;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;
use stokehold_nvml::{FakeGpu, StandIn};
use stokehold_protocol::JobId;
use stokehold_protocol::endpoint::EndpointSpec;
use stokehold_protocol::gateway::LeaseRef;
use stokehold_protocol::requirements::Requirements;

use crate::gateway::Seen;
use crate::stage::{Setup, Stage, pack, result, spec};

const JOBS: usize = 150;
const GPUS_MIB: [u64; 2] = [12_288, 24_576];

/// Name, GiB per GPU, number of GPUs.
const ENDPOINTS: [(&str, u64, u32); 5] =
    [("tiny", 4, 1), ("small", 6, 1), ("middle", 10, 1), ("large", 20, 1), ("pair", 8, 2)];

fn are_over(seen: &Seen, jobs: &[LeaseRef]) -> bool {
    jobs.iter().all(|job| seen.finished.contains_key(&job.job_id) || seen.lost.contains(&job.job_id))
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_runs_grows_crashes_and_is_cancelled_no_gpu_is_over_committed_and_nothing_is_left() {
    let gpus = StandIn::new(GPUS_MIB.map(FakeGpu::of_mib)).unwrap();
    let library = gpus.library().to_string_lossy().into_owned();
    let variables = vec![("STOKE_SLOTS", "4".to_owned()), ("STOKE_NVML_LIBRARY", library)];
    let stage = Stage::with(Setup { variables, ..Setup::default() }).await;
    let claims = gpus.claims().to_string_lossy().into_owned();
    let package = pack(&include_str!("handlers/gpu.py").replace("@CLAIMS@", &claims));
    for (name, gib, gpus) in ENDPOINTS {
        let demands = Requirements { gpus, ..Requirements::default() };
        let spec = EndpointSpec { vram_gib: gib as f64, demands, ..spec("Model") };
        stage.gateway.deploy(name, package.clone(), spec);
    }
    let mut random = StdRng::seed_from_u64(1);
    let (mut jobs, mut hanging): (Vec<LeaseRef>, HashSet<JobId>) = (Vec::new(), HashSet::new());
    for _ in 0..JOBS {
        let (name, gib, _) = ENDPOINTS[random.random_range(0..ENDPOINTS.len())];
        let how = ["fine", "fine", "fine", "raise", "crash", "hang"][random.random_range(0..6)];
        let mib = random.random_range(2_000..=gib * 1_024);
        let job = stage.submit_to(name, json!({"mib": mib, "how": how}));
        if how == "hang" {
            hanging.insert(job.job_id);
        }
        jobs.push(job);
    }
    // The models take no more than they declare: memory in use never exceeds what a GPU has.
    let look = || {
        for (gpu, total_mib) in GPUS_MIB.iter().enumerate() {
            assert!(gpus.claimed_mib(gpu).unwrap() <= *total_mib, "GPU {gpu} is over-committed");
        }
        for (reading, total_mib) in stage.gateway.seen().status.gpus.iter().zip(GPUS_MIB) {
            assert!(reading.vram_held_mib <= total_mib, "{reading:?}");
        }
    };
    let mut changed = stage.gateway.changes();
    loop {
        look();
        stage.gateway.lose_running(&hanging);
        if are_over(&stage.gateway.seen(), &jobs) {
            break;
        }
        let moved = tokio::time::timeout(Duration::from_secs(60), changed.changed()).await;
        moved.expect("nothing has moved for a minute").unwrap();
    }
    // Nothing is left over: each GPU is available as a whole.
    let demands = Requirements { gpus: 2, ..Requirements::default() };
    let both = EndpointSpec { vram_gib: 12.0, demands, ..spec("Model") };
    stage.gateway.deploy("both", package.clone(), both);
    stage.gateway.deploy("most", package, EndpointSpec { vram_gib: 24.0, ..spec("Model") });
    for (name, mib, on) in [("both", 11_000, "0,1"), ("most", 22_000, "1")] {
        let end = stage.gateway.end(&stage.submit_to(name, json!({"mib": mib}))).await;
        assert_eq!(result(&end), json!(on));
    }
    look();
}
