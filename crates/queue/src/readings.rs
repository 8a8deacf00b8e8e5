//! The readings of each worker in the last hour, for charts: one for every half minute.

use redis::AsyncCommands;
use serde::{Deserialize, Serialize};

use crate::connection::Connection;
use crate::error::Error;
use crate::gateway::{GpuReading, HostStatus};
use crate::keys::RegistryKeys;
use crate::registry::{WorkerRecord, to_json};

/// Time between two stored readings, milliseconds.
const EVERY_MS: u64 = 30_000;

/// Maximum number of stored readings: an hour.
const KEPT: u64 = 120;

/// One reading of a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerReading {
    /// Time of the reading, Unix milliseconds.
    pub at_ms: u64,
    /// Number of running attempts.
    pub running: u32,
    /// GPUs of the worker.
    pub gpus: Vec<GpuReading>,
    /// Host of the worker.
    pub host: HostStatus,
}

/// Stores a reading in place of the one of an hour ago. The latest of each half minute stays.
pub(crate) fn note(pipe: &mut redis::Pipeline, keys: &RegistryKeys, worker: &WorkerRecord) -> Result<(), Error> {
    let (key, place) = (keys.readings(&worker.worker_id), worker.seen_ms / EVERY_MS % KEPT);
    let reading = WorkerReading {
        at_ms: worker.seen_ms,
        running: worker.status.running,
        gpus: worker.status.gpus.clone(),
        host: worker.status.host.clone(),
    };
    pipe.hset(&key, place, to_json("store a worker's readings", &reading)?)
        .ignore()
        .pexpire(&key, (EVERY_MS * KEPT).cast_signed())
        .ignore();
    Ok(())
}

/// The readings of a worker in the last hour, oldest first.
pub(crate) async fn read(
    connection: &Connection,
    keys: &RegistryKeys,
    worker_id: &str,
    now_ms: u64,
) -> Result<Vec<WorkerReading>, Error> {
    let step = "read a worker's readings";
    let texts: Vec<String> = connection.redis().hvals(keys.readings(worker_id)).await.map_err(Error::redis(step))?;
    let mut readings: Vec<WorkerReading> = texts.iter().filter_map(|text| serde_json::from_str(text).ok()).collect();
    readings.retain(|reading| reading.at_ms + EVERY_MS * KEPT > now_ms);
    readings.sort_by_key(|reading| reading.at_ms);
    Ok(readings)
}
