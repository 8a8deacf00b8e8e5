//! Handles of the metrics of every job and every request. A label is resolved to a series once, and from then on a
//! count is one atomic addition.

use std::collections::HashMap;
use std::sync::{LazyLock, PoisonError, RwLock};
use std::time::Duration;

use metrics::{Counter, Histogram, counter, histogram};
use stokehold_queue::gateway::FinishAnswer;
use stokehold_queue::job::Timing;

use super::{
    ATTEMPT_PART_SECONDS, ATTEMPTS_FINISHED, HTTP_REQUESTS, HTTP_SECONDS, JOB_QUEUE_SECONDS, JOBS_SUBMITTED,
    LEASES_GRANTED, PRIORITIES,
};

const OUTCOMES: [&str; 2] = ["failed", "succeeded"];
const ANSWERS: [&str; 4] = ["ok", "stale_fence", "already_ended", "not_found"];

/// Parts that most attempts do not have, in the order of [`Handles::took`].
const SELDOM: [&str; 6] = ["env", "weights", "boot", "load", "warmup", "upload"];

/// The handles. Their first use installs the recorder.
pub(super) static HANDLES: LazyLock<Handles> = LazyLock::new(|| {
    stokehold_metrics::install(&super::catalogues());
    Handles {
        submitted: PRIORITIES.map(|priority| counter!(JOBS_SUBMITTED, "priority" => priority)),
        granted: counter!(LEASES_GRANTED),
        queued: PRIORITIES.map(|priority| histogram!(JOB_QUEUE_SECONDS, "priority" => priority)),
        finished: OUTCOMES
            .map(|outcome| ANSWERS.map(|answer| counter!(ATTEMPTS_FINISHED, "outcome" => outcome, "answer" => answer))),
        run: histogram!(ATTEMPT_PART_SECONDS, "part" => "run"),
        seldom: SELDOM.map(|part| histogram!(ATTEMPT_PART_SECONDS, "part" => part)),
    }
});

pub(super) struct Handles {
    pub(super) submitted: [Counter; 3],
    pub(super) granted: Counter,
    pub(super) queued: [Histogram; 3],
    finished: [[Counter; 4]; 2],
    run: Histogram,
    seldom: [Histogram; 6],
}

impl Handles {
    pub(super) fn finished(&self, has_succeeded: bool, answer: FinishAnswer) -> &Counter {
        let answer = match answer {
            FinishAnswer::Ok => 0,
            FinishAnswer::StaleFence => 1,
            FinishAnswer::AlreadyEnded => 2,
            FinishAnswer::NotFound => 3,
        };
        &self.finished[usize::from(has_succeeded)][answer]
    }

    pub(super) fn took(&self, timing: &Timing) {
        let Timing { env_ms, weights_ms, boot_ms, load_ms, warmup_ms, run_ms, upload_ms, .. } = *timing;
        self.run.record(Duration::from_millis(run_ms));
        let seldom = [env_ms, weights_ms, boot_ms, load_ms, warmup_ms, upload_ms];
        for (histogram, ms) in self.seldom.iter().zip(seldom).filter(|(_, ms)| *ms > 0) {
            histogram.record(Duration::from_millis(ms));
        }
    }
}

/// Metrics of a route. Their number is bounded by the API's routes.
struct Route {
    seconds: Histogram,
    /// Counters by method and status.
    answers: HashMap<(&'static str, u16), Counter>,
}

static ROUTES: LazyLock<RwLock<HashMap<String, Route>>> = LazyLock::new(RwLock::default);

/// Counts a response. `route` is the router's pattern, never the path of the request.
pub(crate) fn request(route: &str, method: &'static str, status: u16, took: Duration) {
    let known = ROUTES.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(route) = known.get(route)
        && let Some(answers) = route.answers.get(&(method, status))
    {
        answers.increment(1);
        route.seconds.record(took);
        return;
    }
    drop(known);
    let mut known = ROUTES.write().unwrap_or_else(PoisonError::into_inner);
    let name = route.to_owned();
    let route = known.entry(name.clone()).or_insert_with(|| Route {
        seconds: histogram!(HTTP_SECONDS, "route" => name.clone()),
        answers: HashMap::new(),
    });
    let count = || counter!(HTTP_REQUESTS, "route" => name, "method" => method, "status" => status.to_string());
    route.answers.entry((method, status)).or_insert_with(count).increment(1);
    route.seconds.record(took);
}
