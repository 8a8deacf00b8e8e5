//! Attempts of a job.

use serde::{Deserialize, Serialize};

use super::spec::is_zero;
use super::{JobError, TokenUsage};
use crate::id::Fence;

/// Durations of the parts of an attempt, milliseconds. 0 if a part was not needed, e.g. the boot of a warm runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Timing {
    /// Time from ready to leased. The queue sets it.
    #[serde(default)]
    pub queued_ms: u64,
    /// Building or fetching the environment.
    #[serde(default)]
    pub env_ms: u64,
    /// Fetching the weights, if that took longer than the environment: the difference.
    #[serde(default)]
    pub weights_ms: u64,
    /// Starting the runner's process.
    #[serde(default)]
    pub boot_ms: u64,
    /// Loading the model in `setup()`.
    #[serde(default)]
    pub load_ms: u64,
    /// Running the endpoint's warm-up inputs.
    #[serde(default)]
    pub warmup_ms: u64,
    /// Wait for a slot and for a call: the time from the lease to the start of the run, excluding the preparation of
    /// the runner.
    #[serde(default, skip_serializing_if = "is_no_time")]
    pub turn_ms: u64,
    /// Fetching the files of the input.
    #[serde(default, skip_serializing_if = "is_no_time")]
    pub inputs_ms: u64,
    /// Running the handler.
    #[serde(default)]
    pub run_ms: u64,
    /// Uploading the result and its files to S3.
    #[serde(default)]
    pub upload_ms: u64,
    /// Number of jobs in the handler's call, including this one; 0 if the handler does not take several.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub batch_size: u32,
    /// Average number of runs that shared the process during this one, including itself, in thousandths. It is the
    /// run's time divided by its part, where each moment is split equally among the concurrent runs. 0 if the worker
    /// does not report it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sharers_milli: u32,
}

/// Maximum number of concurrent runs in one process.
const SHARERS_MAX: u32 = 1_000;

/// Maximum time that loading may start before the first job that uses the model, milliseconds: environments and weights
/// can be fetched ahead.
pub const LOADED_AHEAD_MAX_MS: u64 = 3_600_000;

impl Timing {
    /// The number of runs that shared the time of this run, in its process or in its call.
    #[must_use]
    pub fn sharers(&self) -> f64 {
        match self.sharers_milli {
            0 => f64::from(self.batch_size.clamp(1, SHARERS_MAX)),
            sharers_milli => f64::from(sharers_milli.clamp(1_000, SHARERS_MAX * 1_000)) / 1_000.0,
        }
    }

    /// The time for which the run occupied a slot, milliseconds. A run that shared the slot counts its part.
    #[must_use]
    pub fn occupied_ms(&self) -> u64 {
        let run_ms = match self.sharers_milli {
            0 => self.run_ms / u64::from(self.batch_size.max(1)),
            sharers_milli => {
                self.run_ms.saturating_mul(1_000) / u64::from(sharers_milli.clamp(1_000, SHARERS_MAX * 1_000))
            }
        };
        [self.loading_ms(), run_ms, self.upload_ms].into_iter().fold(0, u64::saturating_add)
    }

    /// Limits these times to what is possible within a lease of `held_ms`, because a worker may report any values.
    /// Loading may have started before the lease, by at most [`LOADED_AHEAD_MAX_MS`].
    #[must_use]
    pub fn within(self, held_ms: u64) -> Self {
        let (mut held_ms, mut loading_ms) = (held_ms, held_ms.saturating_add(LOADED_AHEAD_MAX_MS));
        let take = |ms: u64, left: &mut u64| {
            let taken = ms.min(*left);
            *left -= taken;
            taken
        };
        Self {
            run_ms: take(self.run_ms, &mut held_ms),
            upload_ms: take(self.upload_ms, &mut held_ms),
            inputs_ms: take(self.inputs_ms, &mut held_ms),
            turn_ms: take(self.turn_ms, &mut held_ms),
            env_ms: take(self.env_ms, &mut loading_ms),
            weights_ms: take(self.weights_ms, &mut loading_ms),
            boot_ms: take(self.boot_ms, &mut loading_ms),
            load_ms: take(self.load_ms, &mut loading_ms),
            warmup_ms: take(self.warmup_ms, &mut loading_ms),
            ..self
        }
    }

    /// Limits the number of runs that shared the time of this run to `most`, including itself, regardless of the
    /// worker's report.
    #[must_use]
    pub fn shared_by(self, most: u32) -> Self {
        let most = most.clamp(1, SHARERS_MAX);
        Self { batch_size: self.batch_size.min(most), sharers_milli: self.sharers_milli.min(most * 1_000), ..self }
    }

    /// The time spent on loading the model, milliseconds.
    #[must_use]
    pub fn loading_ms(&self) -> u64 {
        let parts = [self.env_ms, self.weights_ms, self.boot_ms, self.load_ms, self.warmup_ms];
        parts.into_iter().fold(0, u64::saturating_add)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_no_time(ms: &u64) -> bool {
    *ms == 0
}

/// The outcome of an attempt, or that it still runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    /// The attempt is still leased.
    Running,
    /// The attempt produced the job's result.
    Succeeded,
    /// The attempt failed; the job may have been retried.
    Failed,
    /// The worker returned the job without running it to its end (drain).
    Released,
    /// The worker stopped sending heartbeats.
    Lost,
    /// The job was cancelled during the attempt.
    Cancelled,
    /// The job's deadline passed during the attempt.
    Expired,
}

/// One attempt at a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// The worker that ran it.
    pub worker_id: String,
    /// The lease token it ran under.
    pub fence: Fence,
    /// Time of the lease, Unix milliseconds.
    pub leased_ms: u64,
    /// Time of the end, Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// Outcome of the attempt.
    pub outcome: AttemptOutcome,
    /// Durations of its parts.
    #[serde(default)]
    pub timing: Timing,
    /// Cost of the attempt: its time at the worker's price. `None` if the price is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd_micros: Option<u64>,
    /// The tokens that it used, if its result contains them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<TokenUsage>,
    /// The error of a failed attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<JobError>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_are_possible_are_kept_and_others_are_cut_to_the_lease() {
        let told =
            Timing { run_ms: 4_000, upload_ms: 900, turn_ms: 50, inputs_ms: 50, load_ms: 20_000, ..Timing::default() };
        assert_eq!(told.within(5_000), told, "loading began before the lease");
        let cut = told.within(4_500);
        assert_eq!((cut.run_ms, cut.upload_ms, cut.inputs_ms, cut.turn_ms, cut.load_ms), (4_000, 500, 0, 0, 20_000));

        let most = u64::MAX;
        let false_word =
            Timing { run_ms: most, env_ms: most, load_ms: most, upload_ms: most, turn_ms: most, ..Timing::default() };
        let cut = false_word.within(500);
        assert_eq!((cut.run_ms, cut.upload_ms, cut.turn_ms), (500, 0, 0));
        assert_eq!((cut.env_ms, cut.load_ms), (500 + LOADED_AHEAD_MAX_MS, 0));
    }
}
