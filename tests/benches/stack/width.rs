//! Cost of a job by the number of endpoints, priorities and tenants. This measures the queue alone: a worker with a
//! thousand loaded endpoints would measure a thousand Python processes.

use std::time::Instant;

use serde_json::value::RawValue;
use stokehold_queue::capability::Capability;
use stokehold_queue::gateway::{FinishOutcome, FinishReport};
use stokehold_queue::job::{JobSpec, NewJob, Priority, Timing};
use stokehold_queue::queue::{Lease, LeaseQuery};
use stokehold_queue::{BATCH_MAX, JobId, Queue as _, RedisConfig, RedisQueue, SUBMIT_MAX};
use stokehold_tests::redis_server::RedisServer;

use crate::measure::{CpuWatch, Figures, rate};
use crate::protocol;

const ENDPOINTS: usize = 1_000;
const TENANTS: usize = 20;
const PRIORITIES: [Priority; 3] = [Priority::Interactive, Priority::Standard, Priority::Batch];

pub(crate) async fn measure(figures: &mut Figures) -> anyhow::Result<()> {
    let (per_s, cpu_s) = drain(1, 1, &[Priority::Standard]).await?;
    (figures.narrow_drain_per_s, figures.narrow_cpu_s_per_1000) = (Some(per_s), Some(cpu_s));
    let (per_s, cpu_s) = drain(ENDPOINTS, TENANTS, &PRIORITIES).await?;
    (figures.width_drain_per_s, figures.width_cpu_s_per_1000) = (Some(per_s), Some(cpu_s));
    Ok(())
}

/// 60,000 jobs distributed evenly, then leased and finished 100 at a time: jobs per second, and CPU seconds of Redis
/// per 1,000.
async fn drain(endpoints: usize, tenants: usize, priorities: &[Priority]) -> anyhow::Result<(f64, f64)> {
    let dir = tempfile::tempdir()?;
    let server = RedisServer::start(dir.path(), &["--hash-max-listpack-value", "1024", "--maxmemory", "2gb"]);
    let queue = RedisQueue::connect(RedisConfig { url: server.url(), ..RedisConfig::default() }).await?;
    let total = ENDPOINTS * TENANTS * PRIORITIES.len();
    let input = RawValue::from_string(protocol::payload().to_string())?;
    let jobs: Vec<NewJob> = (0..total)
        .map(|n| {
            let spec = JobSpec {
                tenant: format!("tenant{}", n % tenants),
                endpoint: format!("endpoint{}", n / tenants % endpoints),
                version: 1,
                priority: priorities[n / tenants / endpoints % priorities.len()],
                timeout_ms: 60_000,
                max_attempts: 3,
                ..JobSpec::default()
            };
            NewJob::new(JobId::new(0), spec, input.clone())
        })
        .collect();
    for jobs in jobs.chunks(SUBMIT_MAX) {
        queue.submit(jobs.to_vec()).await?;
    }
    let (cpu, start, mut done) = (CpuWatch::start(vec![("redis", server.pid())]), Instant::now(), 0);
    while done < total {
        let want = u32::try_from(BATCH_MAX)?;
        let query = LeaseQuery::new("bench", want, Capability::usual(0));
        let reports: Vec<FinishReport> = queue.lease(query).await?.iter().map(succeeded).collect::<Result<_, _>>()?;
        anyhow::ensure!(!reports.is_empty(), "{} jobs are left and none is leased", total - done);
        done += reports.len();
        queue.finish(&reports).await?;
    }
    Ok((rate(total, start.elapsed()), cpu.per_1000(total).values().sum()))
}

fn succeeded(lease: &Lease) -> anyhow::Result<FinishReport> {
    let result = RawValue::from_string(r#"{"ok":true,"note":"yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"}"#.to_owned())?;
    Ok(FinishReport::new(lease.named(), Timing::default(), FinishOutcome::Succeeded { result }))
}
