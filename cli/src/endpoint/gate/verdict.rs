//! Comparison of measurements with limits.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::{money, output};

/// Maximum number of failed lines to list.
const TOLD: usize = 20;

/// The limits.
pub(super) struct Limits {
    /// Fraction of lines, 0 to 1.
    pub(super) min_success: f64,
    pub(super) max_p95_ms: Option<u64>,
    pub(super) max_usd_micros_per_1000: Option<u64>,
}

/// The outcomes of the lines.
#[derive(Default)]
pub(super) struct Measured {
    /// Run time of each passed line by number, ms.
    passed: BTreeMap<u64, u64>,
    /// Reason of each failed line by number.
    others: BTreeMap<u64, String>,
    pub(super) spent_usd_micros: u64,
}

/// The members of a line of results or errors that the verdict needs.
#[derive(Deserialize)]
struct Ended {
    line: u64,
    #[serde(default)]
    run_ms: Option<u64>,
    #[serde(default)]
    error: Option<Told>,
}

#[derive(Deserialize)]
struct Told {
    code: String,
    message: String,
}

impl Measured {
    /// Reads the results and errors of an ended batch.
    pub(super) async fn read(results: &Path, errors: &Path) -> Result<Self> {
        let mut measured = Self::default();
        for path in [results, errors] {
            let file = tokio::fs::File::open(path).await?;
            let mut lines = BufReader::new(file).lines();
            while let Some(text) = lines.next_line().await? {
                let ended: Ended = serde_json::from_str(&text)
                    .with_context(|| format!("the API's response is not a line of a batch: {text:.200}"))?;
                match ended.error {
                    Some(Told { code, message }) => measured.fail(ended.line, format!("{code}: {message}")),
                    None => drop(measured.passed.insert(ended.line, ended.run_ms.unwrap_or_default())),
                }
            }
        }
        Ok(measured)
    }

    /// Marks a line as failed.
    pub(super) fn fail(&mut self, line: u64, why: String) {
        self.passed.remove(&line);
        self.others.insert(line, why);
    }

    /// Number of passed lines.
    pub(super) fn passed(&self) -> usize {
        self.passed.len()
    }

    fn lines(&self) -> usize {
        self.passed.len() + self.others.len()
    }

    /// The 95th percentile of the run time of passed lines (nearest rank).
    fn p95_ms(&self) -> Option<u64> {
        let mut run_ms: Vec<u64> = self.passed.values().copied().collect();
        let rank = (run_ms.len() * 95).div_ceil(100);
        let place = rank.checked_sub(1)?;
        Some(*run_ms.select_nth_unstable(place).1)
    }
}

/// A limit and its measurement.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Check {
    /// `success`, `p95_ms` or `usd_micros_per_1000`.
    pub(super) name: &'static str,
    /// Null if nothing could be measured.
    pub(super) measured: Option<f64>,
    pub(super) limit: f64,
    pub(super) passed: bool,
}

/// A line that did not pass.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Line {
    pub(super) line: u64,
    pub(super) why: String,
}

/// The verdict on a version.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) lines: usize,
    pub(super) lines_passed: usize,
    pub(super) checks: Vec<Check>,
    /// The first failed lines.
    pub(super) not_passed: Vec<Line>,
}

/// Compares measurements with limits. A missing measurement misses its limit.
#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
pub(super) fn judge(measured: &Measured, limits: &Limits) -> Verdict {
    let (lines, lines_passed) = (measured.lines(), measured.passed());
    let success = (lines > 0).then(|| lines_passed as f64 / lines as f64);
    let mut checks = vec![Check {
        name: "success",
        measured: success,
        limit: limits.min_success,
        passed: success.is_some_and(|success| success >= limits.min_success),
    }];
    let mut at_most = |name, measured: Option<f64>, limit: Option<u64>| {
        if let Some(limit) = limit.map(|limit| limit as f64) {
            checks.push(Check { name, measured, limit, passed: measured.is_some_and(|measured| measured <= limit) });
        }
    };
    at_most("p95_ms", measured.p95_ms().map(|ms| ms as f64), limits.max_p95_ms);
    // The cost is unknown if no worker has a price.
    let has_cost = lines > 0 && measured.spent_usd_micros > 0;
    let per_1000 = has_cost.then(|| measured.spent_usd_micros as f64 * 1000.0 / lines as f64);
    at_most("usd_micros_per_1000", per_1000, limits.max_usd_micros_per_1000);
    let told = measured.others.iter().take(TOLD);
    let not_passed = told.map(|(line, why)| Line { line: *line, why: why.clone() }).collect();
    Verdict { lines, lines_passed, checks, not_passed }
}

impl Check {
    /// The measurement and the limit as text.
    pub(super) fn words(&self) -> [String; 2] {
        let shown = |value: f64| match self.name {
            "success" => format!("{:.1} %", value * 100.0),
            "p95_ms" => format!("{value:.0} ms"),
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "dollars, never negative")]
            _ => money::dollars(value.round() as u64),
        };
        let side = if self.name == "success" { "at least" } else { "at most" };
        [self.measured.map_or("unknown".to_owned(), shown), format!("{side} {}", shown(self.limit))]
    }

    /// The label of the check.
    pub(super) fn title(&self) -> &'static str {
        match self.name {
            "success" => "lines passed",
            "p95_ms" => "p95 of the run time",
            _ => "cost of 1,000 lines",
        }
    }
}

impl Verdict {
    pub(super) fn passed(&self) -> bool {
        self.checks.iter().all(|check| check.passed)
    }

    /// The missed limits as text.
    pub(super) fn failed(&self) -> String {
        let failed = self.checks.iter().filter(|check| !check.passed).map(|check| {
            let [measured, limit] = check.words();
            format!("{} {measured}, {limit}", check.title())
        });
        failed.collect::<Vec<_>>().join("; ")
    }

    /// Number of failed lines that are not listed.
    pub(super) fn left(&self) -> u64 {
        (self.lines - self.lines_passed - self.not_passed.len()) as u64
    }

    pub(super) fn table(&self) -> output::Table {
        let mut table = output::table(["", "measured", "limit", ""]);
        for check in &self.checks {
            let [mut measured, limit] = check.words();
            if check.name == "success" {
                measured.push_str(&format!(", {} of {}", self.lines_passed, self.lines));
            }
            let word = if check.passed { "ok" } else { "fail" };
            table.add_row([check.title().into(), measured.into(), limit.into(), output::state_cell(word)]);
        }
        table
    }
}

/// Parses a fraction such as 0.98.
pub(super) fn part(text: &str) -> Result<f64, String> {
    let part = text.parse::<f64>().ok().filter(|part| (0.0..=1.0).contains(part));
    part.ok_or_else(|| "must be from 0 to 1, e.g. 0.98".to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn measured(run_ms: impl IntoIterator<Item = u64>, failed: u64) -> Measured {
        let passed: BTreeMap<u64, u64> = (1..).zip(run_ms).collect();
        let next = passed.len() as u64 + 1;
        let others = (next..next + failed).map(|line| (line, "timeout: too slow".to_owned())).collect();
        Measured { passed, others, spent_usd_micros: 0 }
    }

    fn limits(min_success: f64, max_p95_ms: u64) -> Limits {
        Limits { min_success, max_p95_ms: Some(max_p95_ms), max_usd_micros_per_1000: None }
    }

    #[test]
    fn a_version_at_its_limits_is_good_enough_and_one_step_beyond_is_not() {
        let met = judge(&measured(1..=98, 2), &limits(0.98, 94));
        assert!(met.passed(), "{met:?}");
        assert_eq!((met.checks[0].measured, met.checks[1].measured), (Some(0.98), Some(94.0)));
        assert!(!judge(&measured(1..=97, 3), &limits(0.98, 94)).passed());
        let slow = judge(&measured(1..=98, 2), &limits(0.98, 93));
        assert_eq!(slow.failed(), "p95 of the run time 94 ms, at most 93 ms");
    }

    #[test]
    fn what_could_not_be_measured_meets_no_limit() {
        let none = judge(&measured([], 3), &limits(0.0, 1_000));
        assert_eq!(none.checks.iter().map(|check| check.passed).collect::<Vec<_>>(), [true, false]);
        assert!(!judge(&Measured::default(), &limits(0.0, 1)).passed(), "no line at all");
    }

    #[test]
    fn the_p95_is_one_that_was_measured() {
        for (count, expected) in [(1, 1), (2, 2), (19, 19), (20, 19), (21, 20), (100, 95)] {
            assert_eq!(measured((1..=count).rev(), 0).p95_ms(), Some(expected), "of {count}");
        }
    }

    #[test]
    fn the_first_lines_that_did_not_pass_are_told_and_the_others_counted() {
        let verdict = judge(&measured([5], 30), &limits(0.5, 10));
        assert_eq!((verdict.not_passed.len(), verdict.not_passed[0].line, verdict.left()), (20, 2, 10));
        let shown = verdict.table().trim_fmt();
        assert!(
            shown.contains("3.2 %, 1 of 31") && shown.contains("at least 50.0 %") && shown.contains("fail"),
            "{shown}"
        );
    }

    #[test]
    fn cost_is_of_1000_lines() {
        let mut cheap = measured([5; 100], 0);
        cheap.spent_usd_micros = 40_000;
        let limits = |micros| Limits { min_success: 1.0, max_p95_ms: None, max_usd_micros_per_1000: Some(micros) };
        assert!(judge(&cheap, &limits(400_000)).passed());
        assert_eq!(judge(&cheap, &limits(399_999)).checks[1].words()[0], "$0.40");
    }

    #[tokio::test]
    async fn both_files_of_a_batch_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let (results, errors) = (folder.path().join("r"), folder.path().join("e"));
        std::fs::write(&results, "{\"line\":2,\"custom_id\":null,\"job_id\":\"a\",\"result\":1,\"run_ms\":7}\n")
            .unwrap();
        let error =
            "{\"line\":1,\"job_id\":\"b\",\"state\":\"failed\",\"error\":{\"code\":\"rejected\",\"message\":\"no\"}}\n";
        std::fs::write(&errors, error).unwrap();
        let read = Measured::read(&results, &errors).await.unwrap();
        assert_eq!(
            (read.passed, read.others),
            (BTreeMap::from([(2, 7)]), BTreeMap::from([(1, "rejected: no".to_owned())]))
        );
    }

    #[test]
    fn a_part_is_between_nothing_and_all() {
        assert_eq!(part("0.98"), Ok(0.98));
        for wrong in ["98", "-0.1", "NaN", "most"] {
            assert!(part(wrong).is_err(), "{wrong}");
        }
    }
}
