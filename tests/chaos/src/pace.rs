//! The pace of a load. A machine that cannot keep up with it answers late whatever the product does, so a paced load
//! takes longer there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;
use tokio::task::JoinSet;

use crate::clients::{Body, Caller};
use crate::cluster::Cluster;
use crate::history::Journal;
use crate::plan::Plan;

/// Jobs that start the runners, and those that are timed afterwards.
const FIRST: u32 = 24;
const TIMED: u32 = 200;

/// Part of the throughput that a load may use. Faults leave a part of the processes to do all of the work.
const PART: f64 = 0.5;

/// A load takes at most this many times as long as planned.
const LONGER_MAX: u32 = 4;

/// Timeout for a job of the measurement, seconds.
const WAIT_S: u64 = 30;

/// The duration of the plan's load on this machine: as planned, or as long as it takes at [`PART`] of the throughput
/// that [`TIMED`] jobs reach without faults.
pub(crate) async fn duration(plan: &Plan, cluster: &Cluster, journal: &Arc<Journal>) -> Result<Duration> {
    let caller = Caller::apart("client-pace", cluster, Arc::clone(journal));
    jobs(&caller, "first", FIRST).await?;
    let begun = Instant::now();
    jobs(&caller, "timed", TIMED).await?;
    let each = begun.elapsed() / TIMED;
    let needed = each.mul_f64(1.0 / PART).saturating_mul(u32::try_from(plan.jobs).unwrap_or(u32::MAX));
    Ok(needed.clamp(plan.duration, plan.duration * LONGER_MAX))
}

/// Runs jobs at once, until all have ended.
async fn jobs(caller: &Caller, name: &str, number: u32) -> Result<()> {
    let mut running = JoinSet::new();
    for n in 0..number {
        let (caller, key) = (caller.clone(), format!("{name}-{n}"));
        running.spawn(async move {
            let job = Body::Json(json!({"endpoint": "chaos", "input": {"tag": format!("{key}#0")}}));
            let ids = caller.submit("submit", "/v1/jobs", &key, 1, job).await;
            match ids.as_deref() {
                Some([id]) => caller.read(id, WAIT_S).await,
                _ => return false,
            }
            true
        });
    }
    while let Some(taken) = running.join_next().await {
        ensure!(taken?, "a job of the measurement is not taken");
    }
    Ok(())
}
