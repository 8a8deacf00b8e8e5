//! After the faults: the drain, and the final records of every witness.

mod dump;

pub(crate) use dump::scrape;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::clients::{Body, Caller};
use crate::cluster::Cluster;
use crate::cluster::redis::connect;
use crate::history::{Event, Journal, Kind};

/// Interval of the polls for the end of the drain: Redis has no event for it.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Minimum rate of the remaining jobs after the faults; retries wait for a few seconds.
const DRAIN_JOBS_PER_S: u64 = 60;
const DRAIN_PAUSES: Duration = Duration::from_secs(20);

/// A killed deliverer holds its messages for a while; then come the pauses between attempts.
const HOOKS_LIMIT: Duration = Duration::from_secs(60);

const ROOT: &str = "{stoke:0}";

/// Memory of Redis before the first job.
pub(crate) async fn baseline(cluster: &Cluster) -> Result<u64> {
    let mut redis = connect(&cluster.redis.url()).await?;
    Ok(dump::weights(&mut redis).await?.iter().map(|(_, bytes)| bytes).sum())
}

/// Waits until everything has ended, then makes every witness record its final state. `clients` is the journal of the
/// load, and `lookers` are its last tasks.
pub(crate) async fn finish(
    cluster: &Cluster,
    history: &Path,
    (clients, mut lookers): (Arc<Journal>, JoinSet<()>),
    baseline_bytes: u64,
) -> Result<()> {
    let journal = Journal::create(&history.join("final.jsonl"))?;
    drain(cluster, &journal).await?;
    lookers.shutdown().await;
    last_job(cluster, clients).await?;
    drain(cluster, &journal).await?;
    // Immediately: keys that an ended job left behind still exist.
    let mut redis = connect(&cluster.redis.url()).await?;
    let standing = dump::standing(&mut redis).await?;
    hooks(cluster, &journal).await?;
    dump::batches(cluster, &journal).await?;
    dump::scrape_all(cluster, &journal).await;
    dump::jobs(cluster, &mut redis, &journal).await?;
    dump::hooks(&mut redis, &journal).await?;
    dump::memory(&mut redis, &journal, standing, baseline_bytes).await?;
    canaries(cluster, history, &journal)
}

/// Runs one more job that succeeds a moment before the final records: a sweep would soon remove keys that the job's end
/// leaves behind.
async fn last_job(cluster: &Cluster, journal: Arc<Journal>) -> Result<()> {
    let caller = Caller::apart("client-last", cluster, journal);
    let job = Body::Json(json!({"endpoint": "chaos", "input": {"tag": "last#0"}}));
    caller.submit("submit", "/v1/jobs", "last", 1, job).await.context("the last job is not taken")?;
    Ok(())
}

async fn drain(cluster: &Cluster, journal: &Journal) -> Result<()> {
    let mut redis = connect(&cluster.redis.url()).await?;
    let open = dump::open(&mut redis).await?;
    let limit =
        Duration::from_millis(2 * cluster.size.lease_ms) + Duration::from_secs(open / DRAIN_JOBS_PER_S) + DRAIN_PAUSES;
    let begun = Instant::now();
    let mut left = open;
    while begun.elapsed() < limit {
        left = dump::open(&mut redis).await?;
        if left == 0 {
            break;
        }
        sleep(LOOK_EVERY).await;
    }
    let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let kind = if left == 0 { Kind::Ok } else { Kind::Fail };
    let event =
        Event::new("finale", kind, "drain").v(json!({"ms": ms, "limit_ms": limit.as_millis(), "open_at_heal": open}));
    journal.write(if left == 0 { event } else { event.err(format!("{left} jobs and batches are still open")) });
    Ok(())
}

/// Waits until no message is in flight.
async fn hooks(cluster: &Cluster, journal: &Journal) -> Result<()> {
    let mut redis = connect(&cluster.redis.url()).await?;
    let begun = Instant::now();
    let mut left: u64 = 1;
    while left > 0 && begun.elapsed() < HOOKS_LIMIT {
        left = redis::cmd("ZCARD").arg(format!("{ROOT}:hooks")).query_async(&mut redis).await?;
        sleep(LOOK_EVERY).await;
    }
    let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    journal.write(Event::new("finale", Kind::Ok, "hooks_done").v(json!({"ms": ms, "left": left})));
    Ok(())
}

/// Searches for every secret in every log and journal.
fn canaries(cluster: &Cluster, history: &Path, journal: &Journal) -> Result<()> {
    let mut secrets: Vec<(String, String)> = vec![
        ("token key".to_owned(), cluster.secrets.token_key.clone()),
        ("S3 secret".to_owned(), cluster.secrets.s3_secret_access_key.clone()),
        ("join token".to_owned(), cluster.secrets.join_token.clone()),
    ];
    for tenant in &cluster.tenants {
        secrets.push((format!("token of {}", tenant.name), tenant.token.clone()));
        secrets.push((format!("webhook secret of {}", tenant.name), tenant.hook_secret.clone()));
    }
    let (mut files, mut leaks) = (0, Vec::new());
    for folder in [cluster.dir.join("logs"), history.to_owned(), history.join("runs")] {
        for entry in std::fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
            let path = entry?.path();
            if !path.is_file() {
                continue;
            }
            files += 1;
            let text = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
            let told = secrets.iter().filter(|(_, secret)| secret.len() > 8 && text.contains(secret));
            leaks.extend(told.map(|(name, _)| format!("the {name} in {}", path.display())));
        }
    }
    let v: Value = json!({"files": files, "secrets": secrets.len(), "leaks": leaks});
    journal.write(Event::new("finale", Kind::Ok, "canaries").v(v));
    Ok(())
}
