//! A history that was recorded live, decided again by what decides in simulations.

use super::scaler::Scaler;
use crate::observation::Observation;
use crate::plan::Plan;

/// The first moment of a history that is decided otherwise than it was.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("round {round}, at {at_s} s, was decided differently\nrecorded:\n{recorded}decided:\n{decided}")]
pub struct Mismatch {
    /// Its place, from 1 on.
    pub round: usize,
    /// When it was, unix seconds.
    pub at_s: f64,
    /// What was decided then.
    pub recorded: Plan,
    /// What is decided now.
    pub decided: Plan,
}

/// Decides a history again, which begins where `scaler` does: with nothing learned. How many rounds it has; all are
/// decided as they were.
///
/// # Errors
/// [`Mismatch`]: the settings are others than they were, rounds are missing, or the code decides otherwise by now.
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
