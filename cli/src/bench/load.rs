//! `stoke bench load`: an open-loop load. Requests are due at fixed times, and every latency counts from the due time
//! of its request, so that a stall of the server shows in every request that it delayed (no coordinated omission).

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use reqwest::Method;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::arrivals::{Arrivals, Plan};
use super::report::{self, Report};
use super::requests::Requests;
use super::tally::Tally;
use crate::client::{Call, Client, RequestError, retry, segment};
use crate::failure::require;
use crate::signals::StopSignals;
use crate::{Global, duration, output};

/// Long-poll duration of one request for a job, seconds.
const HOLD_S: u64 = 30;

/// A request sent later than this after its due time counts as late; smaller delays are timer inaccuracy.
const LATE: Duration = Duration::from_millis(5);

/// Maximum number of requests of one load: about a day at 10,000 per second.
const REQUESTS_MAX: f64 = 1e9;

/// Submit jobs at a constant rate and measure latencies
///
/// Requests are sent at their due times, whether or not earlier ones were answered. Each latency counts from the due
/// time of its request.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke bench load --rate 200 --duration 60s
  stoke bench load --endpoint embed --input @input.json --rate 20 --duration 5m --poisson --wait
  stoke bench load --input-file mix.jsonl --rate 50 --duration 60s --wait --json
  stoke bench load --demo")]
pub(crate) struct LoadArgs {
    /// Requests per second
    #[arg(long, value_name = "PER_SECOND", default_value_t = 50.0)]
    rate: f64,
    /// How long to send requests, e.g. 90s or 5m
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "30s")]
    duration: Duration,
    /// Number of requests, instead of --duration
    #[arg(long, value_name = "N", conflicts_with = "duration", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(super) requests: Option<u64>,
    /// Space requests like many independent users do (a Poisson process) instead of evenly
    #[arg(long)]
    poisson: bool,
    /// Seed of the Poisson process, to repeat an earlier load [default: random]
    #[arg(long, value_name = "N", requires = "poisson")]
    seed: Option<u64>,
    /// Endpoint, or one version of it as NAME@VERSION
    #[arg(long, default_value = "echo")]
    endpoint: String,
    /// Input as JSON, @FILE, or - for standard input [default for echo: a short text]
    #[arg(long, short)]
    input: Option<String>,
    /// Submit the lines of this file in turn: each is {"input": ...} with an optional "endpoint" and other job fields
    #[arg(long, value_name = "FILE", conflicts_with = "input")]
    input_file: Option<PathBuf>,
    /// Also wait for the end of each job, and measure the time
    #[arg(long, short)]
    wait: bool,
    /// Maximum requests in flight; with --wait, a job is in flight until it ends. Requests above the limit are sent
    /// late
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    concurrency: u32,
    /// Count a 429 as an error instead of retrying when the API allows it
    #[arg(long)]
    count_429: bool,
    /// How long to wait at the end for requests in flight
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "5m")]
    patience: Duration,
    /// Save the latency distributions as FILE.submit.hgrm and FILE.result.hgrm, for HdrHistogram's plotter
    #[arg(long, value_name = "FILE")]
    hdr: Option<PathBuf>,
    /// Fail unless every request was accepted and, with --wait, every job succeeded
    #[arg(long)]
    check: bool,
    /// Start a temporary stack with the example endpoints and send them 10,000 mixed requests
    #[arg(long, conflicts_with_all = ["duration", "endpoint", "input", "input_file"])]
    pub(super) demo: bool,
}

/// A load ready to run.
pub(super) struct Load {
    pub(super) client: Client,
    pub(super) requests: Requests,
    pub(super) plan: Plan,
    pub(super) wait: bool,
    pub(super) concurrency: u32,
    pub(super) count_429: bool,
    pub(super) patience: Duration,
}

/// State that the tasks of a load share.
struct Shared {
    load: Load,
    start: Instant,
    /// Deadline of requests in flight.
    end: Instant,
    arrivals: Mutex<Arrivals>,
    tally: Mutex<Tally>,
}

pub(super) async fn run(global: &Global, args: LoadArgs) -> Result<()> {
    let client = Client::connect(global)?;
    let given = args.input.as_deref().or_else(|| args.endpoint.starts_with("echo").then_some(r#"{"text": "hello"}"#));
    let requests = match &args.input_file {
        Some(path) => Requests::from_file(path, &args.endpoint)?,
        None => Requests::same(&args.endpoint, given)?,
    };
    let load = args.load(client, requests, args.requests)?;
    args.measure(global, load).await
}

impl LoadArgs {
    /// Builds the load: `count` requests, or as many as fit in the duration.
    pub(super) fn load(&self, client: Client, requests: Requests, count: Option<u64>) -> Result<Load> {
        require!(
            self.rate.is_finite() && self.rate > 0.0,
            "--rate {} must be a number above 0, e.g. 100 or 0.5",
            self.rate
        );
        let wanted = (self.rate * self.duration.as_secs_f64()).round();
        require!(
            wanted <= REQUESTS_MAX,
            "{wanted:.0} requests are too many for one load (at most {REQUESTS_MAX:.0}); run several loads"
        );
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to REQUESTS_MAX")]
        let count = count.unwrap_or((wanted as u64).max(1));
        let poisson_seed = self.poisson.then(|| self.seed.unwrap_or_else(rand::random));
        let plan = Plan { rate_per_s: self.rate, requests: count, poisson_seed };
        let Self { wait, concurrency, count_429, patience, .. } = *self;
        Ok(Load { client, requests, plan, wait, concurrency, count_429, patience })
    }

    /// Runs a load and prints its report.
    pub(super) async fn measure(&self, global: &Global, load: Load) -> Result<()> {
        let wait = load.wait;
        let report = run_load(load).await?;
        if let Some(path) = &self.hdr {
            for path in report.save(path)? {
                output::note(output::dim(format_args!("saved {}", path.display())));
            }
        }
        if global.json {
            output::json(&report.document())?
        } else {
            output::line(&report)?
        }
        ensure!(
            !(self.check || self.demo) || report.tally.is_clean(wait),
            "not every request was accepted{}",
            if wait { " and succeeded" } else { "" }
        );
        Ok(())
    }
}

/// Runs a load to its end, or until a stop signal.
pub(super) async fn run_load(load: Load) -> Result<Report> {
    let mut stop = StopSignals::new()?;
    let (start, plan, wait) = (Instant::now(), load.plan, load.wait);
    let long = Duration::try_from_secs_f64(plan.requests as f64 / plan.rate_per_s).context("the load is too long")?;
    let end = start.checked_add(long + load.patience).context("the load is too long")?;
    let endpoints = load.requests.endpoints().join(", ");
    let senders = u64::from(load.concurrency).min(plan.requests);
    let shared = Arc::new(Shared {
        load,
        start,
        end,
        arrivals: Mutex::new(Arrivals::new(plan)),
        tally: Mutex::new(Tally::new()),
    });
    let mut tasks: JoinSet<()> = (0..senders).map(|_| send(shared.clone())).collect();
    let ended = async { while tasks.join_next().await.is_some() {} };
    let stopped = tokio::select! {
        () = ended => false,
        () = report::follow(plan, start, || lock(&shared.tally)) => false,
        () = stop.recv() => true,
    };
    let took = start.elapsed();
    tasks.shutdown().await;
    let shared = Arc::into_inner(shared).context("a sender task is still running after the load")?;
    let mut tally = shared.tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    // Requests that were never sent waited since their due time.
    let never = shared.arrivals.into_inner().unwrap_or_else(PoisonError::into_inner);
    never.take_while(|(_, due)| *due < took).for_each(|(_, due)| tally.unsent(took - due));
    Ok(Report { tally, plan, endpoints, took, wait, stopped })
}

/// Sends the next due request until none is left. One such task runs per request that may be in flight.
async fn send(shared: Arc<Shared>) {
    loop {
        let Some((number, due)) = lock(&shared.arrivals).next() else { return };
        let due = shared.start + due;
        sleep_until(due).await;
        if Instant::now() >= shared.end {
            lock(&shared.tally).unsent(due.elapsed());
            continue;
        }
        lock(&shared.tally).sent(due.elapsed() > LATE);
        if let Some(id) = submit(&shared, number, due).await
            && shared.load.wait
        {
            until_ended(&shared, &id, due).await;
        }
        lock(&shared.tally).done();
    }
}

/// Submits one job and returns its id once it is accepted.
async fn submit(shared: &Shared, number: u64, due: Instant) -> Option<String> {
    let body = Some(shared.load.requests.body(number));
    let call = Call { method: Method::POST, path: "/v1/jobs", body, headers: &[], hold: Duration::ZERO };
    for tried in 1.. {
        let failure = match timeout_at(shared.end, shared.load.client.attempt(&call)).await {
            Ok(Ok((_, job))) => {
                lock(&shared.tally).accepted(due.elapsed());
                return Some(job["id"].as_str()?.to_owned());
            }
            Ok(Err(failure)) => failure,
            Err(elapsed) => RequestError::silence(elapsed),
        };
        let refused = failure.status.is_some_and(|status| status.as_u16() == 429);
        let pause = retry::pause(tried, failure.asked);
        if shared.load.count_429 || !refused || Instant::now() + pause >= shared.end {
            lock(&shared.tally).failed(&failure, due.elapsed());
            return None;
        }
        lock(&shared.tally).sent_again += 1;
        sleep(pause).await;
    }
    None
}

/// Waits for the end of a job. Failed requests are counted and retried until the load's deadline.
async fn until_ended(shared: &Shared, id: &str, due: Instant) {
    let path = format!("/v1/jobs/{}?wait_s={HOLD_S}", segment(id));
    let hold = Duration::from_secs(HOLD_S);
    let call = Call { method: Method::GET, path: &path, body: None, headers: &[], hold };
    let mut failed = 0;
    while let Ok(asked) = timeout_at(shared.end, shared.load.client.attempt(&call)).await {
        match asked {
            Ok((_, job)) => {
                let state = job["state"].as_str().unwrap_or("unknown");
                if matches!(state, "succeeded" | "failed" | "cancelled" | "expired") {
                    lock(&shared.tally).ended(state, due.elapsed());
                    return;
                }
            }
            Err(failure) => {
                failed += 1;
                lock(&shared.tally).failed_to_wait(&failure);
                if !failure.passing || timeout_at(shared.end, sleep(retry::pause(failed, failure.asked))).await.is_err()
                {
                    return;
                }
            }
        }
    }
}

/// Locks a mutex and ignores poisoning: both values are consistent at every unlock.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    use axum::extract::Path;
    use axum::http::{StatusCode, header};
    use axum::response::IntoResponse;
    use axum::routing::{get, post};
    use axum::{Json, Router};
    use serde_json::json;

    use super::*;
    use crate::stub;

    fn load(client: Client, requests: u64, concurrency: u32, wait: bool) -> Load {
        let plan = Plan { rate_per_s: 1_000.0, requests, poisson_seed: None };
        let requests = Requests::same("echo", None).unwrap();
        let patience = Duration::from_secs(30);
        Load { client, requests, plan, wait, concurrency, count_429: false, patience }
    }

    #[tokio::test]
    async fn every_request_is_accepted_and_followed_to_its_end() {
        let count = Arc::new(AtomicU64::new(0));
        let submitted = count.clone();
        let accept = move || async move { Json(json!({"id": submitted.fetch_add(1, SeqCst).to_string()})) };
        let answer = |Path(id): Path<String>| async move {
            Json(json!({"id": id, "state": if id == "7" { "failed" } else { "succeeded" }}))
        };
        let routes = Router::new().route("/v1/jobs", post(accept)).route("/v1/jobs/{id}", get(answer));
        let report = run_load(load(stub::serve(routes).await, 50, 8, true)).await.unwrap();
        assert_eq!((count.load(SeqCst), report.tally.accepted, report.tally.open), (50, 50, 0));
        assert_eq!(
            report.tally.states.into_iter().collect::<Vec<_>>(),
            [("failed".into(), 1), ("succeeded".into(), 49)]
        );
        assert_eq!((report.tally.submit_us.len(), report.tally.result_us.len()), (50, 50));
        assert!(report.tally.in_flight_max <= 8);
    }

    /// A closed loop would hide this: while one request is held, every request that was due meanwhile counts the delay
    /// it.
    #[tokio::test]
    async fn a_server_that_stalls_once_is_charged_for_all_it_kept_waiting() {
        let count = Arc::new(AtomicU64::new(0));
        let stall = Duration::from_millis(300);
        let accept = move || async move {
            if count.fetch_add(1, SeqCst) == 0 {
                sleep(stall).await;
            }
            Json(json!({"id": "1"}))
        };
        let client = stub::serve(Router::new().route("/v1/jobs", post(accept))).await;
        // One in flight: the other 99, due in the 100 ms after the first, all wait for it.
        let report = run_load(load(client, 100, 1, false)).await.unwrap();
        assert!(report.tally.submit_us.min() >= 200_000, "the last was due 200 ms before the stall was over");
        assert!(report.tally.late >= 99);
    }

    #[tokio::test]
    async fn a_request_that_is_asked_to_come_back_comes_back() {
        let count = Arc::new(AtomicU64::new(0));
        let seen = count.clone();
        let accept = move || async move {
            match seen.fetch_add(1, SeqCst) {
                0 => (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, "0")]).into_response(),
                _ => Json(json!({"id": "1"})).into_response(),
            }
        };
        let routes = Router::new().route("/v1/jobs", post(accept));
        let client = stub::serve(routes).await;
        let report = run_load(load(client.clone(), 1, 1, false)).await.unwrap();
        assert_eq!((report.tally.sent_again, report.tally.accepted, report.tally.errors.len()), (1, 1, 0));
        count.store(0, SeqCst);
        let counting = Load { count_429: true, ..load(client, 2, 1, false) };
        let report = run_load(counting).await.unwrap();
        assert_eq!((report.tally.accepted, report.tally.errors["429"]), (1, 1));
    }

    #[tokio::test]
    async fn what_is_in_flight_at_the_end_is_left_and_counted() {
        let routes = Router::new().route("/v1/jobs", post(std::future::pending::<()>));
        let client = stub::serve(routes).await;
        let impatient = Load { patience: Duration::from_millis(50), ..load(client, 3, 1, false) };
        let report = run_load(impatient).await.unwrap();
        assert_eq!((report.tally.errors["no answer in time"], report.tally.unsent), (1, 2));
        assert!(report.tally.submit_us.min() >= 40_000);
        assert_eq!(report.tally.submit_us.len(), 3);
    }

    #[test]
    fn wrong_arguments_are_told() {
        assert!(
            stub::parse("bench load --rate 10 --duration 5s --poisson --seed 3 --wait --concurrency 9 --hdr x --json")
                .is_ok()
        );
        assert!(stub::parse("bench load --demo --rate 50").is_ok());
        assert!(stub::parse("bench load --demo --endpoint echo").is_err());
        assert!(stub::parse("bench load --seed 3").is_err_and(|said| said.contains("--poisson")));
        assert!(stub::parse("bench load --duration soon").is_err());
    }
}
