//! Redis memory and CPU per job: the constants of `stoke doctor --plan`. Run alone; docs/BENCHMARKS.md has the command
//! and the results.

use futures::future::join_all;
use redis::aio::MultiplexedConnection;
use stokehold_queue::gateway::{FinishOutcome, FinishReport};
use stokehold_queue::job::{NewJob, Timing};
use stokehold_queue::queue::Lease;
use stokehold_queue::{Clock, Queue};

use crate::conformance::{job, query, raw as json};
use crate::redis::{queue, raw, server};

const JOBS: usize = 10_000;

struct Redis(MultiplexedConnection);

impl Redis {
    async fn number(&mut self, section: &str, field: &str) -> f64 {
        let info: String = redis::cmd("INFO").arg(section).query_async(&mut self.0).await.unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap().trim().parse().unwrap()
    }

    async fn memory(&mut self) -> f64 {
        self.number("memory", "used_memory").await
    }

    async fn file(&mut self) -> f64 {
        self.number("persistence", "aof_current_size").await
    }

    async fn cpu_s(&mut self) -> f64 {
        self.number("cpu", "used_cpu_user").await + self.number("cpu", "used_cpu_sys").await
    }
}

fn text(bytes: usize) -> Box<serde_json::value::RawValue> {
    json(&format!("\"{}\"", "x".repeat(bytes - 2)))
}

fn done(lease: &Lease, result_bytes: usize) -> FinishReport {
    let timing = Timing { run_ms: 5, ..Timing::default() };
    FinishReport::new(lease.named(), timing, FinishOutcome::Succeeded { result: text(result_bytes) })
}

/// Runs `what` the given number of times in each client, all clients concurrently.
async fn each(clients: usize, rounds: usize, what: impl AsyncFn()) {
    join_all((0..clients).map(|_| async {
        for _ in 0..rounds {
            what().await;
        }
    }))
    .await;
}

#[tokio::test]
#[ignore = "prints figures and checks nothing; run it alone"]
async fn what_a_job_takes() {
    for (payload, result, at_once, clients) in
        [(200, 200, 1, 1), (200, 200, 1, 32), (200, 200, 20, 1), (4_200, 200, 20, 1), (200, 4_200, 20, 1)]
    {
        // The settings of deploy/redis.conf.
        let compact = ["--hash-max-listpack-value", "1024", "--stream-node-max-entries", "16"];
        let (server, _dir) = server(&[&compact[..], &["--auto-aof-rewrite-percentage", "0"]].concat());
        let queue = queue(&server, Clock::Own).await;
        queue.check_fitness(false).await.unwrap();
        let mut redis = Redis(raw(&server).await);
        let (memory, file, cpu) = (redis.memory().await, redis.file().await, redis.cpu_s().await);
        let rounds = JOBS / at_once / clients;
        each(clients, rounds, async || {
            queue.submit((0..at_once).map(|_| NewJob { input: text(payload), ..job("echo") }).collect()).await.unwrap();
        })
        .await;
        let queued = redis.memory().await;
        each(clients, rounds, async || {
            let leases = queue.lease(query(u32::try_from(at_once).unwrap(), 0)).await.unwrap();
            let reports: Vec<_> = leases.iter().map(|lease| done(lease, result)).collect();
            queue.finish(&reports).await.unwrap();
        })
        .await;
        let jobs = (rounds * at_once * clients) as f64;
        println!(
            "payload {payload} result {result}, {clients} clients, {at_once} a call: {:.0} bytes queued, {:.0} ended, {:.0} written, {:.3} CPU s per 1,000 jobs",
            (queued - memory) / jobs,
            (redis.memory().await - memory) / jobs,
            (redis.file().await - file) / jobs,
            (redis.cpu_s().await - cpu) / jobs * 1_000.0,
        );
    }
}
