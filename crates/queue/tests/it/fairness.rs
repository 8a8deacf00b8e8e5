//! Waiting times in simulated time on a real Redis: the clock belongs to the test, so the results depend on the queue
//! and not on the machine. `make fairness` runs the test at full size.

use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use stokehold_queue::capability::Capability;
use stokehold_queue::job::{JobSpec, NewJob, Priority};
use stokehold_queue::queue::{Lease, LeaseQuery};
use stokehold_queue::{Clock, JobId, ManualClock, Queue, RedisQueue};

use crate::conformance::{START_MS, job, spec, succeed};

const SERVICE_MS: u64 = 1_000;

/// The fraction of the full size that runs; the full size with `STOKE_FULL_SIZE`.
fn sized(full: usize) -> usize {
    if std::env::var_os("STOKE_FULL_SIZE").is_some() { full } else { full / 20 }
}

/// Machines that serve every job in the same time.
struct Machines {
    queue: RedisQueue,
    clock: ManualClock,
    free: usize,
    /// Running jobs by end time, the earliest first.
    running: BinaryHeap<std::cmp::Reverse<(u64, JobId)>>,
    leases: BTreeMap<JobId, Lease>,
    submitted: BTreeMap<JobId, u64>,
    /// Tenant, priority and wait of each start.
    starts: Vec<(String, Priority, u64)>,
}

impl Machines {
    async fn new(server: &stokehold_tests::redis_server::RedisServer, slots: usize) -> Self {
        let clock = ManualClock::new(START_MS);
        let queue = crate::redis::queue(server, Clock::Manual(clock.clone())).await;
        Self {
            queue,
            clock,
            free: slots,
            running: BinaryHeap::new(),
            leases: BTreeMap::new(),
            submitted: BTreeMap::new(),
            starts: Vec::new(),
        }
    }

    async fn submit(&mut self, tenant: &str, priority: Priority, jobs: usize) {
        for _ in 0..jobs.div_ceil(1_000) {
            let spec = JobSpec { tenant: tenant.into(), priority, ..spec("m") };
            let jobs: Vec<NewJob> = (0..jobs.min(1_000)).map(|_| NewJob { spec: spec.clone(), ..job("m") }).collect();
            for job in &jobs {
                self.submitted.insert(job.id, self.clock.now_ms());
            }
            self.queue.submit(jobs).await.unwrap();
        }
    }

    /// Gives each free slot a job, if there is one.
    async fn fill(&mut self) {
        while self.free > 0 {
            let query = LeaseQuery::new("w", 1, Capability::usual(0));
            let Some(lease) = self.queue.lease(query).await.unwrap().pop() else { return };
            let now = self.clock.now_ms();
            let waited = now - self.submitted[&lease.job_id];
            self.starts.push((lease.spec.tenant.clone(), lease.spec.priority, waited));
            self.running.push(std::cmp::Reverse((now + SERVICE_MS, lease.job_id)));
            self.leases.insert(lease.job_id, lease);
            self.free -= 1;
        }
    }

    /// Advances time to `until_ms`; jobs end and start as they fall due.
    async fn run_to(&mut self, until_ms: u64) {
        self.fill().await;
        while let Some(std::cmp::Reverse((ends, id))) = self.running.peek().copied().filter(|run| run.0.0 <= until_ms) {
            self.running.pop();
            self.clock.advance_ms(ends - self.clock.now_ms());
            let lease = self.leases.remove(&id).unwrap();
            self.queue.finish(&[succeed(&lease)]).await.unwrap();
            self.free += 1;
            self.fill().await;
        }
        self.clock.advance_ms(until_ms - self.clock.now_ms());
    }
}

/// Arrival times of a tenant's jobs: random, at nine tenths of the rate that its share could serve.
fn arrivals(seed: u64, end_ms: u64) -> VecDeque<u64> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut times = VecDeque::new();
    let mut at = 0.0;
    loop {
        at += -random.random::<f64>().max(1e-12).ln() * SERVICE_MS as f64 / 0.9;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few minutes in ms")]
        let time = at as u64;
        if time >= end_ms {
            return times;
        }
        times.push_back(START_MS + time);
    }
}

async fn drive(machines: &mut Machines, tenants: &[(String, u64)], end_ms: u64) {
    let mut coming: Vec<(u64, &str)> = tenants
        .iter()
        .flat_map(|(tenant, seed)| arrivals(*seed, end_ms).into_iter().map(|at| (at, tenant.as_str())))
        .collect();
    coming.sort_unstable();
    for (at, tenant) in coming {
        machines.run_to(at).await;
        machines.submit(tenant, Priority::Standard, 1).await;
        machines.fill().await;
    }
    machines.run_to(START_MS + end_ms).await;
}

fn p99(waits: &mut [u64]) -> u64 {
    waits.sort_unstable();
    waits[(waits.len() * 99).div_ceil(100) - 1]
}

#[tokio::test]
async fn a_flood_of_one_tenant_makes_the_others_wait_no_longer_than_alone_at_their_share() {
    let (server, _dir) = crate::redis::server(&[]);
    let end_ms = if std::env::var_os("STOKE_FULL_SIZE").is_some() { 300_000 } else { 60_000 };
    let tenants: Vec<(String, u64)> = (1..20).map(|n| (format!("t{n}"), n)).collect();

    let mut shared = Machines::new(&server, 20).await;
    shared.submit("flood", Priority::Standard, sized(100_000)).await;
    drive(&mut shared, &tenants, end_ms).await;
    let mut beside: Vec<u64> =
        shared.starts.iter().filter(|(tenant, ..)| tenant != "flood").map(|(_, _, wait)| *wait).collect();
    let flood = shared.starts.len() - beside.len();

    let mut alone: Vec<u64> = Vec::new();
    for tenant in &tenants {
        let mut own = Machines::new(&server, 1).await;
        drive(&mut own, std::slice::from_ref(tenant), end_ms).await;
        alone.extend(own.starts.iter().map(|(_, _, wait)| *wait));
    }
    let (beside_p99, alone_p99) = (p99(&mut beside), p99(&mut alone));
    println!(
        "p99 wait beside {} queued jobs of another: {beside_p99} ms ({} starts); alone at their share: {alone_p99} ms ({}); \
         the flood had {flood} starts meanwhile",
        sized(100_000),
        beside.len(),
        alone.len(),
    );
    assert!(beside_p99 * 10 <= alone_p99 * 12, "{beside_p99} ms is more than 1.2 x {alone_p99} ms");
    assert!(flood as u64 >= end_ms / SERVICE_MS, "and the flood gets its share of what there is");
}

#[tokio::test]
async fn interactive_jobs_start_as_soon_as_slots_get_free_however_much_batch_work_waits() {
    let (server, _dir) = crate::redis::server(&["--maxmemory", "4gb"]);
    let mut machines = Machines::new(&server, 10).await;
    machines.submit("a", Priority::Batch, sized(500_000)).await;
    // The slots become free one after the other.
    for n in 0..10 {
        machines.run_to(START_MS + n * SERVICE_MS / 10).await;
    }
    let interactive = sized(1_000).max(200);
    let at = machines.clock.now_ms();
    let before = machines.starts.len();
    machines.submit("b", Priority::Interactive, interactive).await;
    machines.run_to(at + (interactive as u64 / 10 + 1) * SERVICE_MS).await;

    let started = &machines.starts[before..];
    let served: Vec<&(String, Priority, u64)> =
        started.iter().take_while(|(_, priority, _)| *priority == Priority::Interactive).collect();
    println!(
        "{} interactive jobs beside {} batch jobs: the first after {} ms, the last after {} ms, none behind a batch job",
        served.len(),
        sized(500_000),
        served.first().map_or(0, |start| start.2),
        served.last().map_or(0, |start| start.2),
    );
    assert_eq!(served.len(), interactive, "every slot that got free went to one of them");
    for (n, start) in served.iter().enumerate() {
        let slot_free_ms = (n as u64 / 10 + 1) * SERVICE_MS;
        assert!(start.2 <= slot_free_ms, "the {n}th started after {} ms", start.2);
    }
}
