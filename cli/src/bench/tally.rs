//! What came of a load: two histograms, and what went wrong by name.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::time::error::Elapsed;

use crate::client::{Failure, Problem};

/// Three digits of every latency are kept.
const DIGITS: u8 = 3;

/// Counts of one load, while it runs and after it.
pub(super) struct Tally {
    /// From when a request was due until it was answered, microseconds. What was never answered counts as long as it waited.
    pub(super) submit_us: Histogram<u64>,
    /// From when a request was due until its job was known to have ended, microseconds.
    pub(super) result_us: Histogram<u64>,
    pub(super) due: u64,
    pub(super) accepted: u64,
    /// Sent after they were due, because as many as may be were in flight.
    pub(super) late: u64,
    /// Due, and never sent.
    pub(super) unsent: u64,
    /// Sent again because the API asked to come back later.
    pub(super) sent_again: u64,
    /// Accepted, and not seen to end.
    pub(super) open: u64,
    pub(super) in_flight: u64,
    pub(super) in_flight_max: u64,
    /// Ended jobs by state.
    pub(super) states: BTreeMap<String, u64>,
    /// Requests that failed, by what the API said or what became of the connection.
    pub(super) errors: BTreeMap<String, u64>,
}

impl Tally {
    pub(super) fn new() -> Self {
        #[expect(clippy::unwrap_used, reason = "three digits are a precision that exists")]
        let histogram = || Histogram::new(DIGITS).unwrap();
        Self {
            submit_us: histogram(),
            result_us: histogram(),
            due: 0,
            accepted: 0,
            late: 0,
            unsent: 0,
            sent_again: 0,
            open: 0,
            in_flight: 0,
            in_flight_max: 0,
            states: BTreeMap::new(),
            errors: BTreeMap::new(),
        }
    }

    pub(super) fn sent(&mut self, late: bool) {
        self.due += 1;
        self.late += u64::from(late);
        self.in_flight += 1;
        self.in_flight_max = self.in_flight_max.max(self.in_flight);
    }

    /// A request whose turn never came, after `waited`.
    pub(super) fn unsent(&mut self, waited: Duration) {
        self.due += 1;
        self.unsent += 1;
        note(&mut self.submit_us, waited);
    }

    pub(super) fn accepted(&mut self, after: Duration) {
        self.accepted += 1;
        self.open += 1;
        note(&mut self.submit_us, after);
    }

    pub(super) fn ended(&mut self, state: &str, after: Duration) {
        self.open -= 1;
        *self.states.entry(state.to_owned()).or_default() += 1;
        note(&mut self.result_us, after);
    }

    /// A submit that was refused counts in no histogram, as a quick refusal would make the figures look better; one that was not
    /// answered does, as silence would too.
    pub(super) fn failed(&mut self, failure: &Failure, after: Duration) {
        self.failed_to_wait(failure);
        if failure.status.is_none() {
            note(&mut self.submit_us, after);
        }
    }

    pub(super) fn failed_to_wait(&mut self, failure: &Failure) {
        *self.errors.entry(name(failure)).or_default() += 1;
    }

    /// One less on its way.
    pub(super) fn done(&mut self) {
        self.in_flight -= 1;
    }

    /// Whether everything that was asked for was accepted, and ended well where that was waited for.
    pub(super) fn is_clean(&self, waited: bool) -> bool {
        let succeeded = self.states.get("succeeded").copied().unwrap_or_default();
        self.accepted == self.due && self.errors.is_empty() && (!waited || succeeded == self.due)
    }
}

/// What a failure is counted as: the API's words where it has spoken.
fn name(failure: &Failure) -> String {
    if let Some(status) = failure.status {
        let code = failure.error.downcast_ref::<Problem>().map_or("", |problem| &problem.code);
        return format!("{} {code}", status.as_u16()).trim_end().to_owned();
    }
    let mut causes = failure.error.chain();
    let silent = failure.error.is::<Elapsed>()
        || causes.any(|cause| cause.downcast_ref::<reqwest::Error>().is_some_and(reqwest::Error::is_timeout));
    if silent { "no answer in time" } else { "connection failed" }.to_owned()
}

fn note(histogram: &mut Histogram<u64>, latency: Duration) {
    let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
    // It grows with what it is given, and fails for what no clock gives.
    let _ = histogram.record(us.max(1));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use axum::Router;
    use axum::http::StatusCode;
    use axum::routing::get;
    use reqwest::Method;

    use super::*;
    use crate::client::Call;
    use crate::stub;

    #[tokio::test]
    async fn failures_are_counted_by_what_the_api_said() {
        let busy = || async { (StatusCode::TOO_MANY_REQUESTS, r#"{"status": 429, "code": "queue_full"}"#) };
        let proxy = || async { (StatusCode::BAD_GATEWAY, "no JSON") };
        let client = stub::serve(Router::new().route("/busy", get(busy)).route("/proxy", get(proxy))).await;
        let mut tally = Tally::new();
        for path in ["/busy", "/proxy", "/proxy"] {
            let call = Call { method: Method::GET, path, body: None, headers: &[], hold: Duration::ZERO };
            tally.sent(false);
            tally.failed(&client.attempt(&call).await.unwrap_err(), Duration::from_millis(1));
        }
        let errors: Vec<(&str, u64)> = tally.errors.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        assert_eq!(errors, [("429 queue_full", 1), ("502", 2)]);
        assert!(tally.submit_us.is_empty(), "a quick refusal is no quick answer");
        assert!(!tally.is_clean(false));
    }

    #[test]
    fn what_was_never_sent_counts_as_long_as_it_waited() {
        let mut tally = Tally::new();
        tally.sent(false);
        tally.accepted(Duration::from_millis(2));
        tally.ended("succeeded", Duration::from_millis(9));
        assert!(tally.is_clean(true));
        tally.unsent(Duration::from_secs(7));
        assert!(tally.submit_us.max() >= 7_000_000 && !tally.is_clean(false));
    }
}
