//! Redis resources of a load, calculated from measurements.

use anyhow::Result;
use serde::Serialize;

use crate::failure::usage;

/// Measurements of the queue's test `what_a_job_takes` on Redis 7.0 with deploy/redis.conf; see docs/BENCHMARKS.md.
mod measured {
    /// Memory of a queued job, without its payload, bytes.
    pub(super) const QUEUED_BYTES: f64 = 245.0;
    /// Memory of an ended job, without its payload and its result, bytes.
    pub(super) const ENDED_BYTES: f64 = 430.0;
    /// Memory per byte of payload or result: the allocator rounds up.
    pub(super) const BYTES_PER_BYTE: f64 = 1.38;
    /// Bytes written to the append-only file per job, without its payload and its result.
    pub(super) const WRITTEN_BYTES: f64 = 2_250.0;
    /// CPU time of Redis per job, seconds, with 32 clients, one job per call and every call on disk before its reply.
    pub(super) const CPU_S: f64 = 0.000_26;
}

/// A larger result goes to S3; only its length stays in Redis (`INLINE_RESULT_BYTES`).
const INLINE_BYTES: f64 = stokehold_queue::job::INLINE_RESULT_BYTES as f64;

/// Target memory use. Admission closes at 80 % of maxmemory.
const FULL: f64 = 0.7;

/// Host memory per byte of maxmemory: a rewrite of the append-only file copies pages that change meanwhile.
const HOST_TIMES: f64 = 1.5;

/// Target CPU use of Redis' single thread. Above this, callers wait.
const CORE_FULL: f64 = 0.6;

/// Maximum size of a shard: a larger Redis is slow to load and to fork.
const SHARD_BYTES_MAX: f64 = 25.0 * GIB;

/// Target use of slots, so that some are free for bursts.
const SLOTS_FULL: f64 = 0.8;

const GIB: f64 = (1_u64 << 30) as f64;

/// The load to plan for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Load {
    jobs_per_s: f64,
    payload_bytes: f64,
    result_bytes: f64,
    retention_s: f64,
    run_s: f64,
    backlog: f64,
}

/// The resources of a load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Plan {
    load: Load,
    /// Jobs in Redis at a time: waiting, running, and ended within the retention.
    jobs_kept: f64,
    /// Memory of these jobs, bytes.
    memory_bytes: f64,
    /// `maxmemory` of all shards together, bytes.
    maxmemory_bytes: f64,
    /// Memory of the hosts of all shards together, bytes.
    host_memory_bytes: f64,
    aof_bytes_per_s: f64,
    redis_cores: f64,
    shards: f64,
    slots: f64,
}

impl Load {
    /// Parses `jobs_per_s=50 payload_bytes=2000 ...`.
    pub(super) fn parse(words: &[String]) -> Result<Self> {
        const DAY_S: f64 = 86_400.0;
        let mut load = Self {
            jobs_per_s: f64::NAN,
            payload_bytes: f64::NAN,
            result_bytes: 1_000.0,
            retention_s: DAY_S,
            run_s: 1.0,
            backlog: 0.0,
        };
        for word in words {
            let Some((name, value)) = word.split_once('=') else { usage!("{word:?} is not NAME=NUMBER") };
            let place = match name {
                "jobs_per_s" => &mut load.jobs_per_s,
                "payload_bytes" => &mut load.payload_bytes,
                "result_bytes" => &mut load.result_bytes,
                "retention_s" => &mut load.retention_s,
                "run_s" => &mut load.run_s,
                "backlog" => &mut load.backlog,
                _ => usage!(
                    "unknown name {name:?}; valid: jobs_per_s, payload_bytes, result_bytes, retention_s, run_s, backlog"
                ),
            };
            match value.parse::<f64>() {
                Ok(number) if number.is_finite() && number >= 0.0 => *place = number,
                _ => usage!("{name} must be a number of 0 or more, not {value:?}"),
            }
        }
        for (name, value) in [("jobs_per_s", load.jobs_per_s), ("payload_bytes", load.payload_bytes)] {
            if value.is_nan() {
                usage!("{name} is required, e.g. {name}=100");
            }
        }
        Ok(load)
    }
}

impl Plan {
    pub(super) fn of(load: &Load) -> Self {
        let result_bytes = if load.result_bytes <= INLINE_BYTES { load.result_bytes } else { 0.0 };
        let open = load.backlog + load.jobs_per_s * load.run_s;
        let ended = load.jobs_per_s * load.retention_s;
        let values = |bytes: f64| bytes * measured::BYTES_PER_BYTE;
        let memory_bytes = open * (measured::QUEUED_BYTES + values(load.payload_bytes))
            + ended * (measured::ENDED_BYTES + values(load.payload_bytes + result_bytes));
        let maxmemory_bytes = memory_bytes / FULL;
        let redis_cores = load.jobs_per_s * measured::CPU_S;
        Self {
            load: load.clone(),
            jobs_kept: open + ended,
            memory_bytes,
            maxmemory_bytes,
            host_memory_bytes: maxmemory_bytes * HOST_TIMES,
            aof_bytes_per_s: load.jobs_per_s * (measured::WRITTEN_BYTES + load.payload_bytes + result_bytes),
            redis_cores,
            shards: (redis_cores / CORE_FULL).max(maxmemory_bytes / SHARD_BYTES_MAX).ceil().max(1.0),
            slots: (load.jobs_per_s * load.run_s / SLOTS_FULL).ceil(),
        }
    }

    /// The rows of the table: label and figure.
    pub(super) fn rows(&self) -> Vec<(&'static str, String)> {
        let bytes = |bytes: f64| {
            let (unit, size) = [("GiB", GIB), ("MiB", (1_u64 << 20) as f64), ("KiB", 1_024.0)]
                .into_iter()
                .find(|(_, size)| bytes >= *size)
                .unwrap_or(("bytes", 1.0));
            format!("{:.1} {unit}", bytes / size)
        };
        vec![
            ("jobs in Redis at a time", format!("{:.0}", self.jobs_kept)),
            ("memory of these jobs", bytes(self.memory_bytes)),
            ("maxmemory of all shards", bytes(self.maxmemory_bytes)),
            ("memory of the hosts", bytes(self.host_memory_bytes)),
            ("append-only file writes", format!("{}/s", bytes(self.aof_bytes_per_s))),
            ("Redis CPU cores", format!("{:.2}", self.redis_cores)),
            ("shards", format!("{:.0}", self.shards)),
            ("worker slots", format!("{:.0}", self.slots)),
        ]
    }

    /// Advice on the figures.
    pub(super) fn advice(&self) -> Option<String> {
        let most = f64::from(stokehold_queue::SHARDS_MAX);
        if self.shards > most {
            return Some(format!(
                "This needs more than the maximum of {most:.0} shards: keep ended jobs for less time (retention_s), or pass inputs as files."
            ));
        }
        (self.shards > 1.0).then(|| "A tenant is on one shard: a single tenant cannot use more.".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Plan {
        Plan::of(&load(text).unwrap())
    }

    fn load(text: &str) -> Result<Load> {
        Load::parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn ended_jobs_are_most_of_the_memory() {
        let plan = plan("jobs_per_s=10 payload_bytes=1000 result_bytes=500 retention_s=3600 run_s=2 backlog=100");
        assert_eq!(plan.jobs_kept, 100.0 + 20.0 + 36_000.0);
        let queued = measured::QUEUED_BYTES + 1_000.0 * measured::BYTES_PER_BYTE;
        let expected = 120.0 * queued + 36_000.0 * (measured::ENDED_BYTES + 1_500.0 * measured::BYTES_PER_BYTE);
        assert_eq!(plan.memory_bytes, expected);
        assert_eq!(plan.maxmemory_bytes, expected / FULL);
        assert_eq!((plan.shards, plan.slots), (1.0, 25.0));
        assert_eq!(plan.advice(), None);
    }

    #[test]
    fn a_large_result_takes_no_memory() {
        let stored = plan("jobs_per_s=1 payload_bytes=0 result_bytes=10000000");
        assert_eq!(stored.memory_bytes, plan("jobs_per_s=1 payload_bytes=0 result_bytes=0").memory_bytes);
    }

    #[test]
    fn shards_follow_from_cores_and_from_memory() {
        let cores = plan(&format!("jobs_per_s={} payload_bytes=0 retention_s=0", 2.5 * CORE_FULL / measured::CPU_S));
        assert_eq!(cores.shards, 3.0);
        let memory = plan(&format!(
            "jobs_per_s=0 payload_bytes=0 backlog={}",
            3.5 * SHARD_BYTES_MAX * FULL / measured::QUEUED_BYTES
        ));
        assert_eq!(memory.shards, 4.0);
        assert!(memory.advice().unwrap().contains("one shard"));
    }

    #[test]
    fn mistakes_are_named() {
        let said = |text| load(text).unwrap_err().to_string();
        assert!(said("jobs_per_s=1").contains("payload_bytes"));
        assert!(said("jobs_per_s=many payload_bytes=1").contains("jobs_per_s must be a number"));
        assert!(said("jobs_per_s=-1 payload_bytes=1").contains("a number of 0 or more"));
        assert!(said("speed=1").contains("valid: jobs_per_s"));
        assert!(said("fast").contains("NAME=NUMBER"));
    }
}
