//! Counts of a load: two latency histograms, and errors by name.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::time::error::Elapsed;

use crate::client::{Problem, RequestError};

/// Significant digits of each latency.
const DIGITS: u8 = 3;

/// Counts of one load, while it runs and after it.
pub(super) struct Tally {
    /// Microseconds from due time to response. A request without a response counts for as long as it waited.
    pub(super) submit_us: Histogram<u64>,
    /// Microseconds from due time until the client saw the end of the job.
    pub(super) result_us: Histogram<u64>,
    pub(super) due: u64,
    pub(super) accepted: u64,
    /// Requests sent late, because too many were in flight.
    pub(super) late: u64,
    /// Requests that were due but not sent.
    pub(super) unsent: u64,
    /// Requests retried after a 429.
    pub(super) sent_again: u64,
    /// Accepted jobs whose end was not seen.
    pub(super) open: u64,
    pub(super) in_flight: u64,
    pub(super) in_flight_max: u64,
    /// Ended jobs by state.
    pub(super) states: BTreeMap<String, u64>,
    /// Failed requests by API error or connection error.
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

    /// Counts a request that was not sent within `waited`.
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

    /// Counts a failed submit. A refused one is left out of the histogram, because fast refusals would improve the
    /// figures. One without a response is included, because leaving it out would improve them too.
    pub(super) fn failed(&mut self, failure: &RequestError, after: Duration) {
        self.failed_to_wait(failure);
        if failure.status.is_none() {
            note(&mut self.submit_us, after);
        }
    }

    pub(super) fn failed_to_wait(&mut self, failure: &RequestError) {
        *self.errors.entry(name(failure)).or_default() += 1;
    }

    /// Counts a request as no longer in flight.
    pub(super) fn done(&mut self) {
        self.in_flight -= 1;
    }

    /// Returns whether every request was accepted and, if `waited`, every job succeeded.
    pub(super) fn is_clean(&self, waited: bool) -> bool {
        let succeeded = self.states.get("succeeded").copied().unwrap_or_default();
        self.accepted == self.due && self.errors.is_empty() && (!waited || succeeded == self.due)
    }
}

/// The name under which a failure is counted: the API's status and code, if it responded.
fn name(failure: &RequestError) -> String {
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
    // The histogram grows as needed; it fails only for impossible latencies.
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
        assert!(tally.submit_us.is_empty(), "a refusal does not count as a fast response");
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
