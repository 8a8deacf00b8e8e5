//! The checker: pure functions from a history to verdicts. Each invariant has a function named after it. A violation is
//! excused only by events in the history.

mod commits;
mod effects;
mod jobs;
mod measures;
mod system;
pub(crate) mod view;

use serde::Serialize;

pub use measures::{Measures, measure};

use self::view::View;
use crate::history::Event;

/// Number of problems per invariant that are described.
const TOLD: usize = 5;

/// Outcome of an invariant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The invariant holds.
    Holds,
    /// The invariant is broken.
    Broken,
    /// No event in the history could have broken the invariant.
    Unexercised,
    /// The invariant does not apply to this run.
    NotApplicable,
}

/// The verdict on one invariant.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// `I1` to `I27`.
    pub id: &'static str,
    /// A short title.
    pub title: &'static str,
    /// The outcome.
    pub outcome: Outcome,
    /// Number of checked items.
    pub checked: u64,
    /// Number of wrong items.
    pub wrong: u64,
    /// The first problems, or why the invariant is not applicable.
    pub told: Vec<String>,
}

/// Findings of one invariant's function.
#[derive(Default)]
pub(crate) struct Findings {
    checked: u64,
    wrong: u64,
    told: Vec<String>,
}

impl Findings {
    /// Counts one checked item; `problem` describes the violation, if there is one.
    fn judge(&mut self, holds: bool, problem: impl FnOnce() -> String) {
        self.checked += 1;
        if !holds {
            self.wrong += 1;
            if self.told.len() < TOLD {
                self.told.push(problem());
            }
        }
    }

    /// Records a violation that is not one of the counted items.
    fn accuse(&mut self, problem: impl FnOnce() -> String) {
        self.judge(false, problem);
    }
}

type Invariant = fn(&View<'_>, &mut Findings);

/// Every invariant that this checker judges.
const INVARIANTS: [(&str, &str, Invariant); 25] = [
    ("I1", "nothing acknowledged is lost", jobs::i1_nothing_lost),
    ("I2", "nothing comes from nowhere", jobs::i2_nothing_from_nowhere),
    ("I3", "one end, and every later read agrees", jobs::i3_one_end),
    ("I4", "at most one commit, under the highest fence", commits::i4_one_commit),
    ("I5", "every commit has its run and its object", commits::i5_commit_has_its_run),
    ("I6", "one key, one set of ids", jobs::i6_one_key_one_set_of_ids),
    ("I7", "attempts within their budgets, ends as expected", commits::i7_attempts_within_budget),
    ("I8", "no two leases overlap; every job in one place", commits::i8_leases_do_not_overlap),
    ("I9", "no two leases share a fence; counters grow", commits::i9_fences_grow),
    ("I10", "nothing runs or succeeds after its cancel", commits::i10_cancelled_stays_cancelled),
    ("I11", "batch sums at every read; completed once", effects::i11_batch_sums),
    ("I12", "every hook delivered or exhausted; signed", effects::i12_hooks_delivered),
    ("I13", "no hook for a state that was not reached", effects::i13_hooks_are_true),
    ("I14", "no runner outlives its worker by 5 s (VRAM: no GPU here)", system::i14_runners_go_with_their_worker),
    ("I15", "no tenant sees another's", effects::i15_tenants_are_apart),
    ("I18", "a drained queue leaves nothing behind", system::i18_drained_is_empty),
    ("I19", "urgent work starts first", commits::i19_priority),
    ("I20", "a client's view never goes back", jobs::i20_views_are_monotonic),
    ("I21", "answers and refusals come in time", system::i21_answers_in_time),
    ("I22", "wasted runs are explained by faults", system::i22_waste_is_explained),
    ("I23", "every planned fault landed", system::i23_faults_landed),
    ("I24", "drained in time after healing", system::i24_drained_in_time),
    ("I25", "no secret in logs or journals", system::i25_no_secrets),
    ("I26", "metrics agree with the history", system::i26_metrics_agree),
    ("I27", "a client's retries hide what was away", system::i27_retries_suffice),
];

const NOT_APPLICABLE: [(&str, &str, &str); 2] = [
    ("I16", "every instance has its intent", "there is no GPU provider in this run"),
    ("I17", "spend within budget", "there is no GPU provider in this run"),
];

/// Judges a history.
#[must_use]
pub fn check(events: &[Event]) -> Vec<Verdict> {
    let view = View::new(events);
    let judged = INVARIANTS.iter().map(|(id, title, invariant)| {
        let mut findings = Findings::default();
        invariant(&view, &mut findings);
        let Findings { checked, wrong, told } = findings;
        let outcome = match (checked, wrong) {
            (0, _) => Outcome::Unexercised,
            (_, 0) => Outcome::Holds,
            _ => Outcome::Broken,
        };
        Verdict { id, title, outcome, checked, wrong, told }
    });
    let not_applicable = NOT_APPLICABLE.iter().map(|(id, title, why)| Verdict {
        id,
        title,
        outcome: Outcome::NotApplicable,
        checked: 0,
        wrong: 0,
        told: vec![(*why).to_owned()],
    });
    let mut verdicts: Vec<Verdict> = judged.chain(not_applicable).collect();
    verdicts.sort_by_key(|verdict| verdict.id[1..].parse::<u8>().unwrap_or(u8::MAX));
    verdicts
}

#[cfg(test)]
mod tests;
