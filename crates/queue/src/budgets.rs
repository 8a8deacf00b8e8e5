//! Daily budgets: limits on the spending of a tenant or of one of its endpoints until midnight, UTC.
//!
//! Spending is counted in the commit that ends an attempt; the cost of running attempts is estimated up to now. Budgets
//! are checked every few seconds, so they can be exceeded by what started since the last check and by what still runs.

mod read;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{Fence, JobId};
use crate::limit_scope::LimitScope;

pub(crate) use read::{read_budgets, read_running};

/// Percentage of a budget at which its owner is warned.
pub const WARN_PERCENT: u64 = 80;

/// Maximum number of running attempts that one call reads.
pub const RUNNING_MAX: usize = 20_000;

const DAY_MS: u64 = 86_400_000;

/// Time until which a limit scope with a budget of 0 is paused, Unix milliseconds: the end of the year 9999.
pub const FOREVER_MS: u64 = 253_402_300_799_000;

/// The action when a budget is exhausted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AtBudget {
    /// Nothing more starts; running jobs finish.
    #[default]
    Drain,
    /// Running jobs are stopped too.
    Stop,
}

impl AtBudget {
    /// The name of the value in Redis and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Stop => "stop",
        }
    }

    /// Parses a value.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Drain, Self::Stop].into_iter().find(|at| at.as_str() == word)
    }
}

/// The budget of a day, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// The limit, micro-dollars.
    pub usd_micros_per_day: u64,
    /// Action at the limit.
    pub at: AtBudget,
}

/// Formats the stored form.
impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}|{}", self.usd_micros_per_day, self.at.as_str())
    }
}

impl Budget {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        // A later release may append fields.
        let mut parts = text.split('|');
        let (usd_micros_per_day, at) = (parts.next()?, parts.next()?);
        Some(Self { usd_micros_per_day: usd_micros_per_day.parse().ok()?, at: AtBudget::from_word(at)? })
    }
}

/// The state of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Less than the warning threshold is spent.
    Within,
    /// [`WARN_PERCENT`] of the budget is spent.
    Warned,
    /// The budget is exhausted.
    Reached,
}

impl Standing {
    /// The name of the state in Redis and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Within => "within",
            Self::Warned => "warned",
            Self::Reached => "reached",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        [Self::Within, Self::Warned, Self::Reached].into_iter().find(|standing| standing.as_str() == word)
    }
}

/// The state of a budget of `budget` with `spent`, in micro-dollars. A budget of 0 is exhausted from the start.
#[must_use]
pub fn standing(spent: u64, budget: u64) -> Standing {
    if spent >= budget {
        Standing::Reached
    } else if u128::from(spent) * 100 >= u128::from(budget) * u128::from(WARN_PERCENT) {
        Standing::Warned
    } else {
        Standing::Within
    }
}

/// The recorded state of a limit scope's budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stood {
    /// The day, in days since 1970, UTC.
    pub day: u32,
    /// Spending on that day up to the check, including the estimate for running attempts, micro-dollars.
    pub spent_usd_micros: u64,
    /// The state of the budget.
    pub standing: Standing,
}

/// Formats the stored form.
impl fmt::Display for Stood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.day, self.spent_usd_micros, self.standing.as_str())
    }
}

impl Stood {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let (day, spent) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Self { day, spent_usd_micros: spent, standing: Standing::from_word(words.next()?)? })
    }

    /// Time until which the limit scope is paused because of this state, Unix milliseconds; `None` if it is not paused.
    #[must_use]
    pub fn pause_until_ms(&self) -> Option<u64> {
        (self.standing == Standing::Reached).then_some((u64::from(self.day) + 1) * DAY_MS)
    }
}

/// A limit scope that has a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budgeted {
    /// The limit scope.
    pub scope: LimitScope,
    /// The budget.
    pub budget: Budget,
    /// Cost of the attempts that ended on the requested day, micro-dollars.
    pub spent_usd_micros: u64,
    /// The last recorded state.
    pub stood: Option<Stood>,
    /// Time until which nothing in the scope starts, Unix milliseconds; [`FOREVER_MS`] if the budget is 0.
    pub paused_until_ms: Option<u64>,
}

/// A running attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// Id of the job.
    pub id: JobId,
    /// The lease token, which gives the right to end the attempt.
    pub fence: Fence,
    /// The tenant that owns the job.
    pub tenant: String,
    /// The endpoint that it runs on.
    pub endpoint: String,
    /// The batch of the job.
    pub batch: Option<String>,
    /// The worker that runs it.
    pub worker_id: String,
    /// Time of the lease, Unix milliseconds.
    pub leased_ms: u64,
}

impl Running {
    /// Whether the attempt counts towards this limit scope.
    #[must_use]
    pub fn is_of(&self, scope: &LimitScope) -> bool {
        match scope {
            LimitScope::Tenant(tenant) => self.tenant == *tenant,
            LimitScope::Endpoint { tenant, endpoint } => self.tenant == *tenant && self.endpoint == *endpoint,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_budget_is_warned_of_at_four_fifths_and_reached_at_all_of_it() {
        use Standing::{Reached, Warned, Within};
        let stands = [0, 79, 80, 99, 100, 101].map(|spent| standing(spent, 100));
        assert_eq!(stands, [Within, Within, Warned, Warned, Reached, Reached]);
        assert_eq!(standing(0, 0), Reached, "a budget of nothing lets nothing start");
        assert_eq!(standing(u64::MAX - 1, u64::MAX), Warned);
        assert_eq!(standing(4, 5), Warned, "and no cent is lost to rounding");
    }

    #[test]
    fn what_is_written_down_is_read_back() {
        for at in [AtBudget::Drain, AtBudget::Stop] {
            let budget = Budget { usd_micros_per_day: 5_000_000, at };
            assert_eq!(Budget::parse(&budget.to_string()), Some(budget));
        }
        let stood = Stood { day: 20_000, spent_usd_micros: 7, standing: Standing::Reached };
        assert_eq!(Stood::parse(&stood.to_string()), Some(stood));
        assert_eq!(stood.pause_until_ms(), Some(20_001 * DAY_MS), "the next midnight");
        assert_eq!((Budget::parse("5"), Stood::parse("1 2"), Stood::parse("1 2 gone")), (None, None, None));
    }

    proptest! {
        #[test]
        fn who_spends_more_never_stands_better(spent in any::<u64>(), more in any::<u64>(), budget in any::<u64>()) {
            let (less, all) = (standing(spent, budget), standing(spent.saturating_add(more), budget));
            prop_assert!(less <= all);
            prop_assert_eq!(all == Standing::Reached, spent.saturating_add(more) >= budget);
        }

        #[test]
        fn a_higher_budget_never_stands_worse(spent in any::<u64>(), budget in any::<u64>(), more in any::<u64>()) {
            prop_assert!(standing(spent, budget.saturating_add(more)) <= standing(spent, budget));
        }
    }
}
