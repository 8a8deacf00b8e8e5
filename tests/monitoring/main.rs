//! The monitoring files of deploy/: rules that Prometheus tests, a runbook section for each, and boards whose every
//! query is sent to a real Prometheus that has scraped a running stack. No Grafana runs, so the rendering of the boards
//! is not tested.
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

mod boards;
mod prometheus;
mod rules;
mod scraped;

use std::fs;
use std::path::{Path, PathBuf};

/// The repository's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The metrics that a query names.
fn named(query: &str) -> Vec<String> {
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("stokehold_")).map(str::to_owned).collect()
}

/// Whether a metric is in docs/reference/metrics.md, which is written from the code.
fn is_documented(metric: &str, metrics: &str) -> bool {
    let names = ["", "_bucket", "_sum", "_count"].map(|suffix| metric.strip_suffix(suffix).unwrap_or(metric));
    names.iter().any(|name| metrics.contains(&format!("| `{name}` |")))
}
