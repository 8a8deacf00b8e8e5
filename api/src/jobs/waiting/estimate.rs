//! Estimates of when a waiting job starts. Pure: times and counts are data. What is unknown gives no estimate.

use stokehold_queue::gateway::StartPhase;
use stokehold_queue::timings::VersionTimings;

use crate::workers::coming::{Coming, ComingStep};
use crate::workers::fleet::Waiting;

/// Assumed time for the environment and the model of an endpoint that has never been loaded, milliseconds. Workers
/// assume the same before their first load.
const FIRST_START_MS: u64 = 10_000;

/// Shortest environment build and weights download that count as such, milliseconds: finding them on the disk is not
/// what a job on a new instance waits for.
const FETCHED_MS: u64 = 500;

/// Number of runs after which the first job in line should have started.
const RUNS_MAX: f64 = 3.0;

/// Added to a message if the phase takes longer than usual.
const LATE: &str = "; this takes longer than usual";

/// Why a job waits, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Explanation {
    pub(crate) waiting: Waiting,
    /// Time until it is expected to start, seconds.
    pub(crate) estimate_s: Option<u64>,
    /// Number of jobs that start before it.
    pub(crate) ahead: Option<u64>,
    /// Time in the current phase, seconds.
    pub(crate) phase_s: Option<u64>,
}

impl From<Waiting> for Explanation {
    fn from(waiting: Waiting) -> Self {
        Self { waiting, estimate_s: None, ahead: None, phase_s: None }
    }
}

/// Usual times of the steps from a lease to the start of the handler on a worker that has nothing of the model,
/// milliseconds: the medians of the version's recent attempts that needed the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct UsualStart {
    /// `None` if no recent attempt built one.
    pub(crate) environment_ms: Option<u64>,
    /// `None` if no recent attempt downloaded any.
    pub(crate) weights_ms: Option<u64>,
    /// Starting the runner, loading the model and warming it up.
    pub(crate) load_ms: u64,
}

impl UsualStart {
    /// The times of this version, else those of the newest version that was loaded. `None` if none was.
    pub(crate) fn of(versions: &[VersionTimings], version: u32) -> Option<Self> {
        let own = versions.iter().filter(|timings| timings.version == version);
        own.chain(versions).find_map(|timings| {
            let load = ["boot", "load"].map(|part| timings.typical_ms(part, 1));
            load.iter().any(Option::is_some).then(|| Self {
                environment_ms: timings.typical_ms("env", FETCHED_MS),
                weights_ms: timings.typical_ms("weights", FETCHED_MS),
                load_ms: load.into_iter().flatten().sum::<u64>() + timings.typical_ms("warmup", 1).unwrap_or(0),
            })
        })
    }

    fn total_ms(self) -> u64 {
        self.environment_ms.unwrap_or(0) + self.weights_ms.unwrap_or(0) + self.load_ms
    }
}

/// Work that starts before a job.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Line {
    /// Number of jobs.
    pub(crate) ahead: u64,
    /// Their slot time, milliseconds; `None` if one of their endpoints has never run.
    pub(crate) work_ms: Option<f64>,
    /// Expected slot time of a run of the job's own endpoint, milliseconds.
    pub(crate) run_ms: Option<f64>,
}

/// Time until one of the busy `slots` takes the job, milliseconds: `work / slots + run / (slots + 1)`. The second term
/// is the mean time until the first of `slots` runs in progress ends. Example: 6 jobs of 10 s ahead on 2 slots, and runs
/// of 10 s: 30 s + 3.3 s.
///
/// `None` for the first job in line if it has waited for longer than a slot is ever busy: that estimate has passed.
pub(crate) fn slot_ms(line: Line, slots: u64, waited_ms: u64) -> Option<f64> {
    let (work_ms, run_ms) = (line.work_ms?, line.run_ms?);
    if slots == 0 || line.ahead == 0 && float(waited_ms) > RUNS_MAX * run_ms {
        return None;
    }
    Some(work_ms / float(slots) + run_ms / (float(slots) + 1.0))
}

/// Time until a job starts on a coming instance, milliseconds: `boot left + environment + weights + load`, and the work
/// ahead if that takes all slots of the instance: `work / slots`. A model that has never been loaded is assumed to take
/// [`FIRST_START_MS`].
fn coming_ms(one: &Coming, line: Line, usual: Option<UsualStart>) -> Option<f64> {
    let start_ms = one.left_ms? + usual.map_or(FIRST_START_MS, UsualStart::total_ms);
    let work_ms = if line.ahead < one.slots { 0.0 } else { line.work_ms? / float(one.slots) };
    Some(float(start_ms) + work_ms)
}

/// Explains a ready job: `of_fleet` is the reason on the workers that are here, `coming` are instances that could run
/// it, `slots` are those of the workers that could, and `waited_ms` is the time since it was ready.
pub(crate) fn ready(
    of_fleet: Waiting,
    coming: Option<&Coming>,
    (line, slots): (Line, u64),
    usual: Option<UsualStart>,
    (waited_ms, now_ms): (u64, u64),
) -> Explanation {
    let here_ms = slot_ms(line, slots, waited_ms);
    let is_here = !matches!(of_fleet, Waiting::Unschedulable(_)) && slots > 0;
    let waited = Some(waited_ms / 1_000);
    let ahead = (line.ahead > 0).then_some(line.ahead);
    if let (Waiting::Soon, true) = (&of_fleet, is_here) {
        return Explanation { ahead, phase_s: waited, ..Explanation::from(of_fleet) };
    }
    if let Some(one) = coming {
        let there_ms = coming_ms(one, line, usual);
        let is_first = there_ms.is_some_and(|there_ms| here_ms.is_none_or(|here_ms| there_ms < here_ms));
        if !is_here || is_first {
            let late = if one.is_late { LATE } else { "" };
            let waiting = match one.step {
                ComingStep::Renting => Waiting::Renting(format!("renting {}{late}", one.words())),
                ComingStep::Booting => Waiting::Booting(format!("{} is booting{late}", one.words())),
                ComingStep::Resuming => {
                    Waiting::Booting(format!("{} that was stopped starts again{late}", one.words()))
                }
            };
            let phase_s = Some(now_ms.saturating_sub(one.since_ms) / 1_000);
            return Explanation { waiting, estimate_s: there_ms.map(whole_s), ahead, phase_s };
        }
    }
    let waiting = match of_fleet {
        Waiting::Busy(why) if line.ahead > 0 => Waiting::Behind(format!("{why}, and {} before it", jobs(line.ahead))),
        other => other,
    };
    let estimate_s = here_ms.filter(|_| is_here).map(whole_s);
    Explanation { waiting, estimate_s, ahead, phase_s: waited }
}

/// Explains a leased job whose model is not loaded: what is left of the usual times of this phase and the next ones,
/// `usual of this phase - time in it + usual of the next ones`. A phase that no recent attempt needed is assumed to take
/// [`FIRST_START_MS`]. No estimate if the phase takes longer than that.
pub(crate) fn starting(phase: StartPhase, phase_ms: u64, usual: Option<UsualStart>) -> Explanation {
    let environment_ms = usual.and_then(|usual| usual.environment_ms);
    let weights_ms = usual.and_then(|usual| usual.weights_ms);
    let load_ms = usual.map(|usual| usual.load_ms);
    let (reason, doing, usual_ms, next_ms): (fn(String) -> Waiting, _, _, _) = match phase {
        StartPhase::Environment => {
            let next_ms = weights_ms.unwrap_or(0) + load_ms.unwrap_or(0);
            (Waiting::Environment, "building the environment", environment_ms, next_ms)
        }
        StartPhase::Weights => (Waiting::Loading, "downloading the weights", weights_ms, load_ms.unwrap_or(0)),
        // When the jobs on the GPU end is not known.
        StartPhase::Gpu => {
            let waiting = Waiting::Busy("its worker waits for room on a GPU".to_owned());
            return Explanation { phase_s: Some(phase_ms / 1_000), ..waiting.into() };
        }
        StartPhase::Loading => (Waiting::Loading, "loading the model", load_ms, 0),
    };
    // Times are medians, so the estimate would be wrong for every second job without some slack.
    let is_late = usual_ms.is_some_and(|usual_ms| phase_ms > usual_ms.saturating_add(usual_ms / 2).max(1_000));
    let late = if is_late { LATE } else { "" };
    let is_known = usual_ms.is_some() || phase_ms < FIRST_START_MS;
    let left_ms = usual_ms.unwrap_or(FIRST_START_MS).saturating_sub(phase_ms) + next_ms;
    Explanation {
        waiting: reason(format!("{doing}{late}")),
        estimate_s: (is_known && !is_late).then(|| whole_s(float(left_ms))),
        ahead: None,
        phase_s: Some(phase_ms / 1_000),
    }
}

fn jobs(ahead: u64) -> String {
    if ahead == 1 { "1 job is".to_owned() } else { format!("{ahead} jobs are") }
}

/// Whole seconds, at least 1: 0 would mean that the job has started.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time, not negative")]
fn whole_s(ms: f64) -> u64 {
    (ms / 1_000.0).ceil().max(1.0) as u64
}

#[expect(clippy::cast_precision_loss, reason = "far less than 2^53")]
fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests;
