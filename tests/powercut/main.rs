//! Gate C: power cuts. A real Redis under load is killed at a random moment and its files lose every byte that had not
//! been fsynced. Afterwards all acknowledgements must still hold (`strict`), or at least those from 2 s before
//! (`standard`).
//!
//! `CUTS` sets the number of cuts for each class, `SEED` the seed. `make powercut` runs a hundred.
#![cfg(target_os = "linux")]
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

mod disk;
mod draw;
mod load;
mod server;

use std::time::{Duration, Instant};

use disk::{Disk, Dropped};
use draw::Draw;
use futures::StreamExt;
use load::{Journal, Load, Told};
use server::Server;
use stokehold_queue::{JobId, Queue, RedisConfig, RedisQueue};

/// Number of cuts that one data directory survives before the next one is used.
const LIVES: u64 = 10;

/// P1: the maximum loss of `standard`.
const STANDARD_LOSS_MAX: Duration = Duration::from_secs(2);

const READS_AT_ONCE: usize = 64;

/// A durability class: its fsync setting, and the duration of the load before a cut.
#[derive(Debug, Clone, Copy)]
struct Class {
    name: &'static str,
    fsync: &'static str,
    run_ms: (u64, u64),
}

const STRICT: Class = Class { name: "strict", fsync: "always", run_ms: (50, 600) };
/// Longer than the second between two fsyncs, so that cuts fall anywhere in it.
const STANDARD: Class = Class { name: "standard", fsync: "everysec", run_ms: (200, 2_600) };

/// The results of all cuts of a class.
#[derive(Debug, Default)]
struct Sum {
    cuts: u64,
    /// Cuts that removed something.
    felt: u64,
    rewriting: u64,
    acknowledged: u64,
    dropped: Dropped,
    lost: u64,
    /// Cuts that lost an acknowledged operation.
    losing: u64,
    span: Duration,
    /// Restarts that needed a repair, see `server.rs`.
    repairs: u64,
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strict_loses_nothing_in_a_power_cut() {
    let sum = cuts(STRICT).await;
    assert_eq!(sum.lost, 0, "acknowledged jobs were lost");
    assert_eq!(sum.repairs, 0, "Redis did not come up by itself");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standard_loses_at_most_two_seconds_in_a_power_cut() {
    let sum = cuts(STANDARD).await;
    assert!(sum.dropped.bytes > 0, "void: no cut dropped a byte");
    assert!(sum.lost > 0, "void: no cut lost anything, so the check has not been shown to see a loss");
    assert!(sum.span <= STANDARD_LOSS_MAX, "a job that was acknowledged {:?} before a cut was lost", sum.span);
}

async fn cuts(class: Class) -> Sum {
    let (cuts, seed) = (number("CUTS", 4), number("SEED", 1));
    let (mut draw, mut sum) = (Draw(seed), Sum::default());
    println!("{}: {cuts} cuts, seed {seed}", class.name);
    while sum.cuts < cuts {
        let mut disk = Disk::new();
        let mut told = Vec::new();
        for _ in 0..LIVES.min(cuts - sum.cuts) {
            let life = life(class, &mut disk, &mut draw, &mut sum, &told).await;
            told.extend(life);
        }
        // Acknowledgements of an earlier life must have survived all later cuts.
        let (server, _) = Server::start(&mut disk, class.fsync);
        let gone = untrue(&connect(&server).await, &told).await;
        assert!(gone.is_empty(), "{} jobs were there after their own cut and are not after a later one", gone.len());
    }
    let ms = sum.span.as_millis();
    println!(
        "{}: cuts={} with_losses_on_disk={} during_rewrite={} acknowledged={} bytes_dropped={} files_cut={} names_undone={} \
         acknowledged_lost={} losing_cuts={} longest_span_lost_ms={ms} repairs={}",
        class.name,
        sum.cuts,
        sum.felt,
        sum.rewriting,
        sum.acknowledged,
        sum.dropped.bytes,
        sum.dropped.files,
        sum.dropped.names,
        sum.lost,
        sum.losing,
        sum.repairs,
    );
    sum
}

/// Runs from one start of the server through the cut. Returns the acknowledgements that still hold afterwards.
/// `earlier` are those of former lives: none of them may be lost, in any class, because they were on the disk when this
/// life began.
async fn life(
    class: Class,
    disk: &mut Disk,
    draw: &mut Draw,
    sum: &mut Sum,
    earlier: &[(JobId, Told, Instant)],
) -> Vec<(JobId, Told, Instant)> {
    let (mut server, _) = Server::start(disk, class.fsync);
    let queue = connect(&server).await;
    let journal = Journal::default();
    let load = Load::start(&queue, &journal, draw);
    let run_ms = class.run_ms.0 + draw.below(class.run_ms.1 - class.run_ms.0);
    tokio::time::sleep(Duration::from_millis(run_ms)).await;
    let rewrites = draw.below(2) == 0;
    let rewriting_ms = draw.below(80);
    if rewrites {
        rewrite(&server).await;
        tokio::time::sleep(Duration::from_millis(rewriting_ms)).await;
    }
    let cut_at = Instant::now();
    server.kill();
    load.stop().await;
    let dropped = disk.cut(draw);

    let (server, repairs) = Server::start(disk, class.fsync);
    sum.repairs += repairs;
    let queue = connect(&server).await;
    let told = journal.acknowledged();
    let lost = untrue(&queue, &told).await;
    let span = lost.iter().map(|(.., at)| cut_at.saturating_duration_since(*at)).max().unwrap_or_default();
    sum.add(dropped, told.len() as u64, lost.len() as u64, span, rewrites);
    println!(
        "  cut {:3}: after {run_ms:4} ms{}, {} acknowledged; dropped {} bytes of {} files, {} names; lost {}{}{}",
        sum.cuts,
        if rewrites { format!(" and {rewriting_ms} ms of a rewrite") } else { String::new() },
        told.len(),
        dropped.bytes,
        dropped.files,
        dropped.names,
        lost.len(),
        if lost.is_empty() { String::new() } else { format!(", the oldest told {} ms before", span.as_millis()) },
        if repairs > 0 { "; Redis would not start, manifest cut" } else { "" },
    );
    let recent = &earlier[earlier.len().saturating_sub(2_000)..];
    let gone = untrue(&queue, recent).await;
    assert!(gone.is_empty(), "{} jobs of former lives are gone", gone.len());
    let lost: std::collections::BTreeSet<JobId> = lost.into_iter().map(|(id, ..)| id).collect();
    told.into_iter().filter(|(id, ..)| !lost.contains(id)).collect()
}

impl Sum {
    fn add(&mut self, dropped: Dropped, acknowledged: u64, lost: u64, span: Duration, rewriting: bool) {
        self.cuts += 1;
        self.felt += u64::from(dropped.bytes > 0 || dropped.names > 0);
        self.rewriting += u64::from(rewriting);
        self.acknowledged += acknowledged;
        self.dropped.bytes += dropped.bytes;
        self.dropped.files += dropped.files;
        self.dropped.names += dropped.names;
        self.lost += lost;
        self.losing += u64::from(lost > 0);
        self.span = self.span.max(span);
    }
}

/// The acknowledgements that the queue contradicts.
async fn untrue(queue: &RedisQueue, told: &[(JobId, Told, Instant)]) -> Vec<(JobId, Told, Instant)> {
    let looked = told.iter().map(|entry| async move {
        let job = queue.get(entry.0).await.unwrap();
        (!Journal::agrees(entry.1, job.as_ref())).then_some(*entry)
    });
    futures::stream::iter(looked).buffer_unordered(READS_AT_ONCE).filter_map(|lost| async move { lost }).collect().await
}

async fn connect(server: &Server) -> RedisQueue {
    RedisQueue::connect(RedisConfig { url: server.url(), ..RedisConfig::default() }).await.unwrap()
}

async fn rewrite(server: &Server) {
    let client = redis::Client::open(server.url()).unwrap();
    let mut redis = client.get_multiplexed_async_connection().await.unwrap();
    // A rewrite may be in progress already.
    let _: Result<String, _> = redis::cmd("BGREWRITEAOF").query_async(&mut redis).await;
}
