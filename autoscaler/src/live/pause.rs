//! Pauses: times in which no worker could be heard because Redis or the gateway was down, or because nothing polled.
//! Pure.

use crate::observe::{Pause, RawState, SILENT_MS};

/// Silence of several workers at once after which the gateway counts as down, milliseconds. Workers send a heartbeat
/// every three seconds.
const QUIET_MS: u64 = 9_000;

/// Time that workers have to report again after a pause, in addition to the usual limit, milliseconds. A call that hung
/// is given up after 15 s and repeated a little later.
const RETURN_MS: u64 = 30_000;

/// Maximum duration of a pause, milliseconds. A gateway that is down for longer needs an operator.
const LASTS_MS: u64 = 600_000;

/// Time before the first poll that counts as a pause, milliseconds, because nothing is known of it.
const UNKNOWN_MS: u64 = 120_000;

/// Tracks pauses from poll to poll.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    /// Time of the last successful poll, unix milliseconds; `None` before the first.
    looked_ms: Option<u64>,
    is_unreachable: bool,
    pause: Option<Pause>,
}

impl Pauses {
    /// Marks the time until the next poll as a pause: Redis failed, or another autoscaler leads.
    pub(crate) fn lose_sight(&mut self) {
        self.is_unreachable = true;
    }

    /// Records a poll and sets its current pause.
    pub(crate) fn note(&mut self, seen: &mut RawState) {
        let now_ms = seen.now_ms;
        let newest_ms = seen.workers.iter().map(|worker| worker.seen_ms).max().unwrap_or(0);
        let together = seen.workers.iter().filter(|worker| worker.seen_ms + SILENT_MS >= newest_ms).count();
        let quiet_ms = now_ms.saturating_sub(newest_ms);
        let stands_still = together > 1 && (QUIET_MS..LASTS_MS).contains(&quiet_ms);
        let from_ms = match self.looked_ms {
            None => Some(now_ms.saturating_sub(UNKNOWN_MS)),
            Some(looked_ms) if self.is_unreachable => Some(looked_ms),
            Some(_) => stands_still.then_some(newest_ms),
        };
        if let Some(from_ms) = from_ms {
            // A pause that continues, or follows at once, began when the first one did.
            let goes_on = self.pause.filter(|pause| now_ms < pause.until_ms);
            let from_ms = goes_on.map_or(from_ms, |pause| pause.from_ms.min(from_ms));
            self.pause = Some(Pause { from_ms, until_ms: now_ms + RETURN_MS });
        }
        self.pause = self.pause.filter(|pause| now_ms < pause.until_ms);
        (self.looked_ms, self.is_unreachable) = (Some(now_ms), false);
        seen.pause = self.pause;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    const BEGAN_MS: u64 = 1_000_000_000;

    /// Whether each worker is silent at a poll, given the seconds at which the workers were last heard.
    fn at(pauses: &mut Pauses, now_s: u64, heard_s: &[u64]) -> Vec<bool> {
        let worker = |(n, heard_s): (usize, &u64)| {
            serde_json::from_value(
                json!({"worker_id": format!("w_{n}"), "name": format!("m-{n}"), "release": "", "slots": 1, "gpus": [],
                "joined_ms": 1, "seen_ms": BEGAN_MS + heard_s * 1_000, "status": {"running": 1}}),
            )
            .unwrap()
        };
        let workers = heard_s.iter().enumerate().map(worker).collect();
        let mut seen = RawState { now_ms: BEGAN_MS + now_s * 1_000, workers, ..RawState::default() };
        pauses.note(&mut seen);
        seen.workers.iter().map(|worker| seen.is_silent(worker)).collect()
    }

    /// Pauses after many polls.
    fn settled() -> Pauses {
        let mut pauses = Pauses::default();
        for now_s in (100..200).step_by(2) {
            at(&mut pauses, now_s, &[now_s - 1, now_s]);
        }
        pauses
    }

    #[test]
    fn a_worker_that_falls_silent_alone_is_lost_after_fifteen_seconds() {
        let mut pauses = settled();
        for now_s in 200..260 {
            assert_eq!(at(&mut pauses, now_s, &[200, now_s]), [now_s > 215, false], "{now_s}");
        }
    }

    #[test]
    fn while_the_gateway_stands_still_and_half_a_minute_after_it_nobody_is_lost() {
        let mut pauses = settled();
        for now_s in 200..250 {
            assert_eq!(at(&mut pauses, now_s, &[199, 200]), [false, false], "it stands still: {now_s}");
        }
        // One worker returns at once, the other 25 s later.
        for now_s in 250..275 {
            assert_eq!(at(&mut pauses, now_s, &[199, now_s]), [false, false], "{now_s}");
        }
        assert_eq!(at(&mut pauses, 275, &[275, 275]), [false, false]);
        // A worker that does not return is lost in the end. So is a worker that was silent before the pause.
        let mut pauses = settled();
        for now_s in 200..250 {
            at(&mut pauses, now_s, &[199, 200, 100]);
        }
        let lost: Vec<u64> = (250..300).filter(|now_s| at(&mut pauses, *now_s, &[199, *now_s, 100])[0]).collect();
        assert_eq!((lost.first(), lost.last()), (Some(&279), Some(&299)));
        assert!(at(&mut pauses, 300, &[300, 300, 100])[2]);
    }

    #[test]
    fn while_redis_does_not_answer_and_after_a_change_of_leaders_nobody_is_lost() {
        let mut pauses = settled();
        pauses.lose_sight();
        assert_eq!(at(&mut pauses, 240, &[199, 239]), [false, false]);
        assert_eq!(at(&mut pauses, 269, &[199, 269]), [false, false]);
        assert_eq!(at(&mut pauses, 270, &[199, 270]), [true, false]);
        let mut new = Pauses::default();
        assert_eq!(at(&mut new, 240, &[199, 239, 10]), [false, false, true]);
        assert_eq!(at(&mut new, 270, &[199, 269, 10]), [true, false, true]);
    }

    #[test]
    fn a_gateway_that_stays_away_does_not_excuse_for_ever() {
        let mut pauses = settled();
        let lost = (200..1_000).find(|now_s| at(&mut pauses, *now_s, &[199, 200])[0]);
        assert_eq!(lost, Some(829));
    }
}
