//! The plan of a run, drawn from its seed before it begins: the load by its kinds, the faults by their times.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

/// Kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// kill -9 of a worker.
    KillWorker,
    /// kill -9 of a runner.
    KillRunner,
    /// SIGSTOP of a worker and its runners for longer than a lease, then SIGCONT.
    PauseWorker,
    /// SIGSTOP of a worker alone: its runner continues, and finishes a job that its worker no longer holds.
    PauseWorkerAlone,
    /// kill -9 of Redis, and its restart on its data.
    KillRedis,
    /// SIGSTOP of Redis.
    PauseRedis,
    /// Redis is away for longer than a lease.
    LongRedisOutage,
    /// kill -9 of a replica of the API while it accepts submits.
    KillApi,
    /// A replica dies by itself between two critical awaits.
    Failpoint,
    /// The connection between a worker and the gateway is cut in both directions.
    PartitionWorker,
    /// The connection is cut in one direction.
    OneWayWorker,
    /// The connection between a replica and Redis is cut.
    PartitionRedis,
    /// Replies of Redis to a replica are lost, although the operation was done.
    DropRedisReply,
    /// Replies of the gateway to a worker are lost.
    DropGatewayReply,
    /// Replies of the API to clients are lost.
    DropClientReply,
    /// Connections to S3 are reset.
    BreakS3,
    /// S3 is slow.
    SlowS3,
    /// SIGTERM to a replica, which is replaced by one of the other release.
    RollApi,
    /// SIGTERM to a worker, which drains and is replaced by one of the other release.
    RollWorker,
}

impl Fault {
    /// Its name in the history.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::KillWorker => "kill_worker",
            Self::KillRunner => "kill_runner",
            Self::PauseWorker => "pause_worker",
            Self::PauseWorkerAlone => "pause_worker_alone",
            Self::KillRedis => "kill_redis",
            Self::PauseRedis => "pause_redis",
            Self::LongRedisOutage => "long_redis_outage",
            Self::KillApi => "kill_api",
            Self::Failpoint => "failpoint",
            Self::PartitionWorker => "partition_worker",
            Self::OneWayWorker => "one_way_worker",
            Self::PartitionRedis => "partition_redis",
            Self::DropRedisReply => "drop_redis_reply",
            Self::DropGatewayReply => "drop_gateway_reply",
            Self::DropClientReply => "drop_client_reply",
            Self::BreakS3 => "break_s3",
            Self::SlowS3 => "slow_s3",
            Self::RollApi => "roll_api",
            Self::RollWorker => "roll_worker",
        }
    }
}

/// Planned number of each fault.
pub type Faults = BTreeMap<Fault, u32>;

/// Gate A: at least 100 faults in a run short enough to wait for.
#[must_use]
pub fn gate_a() -> Faults {
    use Fault::*;
    Faults::from([
        (KillWorker, 16),
        (KillRunner, 22),
        (PauseWorker, 8),
        (PauseWorkerAlone, 8),
        (KillRedis, 4),
        (PauseRedis, 3),
        (LongRedisOutage, 2),
        (KillApi, 5),
        (Failpoint, 10),
        (PartitionWorker, 4),
        (OneWayWorker, 5),
        (PartitionRedis, 2),
        (DropRedisReply, 8),
        (DropGatewayReply, 8),
        (DropClientReply, 8),
        (BreakS3, 3),
        (SlowS3, 2),
        (RollApi, 2),
        (RollWorker, 3),
    ])
}

/// A rolling upgrade without other faults: every process of `apis` and `workers` goes to the next release, back, and
/// forward again.
#[must_use]
pub fn upgrade(apis: u32, workers: u32) -> Faults {
    Faults::from([(Fault::RollApi, 3 * apis), (Fault::RollWorker, 3 * workers)])
}

/// Gate B, for one seed: five of them reach the number that RELIABILITY requires.
#[must_use]
pub fn gate_b() -> Faults {
    use Fault::*;
    Faults::from([
        (KillWorker, 90),
        (KillRunner, 120),
        (PauseWorker, 35),
        (PauseWorkerAlone, 30),
        (KillRedis, 10),
        (PauseRedis, 5),
        (LongRedisOutage, 3),
        (KillApi, 8),
        (Failpoint, 24),
        (PartitionWorker, 6),
        (OneWayWorker, 8),
        (PartitionRedis, 4),
        (DropRedisReply, 20),
        (DropGatewayReply, 20),
        (DropClientReply, 20),
        (BreakS3, 6),
        (SlowS3, 4),
    ])
}

/// The faults of the runs that look for planted bugs: short, with the most frequent faults of gate A.
#[must_use]
pub fn mutant_faults() -> Faults {
    use Fault::*;
    Faults::from([
        (KillWorker, 5),
        (KillRunner, 3),
        (PauseWorkerAlone, 10),
        (KillRedis, 1),
        (LongRedisOutage, 2),
        (KillApi, 1),
        (Failpoint, 10),
        (OneWayWorker, 2),
        (DropRedisReply, 12),
        (DropGatewayReply, 4),
        (DropClientReply, 6),
    ])
}

/// A fault and its time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Planned {
    pub(crate) at: Duration,
    pub(crate) fault: Fault,
    /// Picks the target: 0 to 1 of the targets at that time.
    pub(crate) pick: f64,
    /// Duration as a fraction (0 to 1) of the maximum of its kind.
    pub(crate) size: f64,
}

/// A whole run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The seed of all random choices.
    pub seed: u64,
    /// Jobs, lines of batches included.
    pub jobs: u64,
    /// Duration of the load.
    pub duration: Duration,
    /// The faults.
    pub faults: Faults,
    /// Percentage of replies that must be in time (I21).
    pub in_time_percent: u32,
    /// Whether the load takes longer on a machine that cannot keep up with it.
    pub is_paced: bool,
    /// The `stoke` of the release that every process starts with; `None`: the release under test.
    pub before: Option<PathBuf>,
}

/// On a machine with other load: replies also wait for the processor, which breaks no promise.
pub const IN_TIME_ANYWHERE: u32 = 90;

/// On an otherwise idle machine: all replies except those hit hardest by a fault.
pub const IN_TIME_QUIET: u32 = 99;

/// First part of a run, without faults: there is nothing to break yet.
const QUIET: f64 = 0.04;

impl Plan {
    /// Whether there are only rolls: processes are asked to exit and are replaced, one at a time.
    pub(crate) fn only_rolls(&self) -> bool {
        self.faults.keys().all(|fault| matches!(fault, Fault::RollApi | Fault::RollWorker))
    }

    /// The faults in the order of their time: each kind is spread evenly over the run, each fault at a random time
    /// within its stretch.
    pub(crate) fn schedule(&self) -> Vec<Planned> {
        let mut rng = StdRng::seed_from_u64(self.seed);
        let mut planned = Vec::new();
        for (fault, times) in &self.faults {
            let turn = rng.random_range(0..(*times).max(1));
            for n in 0..*times {
                let place = (f64::from(n) + rng.random_range(0.0..1.0)) / f64::from(*times);
                let at = self.duration.mul_f64(QUIET + (1.0 - QUIET) * place);
                planned.push(Planned {
                    at,
                    fault: *fault,
                    pick: rng.random_range(0.0..1.0),
                    // Also spread evenly: ten failpoints are ten different ones.
                    size: (f64::from((n + turn) % times) + rng.random_range(0.0..1.0)) / f64::from(*times),
                });
            }
        }
        planned.sort_by_key(|planned| planned.at);
        planned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(seed: u64) -> Plan {
        Plan {
            seed,
            jobs: 10_000,
            duration: Duration::from_secs(60),
            faults: gate_a(),
            in_time_percent: IN_TIME_ANYWHERE,
            is_paced: false,
            before: None,
        }
    }

    #[test]
    fn a_seed_is_a_schedule() {
        assert_eq!(plan(7).schedule(), plan(7).schedule());
        assert_ne!(plan(7).schedule(), plan(8).schedule());
    }

    #[test]
    fn every_fault_is_planned_within_the_load() {
        let schedule = plan(1).schedule();
        assert_eq!(schedule.len() as u32, gate_a().values().sum::<u32>());
        assert!(schedule.iter().all(|planned| planned.at <= Duration::from_secs(60)));
        assert!(schedule.is_sorted_by_key(|planned| planned.at));
    }

    #[test]
    fn the_gates_ask_for_what_reliability_asks_for() {
        use Fault::*;
        let of = |faults: &Faults, kinds: &[Fault]| kinds.iter().filter_map(|kind| faults.get(kind)).sum::<u32>();
        assert!(gate_a().values().sum::<u32>() >= 100);
        let (seeds, b) = (5, gate_b());
        assert!(seeds * of(&b, &[KillWorker, KillRunner]) >= 1_000);
        assert!(seeds * of(&b, &[PauseWorker, PauseWorkerAlone]) >= 300);
        assert!(seeds * of(&b, &[KillRedis, LongRedisOutage]) >= 50);
        assert!(seeds * of(&b, &[KillApi, Failpoint]) >= 30);
        assert!(seeds * of(&b, &[PartitionWorker, OneWayWorker, PartitionRedis]) >= 30);
    }
}
