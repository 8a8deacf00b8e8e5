//! Reports of a load: a line while it runs, a table or JSON at its end, and latency distributions as files.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::ops::DerefMut;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::arrivals::Plan;
use super::tally::Tally;
use crate::{output, progress};

const SHOW_EVERY: Duration = Duration::from_secs(1);
const SAY_EVERY: Duration = Duration::from_secs(10);

const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99_9", 0.999)];

/// Steps per halving of the distance to 100 % in a saved distribution; the default of HdrHistogram's tools.
const TICKS: u32 = 5;

/// A load that has ended.
pub(super) struct Report {
    pub(super) tally: Tally,
    pub(super) plan: Plan,
    pub(super) endpoints: String,
    pub(super) took: Duration,
    pub(super) wait: bool,
    /// Set when a signal stopped the load.
    pub(super) stopped: bool,
}

/// Shows the progress of a load. Never completes.
pub(super) async fn follow<T: DerefMut<Target = Tally>>(plan: Plan, start: Instant, tally: impl Fn() -> T) {
    let terminal = std::io::stderr().is_terminal();
    let bar = progress::spinner("");
    let mut ticks = tokio::time::interval(if terminal { SHOW_EVERY } else { SAY_EVERY });
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let said = progress_line(plan, start.elapsed(), &tally());
        if terminal { bar.set_message(said) } else { output::note(said) }
    }
}

fn progress_line(plan: Plan, elapsed: Duration, tally: &Tally) -> String {
    let ended: u64 = tally.states.values().sum();
    let errors: u64 = tally.errors.values().sum();
    format!(
        "{} of {} due, {} accepted ({:.0}/s), {} ended, {} in flight, {} late, {} errors",
        output::count(tally.due),
        output::count(plan.requests),
        output::count(tally.accepted),
        per_s(tally.accepted, elapsed),
        output::count(ended),
        output::count(tally.in_flight),
        output::count(tally.late),
        output::count(errors),
    )
}

fn per_s(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(f64::EPSILON)
}

impl Report {
    /// The latency distributions by name.
    fn distributions(&self) -> Vec<(&'static str, &Histogram<u64>)> {
        let both = [("submit", &self.tally.submit_us), ("result", &self.tally.result_us)];
        both[..if self.wait { 2 } else { 1 }].to_vec()
    }

    /// The report as JSON.
    pub(super) fn document(&self) -> Value {
        let Self { tally, plan, took, .. } = self;
        let latency: BTreeMap<&str, Value> =
            self.distributions().into_iter().map(|(name, of)| (name, quantiles(of))).collect();
        json!({
            "endpoints": self.endpoints,
            "rate_per_s": plan.rate_per_s,
            "poisson_seed": plan.poisson_seed,
            "stopped": self.stopped,
            "took_s": took.as_secs_f64(),
            "requests": {
                "planned": plan.requests, "due": tally.due, "accepted": tally.accepted, "late": tally.late,
                "unsent": tally.unsent, "sent_again": tally.sent_again, "in_flight_max": tally.in_flight_max,
            },
            "accepted_per_s": per_s(tally.accepted, *took),
            "jobs": self.wait.then(|| json!({"states": tally.states, "open": tally.open})),
            "errors": tally.errors,
            "latency_us": latency,
        })
    }

    /// Writes each distribution beside `path`, in the text form of HdrHistogram. Returns their paths.
    pub(super) fn save(&self, path: &Path) -> Result<Vec<PathBuf>> {
        let stem =
            if path.extension().is_some_and(|end| end == "hgrm") { path.with_extension("") } else { path.to_owned() };
        let save = |(name, of)| {
            let mut path = stem.clone().into_os_string();
            path.push(format!(".{name}.hgrm"));
            let path = PathBuf::from(path);
            std::fs::write(&path, distribution(of)).with_context(|| format!("cannot write {}", path.display()))?;
            Ok(path)
        };
        self.distributions().into_iter().map(save).collect()
    }
}

fn quantiles(of: &Histogram<u64>) -> Value {
    let mut members: serde_json::Map<String, Value> =
        QUANTILES.iter().map(|(name, at)| ((*name).to_owned(), of.value_at_quantile(*at).into())).collect();
    members.insert("max".to_owned(), of.max().into());
    members.insert("count".to_owned(), of.len().into());
    members.into()
}

/// Milliseconds by percentile: what HdrHistogram's plotter reads.
fn distribution(of: &Histogram<u64>) -> String {
    let mut text = format!("{:>12} {:>14} {:>10} {:>14}\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
    let mut below = 0;
    for step in of.iter_quantiles(TICKS) {
        below += step.count_since_last_iteration();
        let (value, quantile) = (step.value_iterated_to() as f64 / 1e3, step.quantile_iterated_to());
        let inverse = if quantile < 1.0 { format!("{:14.2}", 1.0 / (1.0 - quantile)) } else { String::new() };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{value:12.3} {quantile:14.12} {below:10} {inverse}");
    }
    let _ = writeln!(text, "#[Mean    = {:12.3}, StdDeviation   = {:12.3}]", of.mean() / 1e3, of.stdev() / 1e3);
    let _ = writeln!(text, "#[Max     = {:12.3}, Total count    = {:12}]", of.max() as f64 / 1e3, of.len());
    text
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tally, plan, took, .. } = self;
        let kind = if plan.poisson_seed.is_some() { "Poisson" } else { "even" };
        writeln!(
            f,
            "{} of {} requests in {:.1} s, {} arrivals at {}/s, to {}{}",
            output::count(tally.due),
            output::count(plan.requests),
            took.as_secs_f64(),
            kind,
            plan.rate_per_s,
            self.endpoints,
            if self.stopped { " (stopped)" } else { "" },
        )?;
        if let Some(seed) = plan.poisson_seed {
            writeln!(f, "{}", output::dim(format_args!("--seed {seed} repeats the gaps")))?;
        }
        writeln!(
            f,
            "accepted {} ({:.1}/s), at most {} in flight, {} sent late, {} not sent, {} retried after a 429",
            output::count(tally.accepted),
            per_s(tally.accepted, *took),
            output::count(tally.in_flight_max),
            output::count(tally.late),
            output::count(tally.unsent),
            output::count(tally.sent_again),
        )?;
        if self.wait {
            let mut states: Vec<String> =
                tally.states.iter().map(|(state, count)| format!("{} {state}", output::count(*count))).collect();
            if tally.open > 0 {
                states.push(format!("{} open", output::count(tally.open)));
            }
            writeln!(f, "jobs: {}", if states.is_empty() { "none".to_owned() } else { states.join(", ") })?;
        }
        let mut table =
            output::table(["milliseconds since the due time", "p50", "p90", "p99", "p99.9", "max", "count"]);
        for (name, of) in self.distributions() {
            let name = if name == "submit" { "until the response" } else { "until the end of the job" };
            let ms = |us: u64| format!("{:.1}", us as f64 / 1e3);
            let mut row = vec![name.to_owned()];
            row.extend(QUANTILES.iter().map(|(_, at)| ms(of.value_at_quantile(*at))));
            row.extend([ms(of.max()), output::count(of.len())]);
            table.add_row(row);
        }
        write!(f, "\n{}", table.trim_fmt())?;
        for (name, count) in &tally.errors {
            write!(f, "\n{} {}", output::bold(format_args!("{} x", output::count(*count))), name)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut tally = Tally::new();
        for ms in 1..=1_000 {
            tally.sent(false);
            tally.accepted(Duration::from_millis(ms));
            tally.ended("succeeded", Duration::from_millis(ms * 2));
            tally.done();
        }
        let plan = Plan { rate_per_s: 100.0, requests: 1_000, poisson_seed: None };
        Report { tally, plan, endpoints: "echo".to_owned(), took: Duration::from_secs(10), wait: true, stopped: false }
    }

    #[test]
    fn it_says_what_programs_and_people_need() {
        let report = report();
        let document = report.document();
        let near = |value: &Value, ms: u64| value.as_u64().is_some_and(|us| us.abs_diff(ms * 1_000) <= ms);
        assert!(near(&document["latency_us"]["submit"]["p50"], 500), "{document}");
        assert!(near(&document["latency_us"]["result"]["p99_9"], 1_998), "{document}");
        assert_eq!(document["accepted_per_s"], 100.0);
        assert_eq!(document["jobs"], json!({"states": {"succeeded": 1_000}, "open": 0}));
        let text = report.to_string();
        assert!(text.starts_with("1,000 of 1,000 requests in 10.0 s, even arrivals at 100/s, to echo\n"), "{text}");
        assert!(text.contains("jobs: 1,000 succeeded\n"), "{text}");
    }

    #[test]
    fn a_saved_distribution_ends_with_all_of_it() {
        let text = distribution(&report().tally.submit_us);
        let last = text.lines().rfind(|line| !line.starts_with('#')).map(str::split_whitespace);
        let last: Vec<&str> = last.map(Iterator::collect).unwrap_or_default();
        assert_eq!(last[1..], ["1.000000000000", "1000"], "{text}");
        assert!(text.contains("Total count    =         1000"), "{text}");
    }
}
