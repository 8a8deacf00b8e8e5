//! The limits of a limit scope, its usage, and the reasons why it blocks a job.

use crate::budgets::Budget;
use crate::limit_scope::LimitScope;

/// The limits of a limit scope. `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// The share of a class queue relative to other tenants; 1 if absent. Tenants only.
    pub weight: Option<f64>,
    /// Maximum number of concurrently running jobs.
    pub max_running: Option<u32>,
    /// Maximum number of jobs that have not ended.
    pub max_open: Option<u64>,
    /// Maximum number of starts per minute; the burst is one second's worth, at least one.
    pub starts_per_minute: Option<u32>,
    /// Maximum size of the records of its jobs in Redis, including ended ones, bytes. Tenants only; without it, a
    /// tenant gets a share of the memory once that is scarce ([`crate::RedisQueue::look`]). The in-memory queue does
    /// not count them.
    pub max_memory_bytes: Option<u64>,
    /// The daily budget.
    pub budget: Option<Budget>,
}

impl Limits {
    /// The stored form, which `lua/lib/limits.lua` reads; the budget is stored separately.
    pub(crate) fn encode(&self) -> String {
        fn text<T: ToString>(value: Option<T>) -> String {
            value.map_or(String::new(), |value| value.to_string())
        }
        let first = [text(self.weight), text(self.max_running), text(self.max_open), text(self.starts_per_minute)];
        // The previous release reads the first four fields.
        let memory = self.max_memory_bytes.map_or(String::new(), |bytes| format!("|{bytes}"));
        first.join("|") + &memory
    }

    /// Parses the stored form.
    pub(crate) fn decode(text: &str) -> Self {
        let mut parts = text.split('|');
        let mut next = || parts.next().unwrap_or("");
        Self {
            weight: next().parse().ok(),
            max_running: next().parse().ok(),
            max_open: next().parse().ok(),
            starts_per_minute: next().parse().ok(),
            max_memory_bytes: next().parse().ok(),
            budget: None,
        }
    }
}

/// The current usage of a tenant or an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Jobs that have not ended.
    pub open: u64,
    /// Jobs that are running.
    pub running: u64,
}

/// The reason why a queued job cannot start, regardless of free workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeldBy {
    /// The job's tenant is disabled.
    Disabled,
    /// The limit scope's `max_running` is reached.
    Running {
        /// The limit scope.
        scope: LimitScope,
        /// The limit.
        most: u32,
    },
    /// The limit scope's `starts_per_minute` is used up.
    Rate {
        /// The limit scope.
        scope: LimitScope,
        /// The limit.
        per_minute: u32,
        /// Time at which the next job may start, Unix milliseconds; `None` if none may.
        until_ms: Option<u64>,
    },
    /// The limit of its concurrency key is reached.
    Key {
        /// The limit.
        most: u32,
    },
}

/// The state of a limit scope, as implementations store it.
#[derive(Debug, Default)]
pub struct ScopeUsage {
    /// Limits of the scope.
    pub limits: Limits,
    /// Jobs that are running.
    pub running: u64,
    /// Theoretical arrival time of the next start, Unix milliseconds.
    pub arrival_ms: f64,
}

impl HeldBy {
    /// The reason why a limit scope blocks a job, like `room` of `lua/lib/room.lua` but without budgets.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times")]
    #[doc(hidden)]
    #[must_use]
    pub fn at(scope: LimitScope, stands: &ScopeUsage, now_ms: u64) -> Option<Self> {
        let limits = &stands.limits;
        if let Some(most) = limits.max_running
            && stands.running >= u64::from(most)
        {
            return Some(Self::Running { scope, most });
        }
        let per_minute = limits.starts_per_minute?;
        if per_minute == 0 {
            return Some(Self::Rate { scope, per_minute, until_ms: None });
        }
        let (every, burst) = (60_000.0 / f64::from(per_minute), f64::from((per_minute / 60).max(1)));
        let now = now_ms as f64;
        let arrival = stands.arrival_ms.max(now);
        let allowed = ((now + burst * every - arrival) / every + 1e-6).floor();
        let until_ms = Some((arrival + every - burst * every).ceil() as u64);
        (allowed < 1.0).then_some(Self::Rate { scope, per_minute, until_ms })
    }
}
