//! Retries of a delivery: when it is attempted again, and when it ends. Pure: the randomness is an argument.

use std::ops::RangeInclusive;
use std::time::Duration;

use stokehold_queue::outbox::Outcome;

/// Pauses between the ten attempts, as Standard Webhooks recommends: 75 h 35 min 5 s in total. An operator may set
/// others.
pub(crate) const WAITS: [Duration; 9] = [
    Duration::from_secs(5),
    Duration::from_secs(5 * 60),
    Duration::from_secs(30 * 60),
    Duration::from_secs(2 * 3600),
    Duration::from_secs(5 * 3600),
    Duration::from_secs(10 * 3600),
    Duration::from_secs(14 * 3600),
    Duration::from_secs(20 * 3600),
    Duration::from_secs(24 * 3600),
];

/// Relative jitter. Each pause is drawn from 1 - JITTER to 1 + JITTER times the table's, so that deliveries which
/// failed together are not retried together.
const JITTER: f64 = 0.1;

/// Status with which a receiver asks for no further deliveries.
const GONE: u16 = 410;

/// Allowed range of a configured pause, seconds. The minimum keeps a failing receiver from being flooded.
const WAIT_S: RangeInclusive<f64> = 0.1..=86_400.0;

/// Text that [`parse`] accepts; completes the setting's name.
pub(crate) const WANTED: &str =
    "must be a comma-separated list of 1 to 9 pauses of 0.1 to 86400 seconds, e.g. \"5,300\"";

/// Parses pauses from the configuration. There may be no more than the standard's, because a record stores the attempts
/// of two such schedules.
pub(crate) fn parse(text: &str) -> Option<Vec<Duration>> {
    let seconds = |part: &str| part.trim().parse().ok().filter(|wait_s| WAIT_S.contains(wait_s));
    let waits: Vec<_> =
        text.split(',').map(|part| seconds(part).map(Duration::from_secs_f64)).collect::<Option<_>>()?;
    (waits.len() <= WAITS.len()).then_some(waits)
}

/// Decides what follows the attempt after `tried` earlier ones, with these pauses between them. `status` is the
/// receiver's answer, `None` when there was none; `jitter` is drawn from 0 to 1.
pub(crate) fn decide(
    waits: &[Duration],
    tried: u32,
    status: Option<u16>,
    retry_after: Option<Duration>,
    jitter: f64,
) -> Outcome {
    match status {
        Some(200..=299) => return Outcome::Delivered,
        Some(GONE) => return Outcome::Disabled,
        // Everything else is a failure, including a redirect: following it could lead anywhere.
        Some(_) | None => {}
    }
    let place = tried as usize;
    let Some(wait) = waits.get(place) else {
        return Outcome::Exhausted;
    };
    let wait = wait.mul_f64(1.0 - JITTER + 2.0 * JITTER * jitter);
    // A receiver may ask for a longer pause, but no longer than the one after it, so that no receiver can keep its
    // events here without end.
    let longest = waits.get(place + 1).copied().unwrap_or(wait);
    let wait = wait.max(retry_after.unwrap_or_default().min(longest));
    Outcome::Retry { delay_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(tried: u32, status: Option<u16>, retry_after: Option<Duration>, jitter: f64) -> Outcome {
        super::decide(&WAITS, tried, status, retry_after, jitter)
    }

    fn delay_ms(tried: u32, retry_after_s: Option<u64>, jitter: f64) -> u64 {
        match decide(tried, Some(500), retry_after_s.map(Duration::from_secs), jitter) {
            Outcome::Retry { delay_ms } => delay_ms,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn ten_tries_take_three_days_and_a_bit() {
        let total: Duration = WAITS.iter().sum();
        assert_eq!(total, Duration::from_secs(75 * 3600 + 35 * 60 + 5));
        let delays: u64 = (0..9).map(|tried| delay_ms(tried, None, 0.5)).sum();
        assert_eq!(u128::from(delays), total.as_millis());
        assert_eq!(decide(9, Some(500), None, 0.5), Outcome::Exhausted);
        assert_eq!(decide(9, None, Some(Duration::from_secs(60)), 0.5), Outcome::Exhausted);
        assert_eq!(decide(99, None, None, 0.5), Outcome::Exhausted);
    }

    #[test]
    fn an_operators_pauses_take_the_place_of_the_standards() {
        let waits = parse("0.2, 60").unwrap();
        let next = |tried| super::decide(&waits, tried, Some(500), None, 0.5);
        assert_eq!([next(0), next(1)], [Outcome::Retry { delay_ms: 200 }, Outcome::Retry { delay_ms: 60_000 }]);
        assert_eq!(next(2), Outcome::Exhausted);
    }

    #[test]
    fn a_pause_is_drawn_within_a_tenth() {
        assert_eq!((delay_ms(1, None, 0.0), delay_ms(1, None, 1.0)), (270_000, 330_000));
    }

    #[test]
    fn only_2xx_delivers_and_only_410_stops() {
        for status in [200, 202, 204, 299] {
            assert_eq!(decide(0, Some(status), None, 0.5), Outcome::Delivered);
        }
        assert_eq!(decide(0, Some(410), None, 0.5), Outcome::Disabled);
        for status in [100, 199, 300, 301, 302, 304, 307, 308, 400, 401, 404, 429, 500, 503] {
            assert_eq!(decide(0, Some(status), None, 0.5), Outcome::Retry { delay_ms: 5_000 }, "{status}");
        }
        assert_eq!(decide(0, None, None, 0.5), Outcome::Retry { delay_ms: 5_000 });
    }

    #[test]
    fn a_receiver_may_ask_for_a_longer_pause_up_to_the_next() {
        assert_eq!(delay_ms(0, Some(1), 0.5), 5_000);
        assert_eq!(delay_ms(0, Some(60), 0.5), 60_000);
        assert_eq!(delay_ms(0, Some(100_000), 0.5), 300_000);
        assert_eq!(delay_ms(8, Some(10_000_000), 0.5), 86_400_000);
    }
}
