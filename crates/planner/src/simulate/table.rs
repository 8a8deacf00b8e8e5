//! Figures of outcomes as Markdown.

use std::fmt::Write as _;

use super::outcome::Outcome;
use super::words;

/// Content of an empty cell.
pub const NOTHING: &str = "-";

/// The figures of a policy, one line for each trace. The columns of the lower bound are left out if no outcome has one.
pub fn figures(text: &mut String, outcomes: &[(String, Outcome)]) {
    let has_bound = outcomes.iter().any(|(_, outcome)| outcome.bound_usd.is_some());
    let mut columns = vec!["trace", "cost"];
    columns.extend(["bound", "ratio"].into_iter().filter(|_| has_bound));
    columns.extend([
        "in time, interactive",
        "in time, batch",
        "p95 wait, interactive",
        "p95 wait, batch",
        "boots",
        "resumes",
        "losses",
        "loads, cold",
        "loads, disk",
        "in use",
    ]);
    line(text, &columns);
    rule(text, columns.len() - 1);
    for (trace, outcome) in outcomes {
        let mut cells = vec![trace.clone(), words::dollars(outcome.cost_usd)];
        if has_bound {
            cells.extend([outcome.bound_usd.map_or(NOTHING.to_owned(), words::dollars), ratio(outcome)]);
        }
        cells.extend([
            words::percent(outcome.attainment.interactive),
            words::percent(outcome.attainment.batch),
            words::seconds(outcome.wait_s.interactive.p95),
            words::seconds(outcome.wait_s.batch.p95),
            outcome.boots.to_string(),
            outcome.resumes.to_string(),
            outcome.losses.to_string(),
            outcome.cold_loads.to_string(),
            outcome.disk_loads.to_string(),
            words::percent(outcome.utilisation),
        ]);
        line(text, cells);
    }
}

/// The cost divided by its lower bound.
#[must_use]
pub fn ratio(outcome: &Outcome) -> String {
    let ratio = outcome.ratio.filter(|ratio| ratio.is_finite());
    ratio.map_or_else(|| NOTHING.to_owned(), |ratio| format!("{ratio:.2}"))
}

/// A line of a table.
pub fn line(text: &mut String, cells: impl IntoIterator<Item = impl AsRef<str>>) {
    for cell in cells {
        let _ = write!(text, "| {} ", plain(cell.as_ref()));
    }
    text.push_str("|\n");
}

/// The line below the headings: names to the left, figures to the right.
pub fn rule(text: &mut String, figures: usize) {
    let _ = writeln!(text, "| --- |{}", " ---: |".repeat(figures));
}

/// Text without characters that end a cell or a line.
#[must_use]
pub fn plain(text: &str) -> String {
    text.replace('|', "\\|").replace(char::is_control, " ")
}
