//! The health of a Redis, and whether it admits new work. Redis is inspected once per second, not for every call.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Memory use at which admission closes (P13): accepted jobs need the rest to run and to end.
const CLOSE_PERCENT: u64 = 80;

/// Memory use below which admission opens again. The difference prevents flapping.
const OPEN_PERCENT: u64 = 75;

/// Memory use from which a tenant without a limit of its own gets no more than its share, so that the memory up to
/// [`CLOSE_PERCENT`] is left for others.
const SHARES_PERCENT: u64 = 60;

/// Share of one tenant.
const SHARE_PERCENT: u64 = 20;

/// The values of one INFO.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RedisHealth {
    /// Identifies one run of one server: it changes at a restart and at a failover.
    pub run_id: String,
    /// Memory in use, bytes.
    pub used_bytes: u64,
    /// `maxmemory`, bytes; 0 if not set.
    pub max_bytes: u64,
    /// Number of replicas in sync.
    pub replicas: u32,
    /// Whether the last write to the append-only file failed.
    pub writes_fail: bool,
}

impl RedisHealth {
    /// The sections of INFO that are read.
    pub(crate) const SECTIONS: [&'static str; 4] = ["server", "memory", "persistence", "replication"];

    pub(crate) fn parse(info: &str) -> Self {
        let number = |name| info_field(info, name).and_then(|text| text.parse().ok()).unwrap_or(0);
        Self {
            run_id: info_field(info, "run_id").unwrap_or_default().to_owned(),
            used_bytes: number("used_memory"),
            max_bytes: number("maxmemory"),
            replicas: replicas_of(info),
            writes_fail: info_field(info, "aof_last_write_status").is_some_and(|status| status != "ok"),
        }
    }

    /// Size of the records that one tenant may have, bytes; `None` while there is enough memory for all.
    pub(crate) fn share_bytes(&self) -> Option<u64> {
        self.is_above(SHARES_PERCENT).then(|| self.max_bytes / 100 * SHARE_PERCENT)
    }

    fn is_above(&self, percent: u64) -> bool {
        self.max_bytes > 0 && self.used_bytes.saturating_mul(100) >= self.max_bytes.saturating_mul(percent)
    }
}

/// One field of an INFO reply.
pub(crate) fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
}

/// The number of replicas in sync. A replica that is still loading is connected as well, but acknowledges nothing.
pub(crate) fn replicas_of(info: &str) -> u32 {
    let online = info.lines().filter(|line| {
        let number = line.strip_prefix("slave").and_then(|rest| rest.split_once(':'));
        number.is_some_and(|(n, what)| n.parse::<u32>().is_ok() && what.split(',').any(|part| part == "state=online"))
    });
    u32::try_from(online.count()).unwrap_or(u32::MAX)
}

/// The reason why no new work is admitted at present. Accepted work continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAdmission {
    /// Memory is nearly used up.
    Memory {
        /// Memory in use, bytes.
        used_bytes: u64,
        /// The limit, bytes.
        max_bytes: u64,
    },
    /// Fewer replicas are in sync than required.
    Replicas {
        /// Number of replicas in sync.
        there: u32,
        /// Number of replicas required.
        wanted: u32,
    },
    /// Redis cannot write its append-only file.
    Disk,
}

impl fmt::Display for NoAdmission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { used_bytes, max_bytes } => {
                let (used, max) = (used_bytes >> 20, max_bytes >> 20);
                write!(f, "Redis uses {used} of {max} MiB; new jobs are accepted again below {OPEN_PERCENT} %")
            }
            Self::Replicas { there, wanted } => write!(f, "Redis has {there} replicas in sync and requires {wanted}"),
            Self::Disk => f.write_str("Redis cannot write to its disk"),
        }
    }
}

/// Whether new work may be admitted. `closed` is the previous verdict: once closed for memory, admission opens only
/// below [`OPEN_PERCENT`].
fn judge(vitals: &RedisHealth, wanted: u32, closed: Option<NoAdmission>) -> Option<NoAdmission> {
    let most = if matches!(closed, Some(NoAdmission::Memory { .. })) { OPEN_PERCENT } else { CLOSE_PERCENT };
    if vitals.writes_fail {
        Some(NoAdmission::Disk)
    } else if vitals.replicas < wanted {
        Some(NoAdmission::Replicas { there: vitals.replicas, wanted })
    } else if vitals.is_above(most) {
        Some(NoAdmission::Memory { used_bytes: vitals.used_bytes, max_bytes: vitals.max_bytes })
    } else {
        None
    }
}

/// The latest inspection of a Redis, shared by all users of the connection.
#[derive(Clone, Default)]
pub(crate) struct Pulse(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    vitals: RedisHealth,
    refusal: Option<NoAdmission>,
    /// Time at which the server was replaced or restarted, or answered again after a pause. The first inspection by
    /// this process counts as well.
    changed_at: Option<Instant>,
    looked_at: Option<Instant>,
}

/// Redis is inspected every second. After a gap of this length, Redis or this process was stalled, and no lease could
/// be extended.
const PAUSE: Duration = Duration::from_secs(10);

impl Pulse {
    /// Records an inspection. Returns whether this is another server, or another run of it, than at the previous one;
    /// true for the first.
    pub(crate) fn note(&self, vitals: RedisHealth, wanted: u32) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_another = state.vitals.run_id != vitals.run_id;
        let now = Instant::now();
        let has_paused = state.looked_at.is_none_or(|at| now.duration_since(at) > PAUSE);
        if is_another || has_paused {
            state.changed_at = Some(now);
        }
        state.looked_at = Some(now);
        state.refusal = judge(&vitals, wanted, state.refusal);
        state.vitals = vitals;
        is_another
    }

    pub(crate) fn vitals(&self) -> RedisHealth {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).vitals.clone()
    }

    pub(crate) fn refusal(&self) -> Option<NoAdmission> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).refusal
    }

    #[cfg(test)]
    fn changed(&self, at: Option<Instant>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).changed_at = at;
    }

    /// Whether the server changed, or was unreachable, within `time`.
    pub(crate) fn changed_within(&self, time: Duration) -> bool {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.changed_at.is_some_and(|at| at.elapsed() < time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vitals(used_bytes: u64) -> RedisHealth {
        RedisHealth { run_id: "a".to_owned(), used_bytes, max_bytes: 1_000, replicas: 1, writes_fail: false }
    }

    #[test]
    fn admission_closes_at_eighty_percent_and_opens_below_seventy_five() {
        let pulse = Pulse::default();
        let closed_at = |used_bytes| {
            pulse.note(vitals(used_bytes), 0);
            pulse.refusal().is_some()
        };
        assert_eq!([799, 800, 760, 750, 749, 799].map(closed_at), [false, true, true, true, false, false]);
    }

    #[test]
    fn tenants_have_shares_from_sixty_percent_on() {
        assert_eq!([0, 599, 600, 900].map(|used| vitals(used).share_bytes()), [None, None, Some(200), Some(200)]);
        assert_eq!(RedisHealth { max_bytes: 0, ..vitals(u64::MAX) }.share_bytes(), None);
    }

    #[test]
    fn a_missing_replica_and_a_full_disk_close_it_too() {
        let lonely = RedisHealth { replicas: 0, ..vitals(0) };
        assert_eq!(judge(&lonely, 1, None), Some(NoAdmission::Replicas { there: 0, wanted: 1 }));
        assert_eq!(judge(&lonely, 0, None), None);
        assert_eq!(judge(&RedisHealth { writes_fail: true, ..vitals(0) }, 0, None), Some(NoAdmission::Disk));
        assert_eq!(judge(&RedisHealth { max_bytes: 0, ..vitals(u64::MAX) }, 0, None), None);
    }

    #[test]
    fn another_life_is_noticed() {
        let pulse = Pulse::default();
        let hour = Duration::from_secs(3_600);
        assert!(!pulse.changed_within(hour), "nobody has looked");
        assert!(pulse.note(vitals(0), 0) && pulse.changed_within(hour), "nobody knows what was before");
        pulse.changed(None);
        assert!(!pulse.note(vitals(1), 0) && !pulse.changed_within(hour));
        assert!(pulse.note(RedisHealth { run_id: "b".to_owned(), ..vitals(1) }, 0) && pulse.changed_within(hour));
    }

    #[test]
    fn a_pause_is_as_another_life() {
        let (pulse, hour) = (Pulse::default(), Duration::from_secs(3_600));
        pulse.note(vitals(0), 0);
        for (pause, is_noticed) in [(Duration::from_secs(2), false), (PAUSE + Duration::from_secs(1), true)] {
            pulse.changed(None);
            pulse.0.lock().unwrap_or_else(PoisonError::into_inner).looked_at = Instant::now().checked_sub(pause);
            assert!(!pulse.note(vitals(0), 0), "it is the same server");
            assert_eq!(pulse.changed_within(hour), is_noticed, "{pause:?}");
        }
    }

    #[test]
    fn info_is_read() {
        let info = "# Server\r\nrun_id:a\r\nused_memory:5\r\nmaxmemory:1000\r\naof_last_write_status:ok\r\n\
            connected_slaves:2\r\nslave0:ip=10.0.0.1,port=6379,state=online,offset=1,lag=0\r\n\
            slave1:ip=10.0.0.2,port=6379,state=wait_bgsave,offset=0,lag=0\r\nslave_priority:100\r\n";
        assert_eq!(RedisHealth::parse(info), vitals(5));
    }
}
