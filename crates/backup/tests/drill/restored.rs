//! Backup, wipe, restore: ended jobs are unchanged, open jobs continue, and leases from before the restore end nothing.

use stokehold_queue::backup::Root;
use stokehold_queue::gateway::{ExtendAnswer, FinishAnswer, FinishOutcome, FinishReport};
use stokehold_queue::job::{AttemptOutcome, Job, JobState, Timing};
use stokehold_queue::queue::{LimitScope, Submitted};
use stokehold_queue::{JobId, Queue};

use crate::world::{CANARY, SHARDS, TENANTS, World, finish, jobs, machine, populate, take};

const JOBS: usize = 10_000;

fn shown(job: &Job) -> serde_json::Value {
    serde_json::to_value(job).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_jobs_come_back_and_what_was_open_goes_on() {
    let world = World::new().await;
    let queue = world.queue().await;
    let made = populate(&queue, &world.objects, JOBS).await;
    let before = jobs(&queue, &made.ids).await;
    let states = |state| before.values().filter(|job| job.state == state).count();
    assert!(JobState::ALL.iter().filter(|state| states(**state) > 0).count() >= 7, "jobs of nearly every state");

    let manifest = world.backup().await;
    assert!(manifest.is_exact(), "{:?}", manifest.moments);
    assert_eq!(manifest.moments.len(), usize::from(SHARDS) + 1);
    assert_eq!(manifest.moments.last().unwrap().root, Root::Registry);
    assert_eq!(manifest.census.jobs_in(JobState::Running), states(JobState::Running) as u64);
    assert_eq!(manifest.census.unknown.len(), 0, "{:?}", manifest.census.unknown);

    // Leased after the backup, which therefore does not contain these leases.
    let late = take(&queue).await;
    let of_before = queue.registry().lead("autoscaler-1", 60_000).await.unwrap().unwrap();
    drop(queue);
    world.wipe().await;
    let outcome = world.restore(None).await.unwrap();
    assert_eq!(outcome.differences, [""; 0]);
    assert!(outcome.is_whole() && outcome.results > 30, "{outcome:?}");
    assert_eq!(outcome.restored.repaired.len(), 0, "each job stood where it should: {:?}", outcome.restored.repaired);

    let queue = world.queue().await;
    let after = jobs(&queue, &made.ids).await;
    for (id, was) in &before {
        let is = &after[id];
        match was.state {
            // State, result, attempts, error, times: everything is compared.
            state if state.is_terminal() => assert_eq!(shown(is), shown(was)),
            JobState::Running => {
                assert_eq!(is.state, JobState::Queued);
                assert_eq!(is.attempts.last().unwrap().outcome, AttemptOutcome::Released, "it cost the job nothing");
            }
            state => assert_eq!((is.state, shown(is)["input"].clone()), (state, shown(was)["input"].clone())),
        }
    }
    no_lease_of_before_ends_anything(&queue, made.held.iter().chain(&late)).await;

    // Owners keep their records, and the leader from before leads no more.
    let registry = queue.registry();
    for tenant in TENANTS {
        assert!(registry.token(&format!("token-of-{tenant}")).await.unwrap().is_some());
        assert!(registry.secrets(tenant).await.unwrap().contains_key("HF_TOKEN"));
        let (limits, usage) = queue.usage(&LimitScope::Tenant(tenant.into())).await.unwrap();
        let open = before.values().filter(|job| job.spec.tenant == *tenant && !job.state.is_terminal()).count();
        assert_eq!((limits.max_open, usage.open, usage.running), (Some(1_000_000), open as u64, 0));
    }
    assert_eq!(registry.machines().await.unwrap()["m-1"], machine());
    assert!(!registry.put_machine(of_before, &machine()).await.unwrap(), "an autoscaler of before writes nothing");
    assert!(registry.lead("autoscaler-2", 60_000).await.unwrap().unwrap() > of_before);

    // An idempotency key from before returns its job.
    let known = made.ids.iter().find(|id| shown(&before[id])["input"]["number"] == 0).unwrap();
    let again = repeat(&before[known]);
    let answers = queue.submit(vec![again]).await.unwrap();
    assert!(matches!(answers[..], [Submitted::Repeat(id)] if id == *known), "{answers:?}");

    all_end(&world, &queue, &made.ids).await;
}

async fn no_lease_of_before_ends_anything(
    queue: &stokehold_queue::Shards,
    leases: impl Iterator<Item = &stokehold_queue::queue::Lease>,
) {
    for leases in leases.collect::<Vec<_>>().chunks(100) {
        let held: Vec<_> = leases.iter().map(|lease| lease.named()).collect();
        let extended = queue.extend(&held).await.unwrap();
        assert!(extended.iter().all(|answer| matches!(answer, ExtendAnswer::Lost)), "{extended:?}");
        let result = || serde_json::value::RawValue::from_string("1".to_owned()).unwrap();
        let report = |lease| FinishReport::new(lease, Timing::default(), FinishOutcome::Succeeded { result: result() });
        let reports: Vec<FinishReport> = held.into_iter().map(report).collect();
        let finished = queue.finish(&reports).await.unwrap();
        assert!(finished.iter().all(|answer| *answer == FinishAnswer::StaleFence), "{finished:?}");
    }
}

/// The same submit, by its idempotency key.
fn repeat(job: &Job) -> stokehold_queue::job::NewJob {
    stokehold_queue::job::NewJob {
        idempotency: Some(stokehold_queue::job::Idempotency::new("key-0", "hash")),
        ..stokehold_queue::job::NewJob::new(JobId::new(job.id.shard()), job.spec.clone(), job.input.clone())
    }
}

/// Leases and ends the queued jobs and cancels the others: nothing is left.
async fn all_end(world: &World, queue: &stokehold_queue::Shards, ids: &[JobId]) {
    loop {
        let leases = take(queue).await;
        if leases.is_empty() {
            break;
        }
        finish(queue, &world.objects, &leases, 1).await;
    }
    let after = jobs(queue, ids).await;
    assert!(after.values().all(|job| !matches!(job.state, JobState::Queued | JobState::Running)));
    for tenant in TENANTS {
        for ids in ids.chunks(100) {
            queue.cancel(tenant, ids).await.unwrap();
        }
    }
    assert!(jobs(queue, ids).await.values().all(|job| job.state.is_terminal()));
    for tenant in TENANTS {
        let (_, usage) = queue.usage(&LimitScope::Tenant(tenant.into())).await.unwrap();
        assert_eq!((usage.open, usage.running), (0, 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stolen_backup_tells_nothing() {
    let world = World::new().await;
    let queue = world.queue().await;
    populate(&queue, &world.objects, 200).await;
    world.backup().await;
    let stolen = world.stored("backups/").await;
    assert!(stolen.len() >= 2, "a part and the manifest");
    for (key, body) in stolen {
        for secret in [CANARY, "acme", "token-of", "c2VhbGVk", "HF_TOKEN"] {
            assert!(!body.windows(secret.len()).any(|window| window == secret.as_bytes()), "{key} has {secret}");
        }
    }
}

/// Peak memory of this process, MB.
fn peak_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse::<u64>().ok());
    peak.unwrap_or(0) / 1_000
}

/// Figures for docs/how-to/backup.md: `STOKE_TEST_JOBS=100000 cargo test -p stokehold-backup --test drill figures -- --ignored
/// --nocapture`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes and judges nothing but equality: it prints figures"]
async fn figures() {
    let jobs = std::env::var("STOKE_TEST_JOBS").ok().and_then(|text| text.parse().ok()).unwrap_or(JOBS);
    let world = World::new().await;
    let queue = world.queue().await;
    populate(&queue, &world.objects, jobs).await;
    drop(queue);
    let before_mb = peak_mb();
    let began = tokio::time::Instant::now();
    let manifest = world.backup().await;
    let (took, peak) = (began.elapsed(), peak_mb());
    eprintln!(
        "{jobs} jobs, {} keys: backup {took:?}, {} bytes in {} parts, {:?}; this process {before_mb} MB before, {peak} MB at most",
        manifest.census.keys,
        manifest.size_bytes(),
        manifest.parts.len(),
        manifest.moments
    );
    world.wipe().await;
    let began = tokio::time::Instant::now();
    let outcome = world.restore(None).await.unwrap();
    assert!(outcome.is_whole(), "{:?}", outcome.differences);
    eprintln!("restored and compared in {:?}; this process {} MB at most", began.elapsed(), peak_mb());
}
