//! Circuit breakers: pause deliveries to failing receivers. The state is in this replica's memory; a new replica finds
//! failing receivers by itself, at the cost of a few attempts. Pure: the time is an argument.

use std::collections::HashMap;

/// Number of consecutive failures that opens a breaker.
const OPENS_AFTER: u32 = 5;

/// Time for which a breaker stays open at first, milliseconds. It is longer than any attempt takes, so that attempts in
/// progress end before a probe is admitted. Each failed probe doubles it, up to [`OPEN_MAX_MS`].
const OPEN_MS: u64 = 30_000;
const OPEN_MAX_MS: u64 = 10 * 60_000;

/// Time after which a probe without an outcome counts as lost and another one is admitted, milliseconds. Longer than
/// any attempt takes.
const PROBE_MS: u64 = 60_000;

/// Delay of other deliveries while a probe is in progress, milliseconds.
const PROBE_PAUSE_MS: u64 = 5_000;

/// Maximum number of breakers. Only failing receivers have one; the one with the oldest outcome is dropped first.
const RECEIVERS_MAX: usize = 10_000;

/// Decision on a delivery attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The attempt is admitted.
    Go,
    /// No attempt is admitted before this time, Unix milliseconds.
    Until(u64),
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Attempts are admitted.
    Closed { failures: u32 },
    /// No attempt is admitted.
    Open { until_ms: u64, open_ms: u64 },
    /// One probe is in progress.
    HalfOpen { since_ms: u64, open_ms: u64 },
}

/// The breakers of all receivers that failed recently.
#[derive(Default)]
pub(crate) struct Breakers(HashMap<String, (State, u64)>);

impl Breakers {
    /// Decides on an attempt. Once the open time is over, the first attempt is the probe, and the others wait for its
    /// outcome.
    pub(crate) fn ask(&mut self, receiver: &str, now_ms: u64) -> Admission {
        let Some((state, seen_ms)) = self.0.get_mut(receiver) else { return Admission::Go };
        *seen_ms = now_ms;
        let open_ms = match *state {
            State::Closed { .. } => return Admission::Go,
            State::Open { until_ms, .. } if now_ms < until_ms => return Admission::Until(until_ms),
            State::HalfOpen { since_ms, .. } if now_ms < since_ms + PROBE_MS => {
                return Admission::Until(now_ms + PROBE_PAUSE_MS);
            }
            State::Open { open_ms, .. } | State::HalfOpen { open_ms, .. } => open_ms,
        };
        *state = State::HalfOpen { since_ms: now_ms, open_ms };
        Admission::Go
    }

    /// Records the outcome of a delivery attempt. `failed` means that the receiver is failing, not that it rejected
    /// this message.
    pub(crate) fn record(&mut self, receiver: &str, failed: bool, now_ms: u64) {
        if !failed {
            self.0.remove(receiver);
            return;
        }
        if !self.0.contains_key(receiver) && self.0.len() >= RECEIVERS_MAX {
            let oldest = self.0.iter().min_by_key(|(_, (_, seen_ms))| *seen_ms).map(|(name, _)| name.clone());
            oldest.and_then(|name| self.0.remove(&name));
        }
        let (state, seen_ms) = self.0.entry(receiver.to_owned()).or_insert((State::Closed { failures: 0 }, now_ms));
        *seen_ms = now_ms;
        *state = match *state {
            State::Closed { failures } if failures + 1 < OPENS_AFTER => State::Closed { failures: failures + 1 },
            State::Closed { .. } => State::Open { until_ms: now_ms + OPEN_MS, open_ms: OPEN_MS },
            open @ State::Open { .. } => open,
            State::HalfOpen { open_ms, .. } => {
                let open_ms = (open_ms * 2).min(OPEN_MAX_MS);
                State::Open { until_ms: now_ms + open_ms, open_ms }
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "https://a.test:443";

    fn opened(now_ms: u64) -> Breakers {
        let mut breakers = Breakers::default();
        for _ in 0..OPENS_AFTER {
            assert_eq!(breakers.ask(A, now_ms), Admission::Go);
            breakers.record(A, true, now_ms);
        }
        breakers
    }

    #[test]
    fn five_failures_in_a_row_open_it_and_no_other() {
        let mut breakers = opened(1_000);
        assert_eq!(breakers.ask(A, 1_000), Admission::Until(31_000));
        assert_eq!(breakers.ask("https://b.test:443", 1_000), Admission::Go);
        let mut breakers = Breakers::default();
        for _ in 0..3 {
            (0..4).for_each(|_| breakers.record(A, true, 0));
            breakers.record(A, false, 0);
        }
        assert_eq!(breakers.ask(A, 0), Admission::Go);
    }

    #[test]
    fn one_probe_at_a_time_finds_out() {
        let mut breakers = opened(0);
        assert_eq!(breakers.ask(A, 29_999), Admission::Until(30_000));
        assert_eq!(breakers.ask(A, 30_000), Admission::Go);
        assert_eq!(breakers.ask(A, 30_001), Admission::Until(35_001));
        breakers.record(A, false, 30_500);
        assert_eq!((breakers.ask(A, 30_500), breakers.ask(A, 30_500)), (Admission::Go, Admission::Go));
        assert!(breakers.0.is_empty(), "a receiver that works is forgotten");
    }

    #[test]
    fn each_failed_probe_doubles_the_wait_up_to_ten_minutes() {
        let (mut breakers, mut now_ms, mut waits) = (opened(0), 0, Vec::new());
        for _ in 0..7 {
            let Admission::Until(until_ms) = breakers.ask(A, now_ms) else { panic!("it is open") };
            waits.push((until_ms - now_ms) / 1_000);
            now_ms = until_ms;
            assert_eq!(breakers.ask(A, now_ms), Admission::Go);
            breakers.record(A, true, now_ms);
        }
        assert_eq!(waits, [30, 60, 120, 240, 480, 600, 600]);
    }

    #[test]
    fn what_was_under_way_when_it_opened_does_not_make_it_longer() {
        let mut breakers = opened(0);
        breakers.record(A, true, 15_000);
        assert_eq!(breakers.ask(A, 15_000), Admission::Until(30_000));
    }

    #[test]
    fn a_lost_probe_is_replaced() {
        let mut breakers = opened(0);
        assert_eq!(breakers.ask(A, 30_000), Admission::Go);
        assert_eq!(breakers.ask(A, 90_000), Admission::Go);
    }

    #[test]
    fn it_remembers_so_many_and_no_more() {
        let mut breakers = Breakers::default();
        for n in 0..RECEIVERS_MAX as u64 + 10 {
            breakers.record(&n.to_string(), true, n);
        }
        assert_eq!(breakers.0.len(), RECEIVERS_MAX);
        assert!(!breakers.0.contains_key("0") && breakers.0.contains_key("10009"));
    }
}
