//! Replay of a recorded history with the decision code of simulations.

use super::scaler::Scaler;
use crate::observation::Observation;
use crate::plan::Plan;

/// The first round of a history whose decision differs from the recorded one.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("round {round}, at {at_s} s, was decided differently\nrecorded:\n{recorded}decided:\n{decided}")]
pub struct Mismatch {
    /// Number of the round, starting at 1.
    pub round: usize,
    /// Time of the round, unix seconds.
    pub at_s: f64,
    /// The recorded plan.
    pub recorded: Plan,
    /// The plan of this release.
    pub decided: Plan,
}

/// Replays a history, which begins without learned statistics, as `scaler` does. Returns the number of rounds if every
/// plan is the same as the recorded one.
///
/// # Errors
/// [`Mismatch`]: the settings differ, rounds are missing, or the code has changed.
pub fn replay(
    history: impl IntoIterator<Item = (Observation, Plan)>,
    scaler: &mut dyn Scaler,
) -> Result<usize, Box<Mismatch>> {
    let mut rounds = 0;
    for (seen, recorded) in history {
        rounds += 1;
        let decided = scaler.plan(&seen);
        if decided != recorded {
            return Err(Box::new(Mismatch { round: rounds, at_s: seen.at_s, recorded, decided }));
        }
    }
    Ok(rounds)
}
