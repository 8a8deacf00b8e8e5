//! One try at a job.

use serde::{Deserialize, Serialize};

use super::JobError;
use super::spec::is_zero;
use crate::id::Fence;

/// Where the milliseconds of an attempt went. Zero where a part was not needed (a warm runner has no boot).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Timing {
    /// From ready to leased. Filled in by the queue.
    #[serde(default)]
    pub queued_ms: u64,
    /// Building or fetching the environment.
    #[serde(default)]
    pub env_ms: u64,
    /// Fetching the weights, as far as that took longer than the environment.
    #[serde(default)]
    pub weights_ms: u64,
    /// Starting the runner's process.
    #[serde(default)]
    pub boot_ms: u64,
    /// `setup()`: loading the model.
    #[serde(default)]
    pub load_ms: u64,
    /// Running the endpoint's warm-up inputs.
    #[serde(default)]
    pub warmup_ms: u64,
    /// From having the lease to having the runner, less what it took to have the runner ready: the wait for a slot, and for its call.
    #[serde(default, skip_serializing_if = "is_no_time")]
    pub turn_ms: u64,
    /// Fetching the files of the input.
    #[serde(default, skip_serializing_if = "is_no_time")]
    pub inputs_ms: u64,
    /// The handler itself.
    #[serde(default)]
    pub run_ms: u64,
    /// Putting result and files into S3.
    #[serde(default)]
    pub upload_ms: u64,
    /// How many jobs shared the call of the handler, this one among them; 0 where none can.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub batch_size: u32,
    /// With how many runs this one shared its process on average, including itself, in thousandths: its time divided by
    /// its part, where each moment is split equally among the concurrent runs. 0 if the worker does not report it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sharers_milli: u32,
}

/// Runs that one process takes at once, at most.
const SHARERS_MAX: u32 = 1_000;

/// How long a model may have been loading before the job came that first used it, milliseconds: environments and weights that were fetched
/// ahead.
pub const LOADED_AHEAD_MAX_MS: u64 = 3_600_000;

impl Timing {
    /// How many runs shared its time: those beside it in its process, or in its call.
    #[must_use]
    pub fn sharers(&self) -> f64 {
        match self.sharers_milli {
            0 => f64::from(self.batch_size.clamp(1, SHARERS_MAX)),
            sharers_milli => f64::from(sharers_milli.clamp(1_000, SHARERS_MAX * 1_000)) / 1_000.0,
        }
    }

    /// The time that a slot was taken, milliseconds; of one that several runs shared, its part.
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

    /// These times as far as they are possible in a lease that was held for `held_ms`: a worker's word is not believed beyond that. Having the
    /// model ready may have begun before the lease, by [`LOADED_AHEAD_MAX_MS`] at most.
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

    /// The same for an attempt that shared its time with at most `most` jobs, including itself, regardless of the
    /// report.
    #[must_use]
    pub fn shared_by(self, most: u32) -> Self {
        let most = most.clamp(1, SHARERS_MAX);
        Self { batch_size: self.batch_size.min(most), sharers_milli: self.sharers_milli.min(most * 1_000), ..self }
    }

    /// The part of it that went into having the model ready, milliseconds.
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

/// How one attempt ended, or that it has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    /// Still leased.
    Running,
    /// Gave the job its result.
    Succeeded,
    /// Failed; the job may have been retried.
    Failed,
    /// Handed back unharmed (drain).
    Released,
    /// Its worker went silent.
    Lost,
    /// The job was cancelled meanwhile.
    Cancelled,
    /// The job's deadline passed meanwhile.
    Expired,
}

/// One try at a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// 1, 2, ...
    pub attempt: u32,
    /// Who ran it.
    pub worker_id: String,
    /// The right it ran under.
    pub fence: Fence,
    /// When it was leased, unix milliseconds.
    pub leased_ms: u64,
    /// When it ended, unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// Where its time went.
    #[serde(default)]
    pub timing: Timing,
    /// The cost: its time at the worker's price. `None` if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd_micros: Option<u64>,
    /// Why it failed.
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
