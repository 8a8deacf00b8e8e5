//! Goals, as ratios within one run. They are printed, never asserted, because a shared machine decides some of them.

use crate::measure::Figures;
use crate::run::Run;
use crate::table::is_sdk;

pub(crate) struct Gate {
    pub(crate) what: &'static str,
    pub(crate) limit: f64,
    pub(crate) aim: Option<f64>,
    pub(crate) reached: Option<f64>,
    at_least: bool,
}

impl Gate {
    fn at_least(what: &'static str, limit: f64, aim: Option<f64>, reached: Option<f64>) -> Self {
        Self { what, limit, aim, reached, at_least: true }
    }

    fn at_most(what: &'static str, limit: f64, aim: Option<f64>, reached: Option<f64>) -> Self {
        Self { what, limit, aim, reached, at_least: false }
    }

    pub(crate) fn met(&self) -> Option<bool> {
        self.reached.map(|reached| if self.at_least { reached >= self.limit } else { reached <= self.limit })
    }

    pub(crate) fn sign(&self) -> &'static str {
        if self.at_least { ">=" } else { "<=" }
    }
}

pub(crate) fn gates(run: &Run) -> Vec<Gate> {
    let (Some(ours), none) = (run.systems.get("stokehold"), Figures::default()) else { return vec![] };
    let raw = run.systems.get("raw").unwrap_or(&none);
    let bullmq = run.systems.get("bullmq").unwrap_or(&none);
    let peers =
        || run.systems.iter().filter(|(name, _)| !is_sdk(name) && !matches!(name.as_str(), "stokehold" | "raw"));
    let least = |values: Vec<f64>| values.into_iter().min_by(f64::total_cmp);
    let best_python =
        least(peers().filter(|(_, f)| f.about.starts_with("Python")).filter_map(|(_, f)| f.cpu_all()).collect());
    let best_round_trip = least(peers().filter_map(|(_, f)| f.rtt_ms.map(|r| r.p50)).collect());
    let ratio = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a / b);
    let deep = |depth: usize| ours.depth_cpu_s_per_1000.get(&depth).copied();
    let part = |name: &str| ours.cpu_s_per_1000.get(name).copied();
    let crash = |figure: &dyn Fn(&crate::measure::Crash) -> f64| ours.crash.as_ref().map(figure);
    let sdk = |name: &str| run.systems.get(name).unwrap_or(&none);
    let (python, js) = (sdk("stokehold-python"), sdk("stokehold-js"));
    let client_cpu = |f: &Figures| f.submit_cpu_s_per_1000.get("client").copied();
    let single = |f: &Figures| ratio(f.submit_single_per_s, bullmq.submit_single_per_s);
    let round_trip = |f: &Figures| ratio(f.rtt_ms.map(|r| r.p50), bullmq.rtt_ms.map(|r| r.p50));
    vec![
        Gate::at_most("Python SDK, client CPU of a submit, ms", 0.15, None, client_cpu(python)),
        Gate::at_least("Python SDK, submit, one by one: of BullMQ's rate", 1.0, None, single(python)),
        Gate::at_most("Python SDK, round trip p50: of BullMQ's", 1.0, None, round_trip(python)),
        Gate::at_most("JavaScript SDK, client CPU of a submit, ms", 0.15, None, client_cpu(js)),
        Gate::at_least("JavaScript SDK, submit, one by one: of BullMQ's rate", 1.0, None, single(js)),
        Gate::at_most("JavaScript SDK, round trip p50: of BullMQ's", 1.0, None, round_trip(js)),
        Gate::at_least(
            "submit, one by one: of the raw loop's rate",
            0.4,
            Some(0.6),
            ratio(ours.submit_single_per_s, raw.submit_single_per_s),
        ),
        Gate::at_least(
            "submit, 64 clients: of BullMQ's rate, one producer",
            1.0,
            None,
            ratio(ours.submit_concurrent_per_s, bullmq.submit_single_per_s),
        ),
        Gate::at_least(
            "submit, bulk: of BullMQ's addBulk",
            1.0,
            Some(2.0),
            ratio(ours.submit_bulk_per_s, bullmq.submit_bulk_per_s),
        ),
        Gate::at_most(
            "drain, CPU of all parts: of the best Python peer's",
            1.0 / 3.0,
            None,
            ratio(ours.cpu_all(), best_python),
        ),
        Gate::at_most(
            "drain, CPU of all parts: of BullMQ's (an aim)",
            1.0,
            None,
            ratio(ours.cpu_all(), bullmq.cpu_all()),
        ),
        Gate::at_most(
            "drain, worker and runner, CPU s per 1,000 jobs",
            0.05,
            None,
            part("worker").zip(part("runner")).map(|(worker, runner)| worker + runner),
        ),
        Gate::at_most(
            "round trip p50: of the fastest peer's",
            1.0,
            None,
            ratio(ours.rtt_ms.map(|r| r.p50), best_round_trip),
        ),
        Gate::at_most("round trip p99: of p50", 5.0, None, ours.rtt_ms.map(|r| r.p99 / r.p50)),
        Gate::at_most(
            "depth, CPU per job: 1,000,000 queued, of 10,000",
            1.1,
            None,
            ratio(deep(1_000_000), deep(10_000)),
        ),
        Gate::at_most(
            "width, CPU per job of Redis: 60,000 lanes, of one",
            1.2,
            None,
            ratio(ours.width_cpu_s_per_1000, ours.narrow_cpu_s_per_1000),
        ),
        Gate::at_most("Redis bytes per queued job", 500.0, Some(400.0), ours.redis_bytes_per_job),
        Gate::at_most("Redis bytes per finished job", 600.0, None, ours.redis_bytes_per_finished_job),
        Gate::at_most("crash: jobs unfinished", 0.0, None, crash(&|c| c.unfinished as f64)),
        Gate::at_most("crash: jobs with two effects", 0.0, None, crash(&|c| c.effects_twice as f64)),
        Gate::at_most("crash: seconds until all done", 35.0, None, crash(&|c| c.done_s.unwrap_or(f64::INFINITY))),
    ]
}
