//! Results of attacks, counted by attack and added up by surface and level.

use std::fmt::Write as _;

/// The promise about an attack at a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Promise {
    /// No attempt succeeds.
    Holds,
    /// Nothing is promised, and some attempt must succeed: this shows that the attack works without protection.
    Open,
}

/// Result of one attack.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    attempted: usize,
    /// What each successful attempt obtained.
    got: Vec<String>,
}

impl Outcome {
    /// Counts an attempt, and what it obtained if it succeeded.
    pub(crate) fn tried(&mut self, got: Option<String>) {
        self.attempted += 1;
        self.got.extend(got);
    }

    /// Counts an attempt that succeeded if `is_open`.
    pub(crate) fn open_if(&mut self, is_open: bool, what: impl FnOnce() -> String) {
        self.tried(is_open.then(what));
    }

    /// The result of several attempts.
    pub(crate) fn counted(attempted: usize, got: Vec<String>) -> Self {
        Self { attempted, got }
    }
}

/// The result of an attack at a level.
struct Line {
    surface: &'static str,
    level: String,
    promise: Promise,
    attempted: usize,
    got: usize,
    failed: bool,
}

/// Results of a whole run.
#[derive(Default)]
pub(crate) struct Report {
    lines: Vec<Line>,
    /// Surface, level and the reason why nothing was attempted there.
    skipped: Vec<(&'static str, String, String)>,
    /// Attacks that should have been attempted and could not be.
    broken: Vec<String>,
}

impl Report {
    /// Records the result of an attack, and prints it.
    pub(crate) fn note(
        &mut self,
        surface: &'static str,
        level: &str,
        promise: Promise,
        attack: &str,
        outcome: &Outcome,
    ) {
        let Outcome { attempted, got } = outcome;
        let failed = match promise {
            Promise::Holds => *attempted == 0 || !got.is_empty(),
            Promise::Open => got.is_empty(),
        };
        let held = attempted - got.len().min(*attempted);
        let verdict = match (promise, failed) {
            (Promise::Holds, false) => "held",
            (Promise::Open, false) => "open, as documented",
            (Promise::Holds, true) => "SUCCEEDED",
            (Promise::Open, true) => "HAS NO EFFECT WHERE NOTHING STOPS IT",
        };
        println!("{surface} {level}: {attack}: {attempted} attempted, {held} held: {verdict}");
        if failed {
            for got in got.iter().take(20) {
                println!("    {}", got.escape_debug());
            }
        }
        let (level, attempted, got) = (level.to_owned(), *attempted, got.len());
        self.lines.push(Line { surface, level, promise, attempted, got, failed });
    }

    /// Adds the results of another part of the run.
    pub(crate) fn add(&mut self, other: Self) {
        let Self { lines, skipped, broken } = other;
        self.lines.extend(lines);
        self.skipped.extend(skipped);
        self.broken.extend(broken);
    }

    /// Records that nothing could be attempted, and why.
    pub(crate) fn skip(&mut self, surface: &'static str, level: &str, why: &str) {
        println!("{surface} {level}: SKIPPED: {why}");
        self.skipped.push((surface, level.to_owned(), why.to_owned()));
    }

    /// Records that attacks ended before all of them were attempted.
    pub(crate) fn broke(&mut self, surface: &str) {
        println!("{surface}: BROKEN: it ended before all attacks were tried");
        self.broken.push(surface.to_owned());
    }

    /// Whether no promise was broken and every attack was attempted.
    pub(crate) fn is_good(&self) -> bool {
        self.broken.is_empty() && self.lines.iter().all(|line| !line.failed)
    }

    /// Table of surfaces by level: numbers of attempts that were made and that failed as promised.
    pub(crate) fn table(&self) -> String {
        let mut table = format!(
            "{:<12} {:<24} {:>7} {:>9} {:>9} {:>9}  result\n",
            "surface", "level", "attacks", "attempted", "held", "succeeded"
        );
        let mut rows: Vec<(&str, &str, Promise)> = Vec::new();
        for line in &self.lines {
            let row = (line.surface, line.level.as_str(), line.promise);
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
        for (surface, level, promise) in rows {
            let of = || {
                self.lines.iter().filter(move |l| (l.surface, l.level.as_str(), l.promise) == (surface, level, promise))
            };
            let (attempted, got) =
                (of().map(|line| line.attempted).sum::<usize>(), of().map(|line| line.got).sum::<usize>());
            let result = match (promise, of().any(|line| line.failed)) {
                (Promise::Holds, false) => "held",
                (Promise::Open, false) => "not promised",
                (_, true) => "FAILED",
            };
            let (attacks, held) = (of().count(), attempted - got.min(attempted));
            let _ =
                writeln!(table, "{surface:<12} {level:<24} {attacks:>7} {attempted:>9} {held:>9} {got:>9}  {result}");
        }
        for (surface, level, why) in &self.skipped {
            let _ = writeln!(
                table,
                "{surface:<12} {level:<24} {:>7} {:>9} {:>9} {:>9}  skipped: {why}",
                "-", "-", "-", "-"
            );
        }
        for surface in &self.broken {
            let _ = writeln!(table, "{surface:<12} ended before all attacks were tried");
        }
        table
    }

    /// Totals in the format of test programs, which `tests/run.sh` adds up. An attack at a level is a test.
    pub(crate) fn totals(&self) -> String {
        let failed = self.lines.iter().filter(|line| line.failed).count() + self.broken.len();
        let passed = self.lines.iter().filter(|line| !line.failed).count();
        let word = if failed == 0 { "ok" } else { "FAILED" };
        format!("test result: {word}. {passed} passed; {failed} failed; {} ignored", self.skipped.len())
    }
}
