//! Leases and extends beside long calls: over one connection, and with the pool. ADR 41 has the results.

use std::time::{Duration, Instant};

use stokehold_queue::backup::Source;
use stokehold_queue::job::{ErrorCode, JobSpec, NewJob};
use stokehold_queue::{Error, Queue, RedisConfig, RedisQueue};
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior};

use crate::conformance::{fail, held, job, query, raw, spec};
use crate::redis::server;

const ROUNDS: usize = 6;
/// Duration of each variant in a round.
const ROUND: Duration = Duration::from_secs(4);
/// Interval of the measured leases.
const PAIR_EVERY: Duration = Duration::from_millis(4);

/// Records of 160 KiB, so that a list of 100 is a reply of 16 MiB.
const LARGE: usize = 100;
const LARGE_BYTES: usize = 160 << 10;

/// Minimum interval of the long calls of one kind.
const EVERY: Duration = Duration::from_millis(200);

/// The long calls beside the measured ones.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    /// Lists of 16 MiB and the reads of the history sweep.
    Lists,
    /// The same, and backups. A backup has its own connections in both cases.
    ListsAndBackups,
}

async fn connect(config: &RedisConfig, long_calls: usize) -> RedisQueue {
    RedisQueue::connect(RedisConfig { long_calls, ..config.clone() }).await.unwrap()
}

/// Ended jobs with large inputs that are due for history, and one small job that is ready.
async fn fill(queue: &RedisQueue) {
    let input = format!("\"{}\"", "x".repeat(LARGE_BYTES));
    let large = || NewJob { input: raw(&input), spec: JobSpec { retention_ms: Some(1), ..spec("bad") }, ..job("bad") };
    for _ in 0..LARGE / 10 {
        queue.submit((0..10).map(|_| large()).collect()).await.unwrap();
        let leases = queue.lease(query(10, 0)).await.unwrap();
        let reports: Vec<_> = leases.iter().map(|lease| fail(lease, ErrorCode::BadOutput)).collect();
        queue.finish(&reports).await.unwrap();
    }
    queue.submit(vec![job("echo")]).await.unwrap();
}

fn every(interval: Duration) -> Interval {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Long calls that are repeated until the set is dropped.
async fn long_calls(beside: Beside, config: &RedisConfig, queue: &RedisQueue) -> JoinSet<()> {
    let mut calls = JoinSet::new();
    if beside == Beside::Nothing {
        return calls;
    }
    let (list, history) = (queue.clone(), queue.history());
    calls.spawn(async move {
        let mut ticks = every(EVERY);
        loop {
            ticks.tick().await;
            assert_eq!(list.dead("acme", None, LARGE).await.unwrap().len(), LARGE);
        }
    });
    calls.spawn(async move {
        let mut ticks = every(EVERY);
        loop {
            ticks.tick().await;
            assert!(!history.due(LARGE).await.unwrap().jobs.is_empty());
        }
    });
    if beside == Beside::Lists {
        return calls;
    }
    let source = Source::connect(config).await.unwrap();
    calls.spawn(async move {
        let mut ticks = every(EVERY);
        loop {
            ticks.tick().await;
            // The lane's stream may be deleted between two reads of it, which fails a backup without a pause.
            let _ = source.read(None, |_| Ok::<(), Error>(())).await;
        }
    });
    calls
}

/// Times of lease and extend, microseconds.
async fn measure(queue: &RedisQueue, times: &mut Vec<u128>) {
    let (mut ticks, until) = (every(PAIR_EVERY), Instant::now() + ROUND);
    while Instant::now() < until {
        ticks.tick().await;
        let began = Instant::now();
        let leases = queue.lease(query(1, 0)).await.unwrap();
        times.push(began.elapsed().as_micros());
        let leases = [held(&leases[0])];
        let began = Instant::now();
        queue.extend(&leases).await.unwrap();
        times.push(began.elapsed().as_micros());
        queue.release(&leases).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: make bench-connections"]
async fn long_calls_beside_leases() {
    let (server, _dir) = server(&["--appendfsync", "no"]);
    let config = RedisConfig { url: server.url(), ..RedisConfig::default() };
    let (shared, pool) = (connect(&config, 0).await, connect(&config, config.long_calls).await);
    fill(&pool).await;
    let ways = [
        ("no long calls", &shared, Beside::Nothing),
        ("lists, shared", &shared, Beside::Lists),
        ("lists, pool", &pool, Beside::Lists),
        ("lists and backups, shared", &shared, Beside::ListsAndBackups),
        ("lists and backups, pool", &pool, Beside::ListsAndBackups),
    ];
    let mut times = [const { Vec::new() }; 5];
    for round in 0..ROUNDS {
        for turn in 0..ways.len() {
            let way = (round + turn) % ways.len();
            let (_, queue, beside) = ways[way];
            let mut calls = long_calls(beside, &config, queue).await;
            measure(queue, &mut times[way]).await;
            assert!(calls.try_join_next().is_none(), "the long calls went on");
            drop(calls);
        }
    }
    println!("lease and extend: calls, then p50, p99, p99.9 and maximum in ms");
    for ((name, ..), mut micros) in ways.into_iter().zip(times) {
        micros.sort_unstable();
        let at = |permille: usize| {
            let micros = micros[(micros.len() - 1) * permille / 1_000];
            format!("{}.{:02}", micros / 1_000, micros % 1_000 / 10)
        };
        println!("| {name} | {} | {} | {} | {} | {} |", micros.len(), at(500), at(990), at(999), at(1_000));
    }
}
