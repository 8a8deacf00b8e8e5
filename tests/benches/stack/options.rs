//! Options of a run, from environment variables, because `cargo bench` passes its own arguments to a harness.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};

/// The parts of a run. Parts of a round are repeated and their medians taken; the others run once.
pub(crate) const PARTS: [&str; 6] = ["submit", "drain", "round_trip", "crash", "depth", "width"];

pub(crate) struct Options {
    /// `BENCH_ONLY`: the parts to run; default: all.
    parts: BTreeSet<String>,
    /// `BENCH_SYSTEMS`: the systems to measure; default: all.
    systems: BTreeSet<String>,
    /// `BENCH_ROUNDS`: number of rounds; default: 5.
    pub(crate) rounds: usize,
    /// `BENCH_JSON`: a file for the results.
    pub(crate) json: Option<PathBuf>,
}

impl Options {
    pub(crate) fn from_env(known_systems: &[&str]) -> anyhow::Result<Self> {
        let text = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let list = |name: &str, known: &[&str]| -> anyhow::Result<BTreeSet<String>> {
            let Some(value) = text(name) else { return Ok(known.iter().map(|&name| name.to_owned()).collect()) };
            let wanted: BTreeSet<String> = value.split(',').map(|part| part.trim().to_owned()).collect();
            let unknown: Vec<_> = wanted.iter().filter(|wanted| !known.contains(&wanted.as_str())).collect();
            ensure!(unknown.is_empty(), "{name} names {unknown:?}; there are {known:?}");
            Ok(wanted)
        };
        let rounds = text("BENCH_ROUNDS").map_or(Ok(5), |value| value.parse()).context("BENCH_ROUNDS is no number")?;
        ensure!((1..=100).contains(&rounds), "BENCH_ROUNDS is {rounds}, not 1 to 100");
        Ok(Self {
            parts: list("BENCH_ONLY", &PARTS)?,
            systems: list("BENCH_SYSTEMS", known_systems)?,
            rounds,
            json: text("BENCH_JSON").map(PathBuf::from),
        })
    }

    pub(crate) fn part(&self, name: &str) -> bool {
        self.parts.contains(name)
    }

    pub(crate) fn system(&self, name: &str) -> bool {
        self.systems.contains(name)
    }
}
