//! Comparison of policies as Markdown: the cost of each trace divided by its lower bound, and missed targets.

use std::fmt::Write as _;

use stokehold_planner::simulate::table::{NOTHING, figures, line, plain, ratio, rule};
use stokehold_planner::simulate::{Outcome, words};

/// Minimum shares of interactive jobs and of batch jobs that started in time, for costs to be comparable.
const LEAST_INTERACTIVE: f64 = 0.95;
const LEAST_BATCH: f64 = 0.99;

/// A policy and its outcome on each trace, by the trace's name.
pub type Row = (String, Vec<(String, Outcome)>);

/// Formats one row for each policy, the best first, and one column for each trace, followed by the figures of each
/// policy. Policies are ordered by the number of traces on which they missed a target, and then by their mean.
#[must_use]
pub fn markdown(rows: &[Row]) -> String {
    let traces = traces(rows);
    let mut ranked: Vec<(Standing, &Row)> = rows.iter().map(|row| (Standing::of(row, &traces), row)).collect();
    // The sort is stable: equal policies keep their order.
    ranked.sort_by(|(one, _), (other, _)| one.misses.cmp(&other.misses).then(one.mean.total_cmp(&other.mean)));
    let mut text = String::new();
    line(&mut text, ["policy"].into_iter().chain(traces.iter().copied()).chain(["geometric mean"]));
    rule(&mut text, traces.len() + 1);
    for (standing, row) in &ranked {
        let cells = traces.iter().map(|trace| found(row, trace).map_or(NOTHING.to_owned(), cell));
        line(&mut text, [row.0.clone()].into_iter().chain(cells).chain([standing.to_string()]));
    }
    let _ = write!(
        text,
        "\nCost over the lower bound; lower is better. In brackets: the share of jobs that started in time, where that is below {:.0} % of \
         interactive or {:.0} % of batch jobs, and means that are no basis for comparison because of it.\n",
        LEAST_INTERACTIVE * 100.0,
        LEAST_BATCH * 100.0,
    );
    ranked.iter().for_each(|(_, row)| details(&mut text, row));
    text
}

/// Names of the traces in the order of their first occurrence.
fn traces(rows: &[Row]) -> Vec<&str> {
    let mut traces: Vec<&str> = Vec::new();
    for (name, _) in rows.iter().flat_map(|(_, outcomes)| outcomes) {
        if !traces.contains(&name.as_str()) {
            traces.push(name);
        }
    }
    traces
}

fn found<'a>(row: &'a Row, trace: &str) -> Option<&'a Outcome> {
    row.1.iter().find(|(name, _)| name == trace).map(|(_, outcome)| outcome)
}

/// Result of a policy over all traces.
struct Standing {
    /// Number of traces on which the policy missed a target or was not tried.
    misses: usize,
    /// The geometric mean of its ratios; infinite if it has none.
    mean: f64,
}

impl Standing {
    fn of(row: &Row, traces: &[&str]) -> Self {
        let outcomes: Vec<&Outcome> = traces.iter().filter_map(|trace| found(row, trace)).collect();
        let met = outcomes.iter().filter(|outcome| missed(outcome).is_none()).count();
        let mean = (outcomes.iter().map(|outcome| outcome.ratio.unwrap_or(f64::NAN).ln()).sum::<f64>()
            / outcomes.len() as f64)
            .exp();
        Self { misses: traces.len() - met, mean: if mean.is_finite() { mean } else { f64::INFINITY } }
    }
}

impl std::fmt::Display for Standing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.misses, self.mean) {
            (_, f64::INFINITY) => f.write_str(NOTHING),
            (0, mean) => write!(f, "**{mean:.2}**"),
            (misses, mean) => write!(f, "({mean:.2}; {misses} missed)"),
        }
    }
}

/// Ratio of an outcome, and the share of jobs in time if a target is missed.
fn cell(outcome: &Outcome) -> String {
    match missed(outcome) {
        None => ratio(outcome),
        Some(share) => format!("{} ({share})", ratio(outcome)),
    }
}

/// Shares of jobs in time that miss their target. Without a name it is the share of interactive jobs.
fn missed(outcome: &Outcome) -> Option<String> {
    let attainment = outcome.attainment;
    let is_low = |share: f64, least: f64| share.is_nan() || share < least;
    match (is_low(attainment.interactive, LEAST_INTERACTIVE), is_low(attainment.batch, LEAST_BATCH)) {
        (false, false) => None,
        (true, false) => Some(words::percent(attainment.interactive)),
        (false, true) => Some(format!("batch {}", words::percent(attainment.batch))),
        (true, true) => {
            Some(format!("{}, batch {}", words::percent(attainment.interactive), words::percent(attainment.batch)))
        }
    }
}

fn details(text: &mut String, (policy, outcomes): &Row) {
    let _ = write!(text, "\n### {}\n\n", plain(policy));
    figures(text, outcomes);
}

#[cfg(test)]
mod tests {
    use stokehold_planner::simulate::{ByPriority, Quantiles};

    use super::*;

    fn outcome(ratio: f64, interactive: f64, batch: f64) -> Outcome {
        let wait = |p95| Quantiles { p95, ..Quantiles::default() };
        Outcome {
            policy: "of no account".to_owned(),
            seed: 1,
            jobs: 1_000,
            cost_usd: 10.0 * ratio,
            bound_usd: Some(10.0),
            ratio: Some(ratio),
            attainment: ByPriority { interactive, batch },
            wait_s: ByPriority { interactive: wait(25.0), batch: wait(900.0) },
            utilisation: 0.25,
            boots: 12,
            cold_loads: 34,
            disk_loads: 5,
            resumes: 6,
            losses: 0,
        }
    }

    fn row(policy: &str, outcomes: &[(&str, Outcome)]) -> Row {
        (policy.to_owned(), outcomes.iter().map(|(trace, outcome)| ((*trace).to_owned(), outcome.clone())).collect())
    }

    #[test]
    fn the_table_is_as_it_was() {
        let rows = [
            row("cheap|late", &[("day", outcome(1.0, 0.9149, 1.0)), ("rush", outcome(1.5, 1.0, 0.98))]),
            row("dear", &[("day", outcome(8.0, 1.0, 1.0)), ("rush", outcome(2.0, 0.95, 0.99))]),
            row("good", &[("day", outcome(4.0, 0.97, 1.0)), ("rush", outcome(2.25, 0.96, 1.0))]),
            row("untried", &[("day", outcome(2.0, 0.5, 0.5))]),
        ];
        let golden = include_str!("table/golden.md");
        assert_eq!(markdown(&rows), golden);
    }

    #[test]
    fn what_has_no_mean_goes_last() {
        let rows =
            [row("none", &[("day", outcome(f64::NAN, 1.0, 1.0))]), row("some", &[("day", outcome(3.0, 1.0, 1.0))])];
        let text = markdown(&rows);
        let rows: Vec<&str> = text.lines().skip(2).take(2).collect();
        assert_eq!(rows, ["| some | 3.00 | **3.00** |", "| none | - | - |"]);
        assert_eq!(markdown(&[]).lines().next(), Some("| policy | geometric mean |"));
    }
}
