//! Fair shares of GPU time.

use std::collections::HashMap;

use stokehold_queue::gateway::FinishReport;
use stokehold_queue::job::{JobSpec, Timing};
use stokehold_queue::queue::{Lease, Limits};
use stokehold_queue::{ManualClock, Queue};

use super::{limit_tenant, one, owned, query, spec, submit, succeed, succeeds};

/// Runs one job after the other on one slot, each for the time that `took` returns. Returns the owners of the jobs.
async fn run<Q: Queue>(queue: &Q, clock: &ManualClock, jobs: usize, took: impl Fn(&Lease) -> u64) -> Vec<String> {
    let mut tenants = Vec::new();
    for _ in 0..jobs {
        let lease = one(queue).await;
        clock.advance_ms(took(&lease));
        succeeds(queue, &lease).await;
        tenants.push(lease.spec.tenant);
    }
    tenants
}

fn many(tenant: &str, endpoint: &str, jobs: usize) -> Vec<JobSpec> {
    vec![owned(tenant, endpoint); jobs]
}

fn share(tenants: &[String], tenant: &str) -> usize {
    tenants.iter().filter(|other| *other == tenant).count()
}

pub(crate) async fn nobody_starts_later_than_alone_at_its_share<Q: Queue>(queue: &Q, _: &ManualClock) {
    submit(queue, many("flood", "echo", 1_000)).await;
    submit(queue, many("flood", "echo", 1_000)).await;
    for tenant in 1..20 {
        submit(queue, many(&format!("quiet-{tenant}"), "echo", 5)).await;
    }
    let (mut started, mut counts) = (0, HashMap::<String, usize>::new());
    for want in [1, 3, 16, 50, 50] {
        for lease in queue.lease(query(want, 0)).await.unwrap() {
            started += 1;
            let mine = counts.entry(lease.spec.tenant.clone()).or_default();
            *mine += 1;
            // Alone, on a twentieth of the slots, the tenant's n-th job would start with the 20 n-th start.
            let alone = *mine * 20;
            assert!(lease.spec.tenant == "flood" || started <= alone, "{counts:?} after {started} starts");
        }
    }
    assert_eq!(counts.len(), 20);
    assert_eq!(counts["flood"], 120 - 19 * 5);
}

pub(crate) async fn a_share_is_as_large_as_its_weight<Q: Queue>(queue: &Q, clock: &ManualClock) {
    limit_tenant(queue, "paying", Limits { weight: Some(3.0), ..Limits::default() }).await;
    submit(queue, many("paying", "echo", 60)).await;
    submit(queue, many("trying", "echo", 60)).await;
    let tenants = run(queue, clock, 40, |_| 1_000).await;
    assert_eq!((share(&tenants, "paying"), share(&tenants, "trying")), (30, 10));
}

pub(crate) async fn seconds_of_a_gpu_are_shared_and_not_jobs<Q: Queue>(queue: &Q, clock: &ManualClock) {
    submit(queue, many("slow", "video", 30)).await;
    submit(queue, many("quick", "text", 200)).await;
    let took = |lease: &Lease| if lease.spec.tenant == "slow" { 10_000 } else { 1_000 };
    let tenants = run(queue, clock, 110, took).await;
    let slow = share(&tenants, "slow");
    assert!((9..=11).contains(&slow), "{slow} of 110 starts took half of the time");
}

pub(crate) async fn a_wrong_estimate_is_made_good_after_the_finish<Q: Queue>(queue: &Q, clock: &ManualClock) {
    submit(queue, many("slow", "unknown", 2)).await;
    submit(queue, many("quick", "echo", 40)).await;
    let took = |lease: &Lease| if lease.spec.tenant == "slow" { 20_000 } else { 1_000 };
    let tenants = run(queue, clock, 30, took).await;
    let slow: Vec<usize> = (0..30).filter(|n| tenants[*n] == "slow").collect();
    assert_eq!(slow.len(), 2);
    assert!((20..=22).contains(&(slow[1] - slow[0])), "the second waits until the other has had as much: {slow:?}");
}

pub(crate) async fn who_comes_back_is_neither_owed_nor_punished<Q: Queue>(queue: &Q, clock: &ManualClock) {
    submit(queue, many("steady", "echo", 100)).await;
    submit(queue, many("comes", "echo", 1)).await;
    run(queue, clock, 50, |_| 1_000).await;
    submit(queue, many("comes", "echo", 50)).await;
    let tenants = run(queue, clock, 20, |_| 1_000).await;
    let comes = share(&tenants, "comes");
    assert!((9..=11).contains(&comes), "{comes} of 20, though it had nothing of the 50 before: {tenants:?}");
}

pub(crate) async fn the_classes_of_a_priority_share_a_large_gpu<Q: Queue>(queue: &Q, _: &ManualClock) {
    for class in [0, 24] {
        submit(queue, (0..40).map(|_| JobSpec { vram_class_gib: class, ..spec("echo") })).await;
    }
    let mut classes = Vec::new();
    for _ in 0..20 {
        classes.push(queue.lease(query(1, 24)).await.unwrap()[0].spec.vram_class_gib);
    }
    assert_eq!(classes.iter().filter(|class| **class == 24).count(), 10, "{classes:?}");
}

pub(crate) async fn no_name_of_a_tenant_moves_the_shelf<Q: Queue>(queue: &Q, clock: &ManualClock) {
    for tenant in ["v", "now", "other"] {
        submit(queue, many(tenant, "echo", 40)).await;
    }
    run(queue, clock, 30, |_| 1_000).await;
    // Each tenant leaves the class queue ahead of the others, and comes back.
    for tenant in ["v", "now"] {
        limit_tenant(queue, tenant, Limits { max_running: Some(0), ..Limits::default() }).await;
    }
    run(queue, clock, 5, |_| 1_000).await;
    for tenant in ["v", "now"] {
        limit_tenant(queue, tenant, Limits::default()).await;
    }
    let tenants = run(queue, clock, 30, |_| 1_000).await;
    for tenant in ["v", "now", "other"] {
        assert!((9..=11).contains(&share(&tenants, tenant)), "{tenant} of {tenants:?}");
    }
}

pub(crate) async fn a_run_is_paid_for_before_its_tenant_comes_back<Q: Queue>(queue: &Q, clock: &ManualClock) {
    limit_tenant(queue, "now", Limits { max_running: Some(1), ..Limits::default() }).await;
    submit(queue, many("now", "echo", 2)).await;
    submit(queue, many("other", "echo", 9)).await;
    let first = one(queue).await;
    assert_eq!(first.spec.tenant, "now");
    for _ in 0..6 {
        assert_eq!(one(queue).await.spec.tenant, "other", "the one that is held has left the shelf");
    }
    // Two seconds more than expected are still less than the other tenant's use since then.
    clock.advance_ms(3_000);
    succeeds(queue, &first).await;
    assert_eq!(one(queue).await.spec.tenant, "now");
}

pub(crate) async fn jobs_that_share_a_call_pay_their_part_of_it<Q: Queue>(queue: &Q, clock: &ManualClock) {
    let batch = |jobs| Timing { batch_size: jobs, ..Timing::default() };
    jobs_pay_their_part(queue, clock, batch).await;
}

pub(crate) async fn jobs_that_share_a_process_pay_their_part_of_it<Q: Queue>(queue: &Q, clock: &ManualClock) {
    let process = |jobs| Timing { sharers_milli: jobs * 1_000, ..Timing::default() };
    jobs_pay_their_part(queue, clock, process).await;
}

pub(crate) async fn nobody_pays_for_a_job_that_is_handed_back<Q: Queue>(queue: &Q, clock: &ManualClock) {
    submit(queue, many("back", "echo", 20)).await;
    submit(queue, many("stays", "echo", 20)).await;
    let leases = queue.lease(query(4, 0)).await.unwrap();
    // The worker leased more jobs than it has slots.
    clock.advance_ms(10_000);
    for lease in &leases {
        if lease.spec.tenant == "back" {
            queue.release(&[lease.named()]).await.unwrap();
        } else {
            let timing = Timing { turn_ms: 9_000, run_ms: 1_000, ..Timing::default() };
            queue.finish(&[FinishReport { timing, ..succeed(lease) }]).await.unwrap();
        }
    }
    let tenants = run(queue, clock, 10, |_| 1_000).await;
    assert_eq!((share(&tenants, "back"), share(&tenants, "stays")), (6, 4), "six of each have run: {tenants:?}");
}

/// A tenant is not charged for the time that its jobs wait for a slot inside the worker, behind jobs of another tenant.
pub(crate) async fn nobody_pays_for_waiting_inside_a_worker<Q: Queue>(queue: &Q, clock: &ManualClock) {
    submit(queue, many("behind", "echo", 100)).await;
    submit(queue, many("before", "echo", 100)).await;
    let mut ended = HashMap::<String, usize>::new();
    for _ in 0..80 {
        let lease = one(queue).await;
        let turn_ms = if lease.spec.tenant == "behind" { 3_000 } else { 0 };
        clock.advance_ms(turn_ms + 1_000);
        let timing = Timing { turn_ms, run_ms: 1_000, ..Timing::default() };
        queue.finish(&[FinishReport { timing, ..succeed(&lease) }]).await.unwrap();
        *ended.entry(lease.spec.tenant).or_default() += 1;
    }
    assert!(ended["behind"].abs_diff(ended["before"]) <= 2, "{ended:?}");
}

async fn jobs_pay_their_part<Q: Queue>(queue: &Q, clock: &ManualClock, timing_of: impl Fn(u32) -> Timing) {
    submit(queue, many("together", "embed", 200)).await;
    submit(queue, many("alone", "echo", 200)).await;
    let mut ended = HashMap::<String, usize>::new();
    while ended.values().sum::<usize>() < 160 {
        // Four jobs of the one tenant take as long as one job of the other.
        let leases = queue.lease(query(4, 0)).await.unwrap();
        let (together, alone): (Vec<Lease>, Vec<Lease>) =
            leases.into_iter().partition(|lease| lease.spec.tenant == "together");
        let calls = together.chunks(4).chain(alone.chunks(1));
        for call in calls {
            clock.advance_ms(1_000);
            for lease in call {
                let timing = timing_of(u32::try_from(call.len()).unwrap());
                let report = FinishReport { timing, ..succeed(lease) };
                queue.finish(&[report]).await.unwrap();
                *ended.entry(lease.spec.tenant.clone()).or_default() += 1;
            }
        }
    }
    assert!(ended["together"] > 3 * ended["alone"], "{ended:?}");
}
