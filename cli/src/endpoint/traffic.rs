//! `stoke endpoint traffic` and `rollback`: split of new jobs between versions.

use anyhow::{Context, Result};
use clap::Args;
use reqwest::Method;
use serde_json::Value;
use std::time::Duration;
use stokehold_client::models::{Traffic, TrafficPart, TrafficRequest};

use crate::client::{Call, Client, decode, segment};
use crate::failure::usage;
use crate::submit::options::endpoint;
use crate::{Global, completions, output};

/// Show or change the percentage of new jobs that each version gets
#[derive(Args)]
#[command(after_help = "Examples:
  stoke endpoint traffic greet                show the current split
  stoke endpoint traffic greet@7 --percent 10
  stoke endpoint traffic greet@7              send all new jobs to version 7")]
pub(super) struct TrafficArgs {
    /// Endpoint, or the version to change as NAME@VERSION
    #[arg(value_name = "NAME[@VERSION]", add = completions::endpoints())]
    name: String,
    /// Percentage of new jobs for the version; the current version keeps the rest [default: 100]
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=100))]
    percent: Option<u32>,
}

/// Send new jobs back to the previous version
///
/// If a version gets a percentage of new jobs, it gets none any more. Otherwise the current version is replaced by the
/// previous one.
#[derive(Args)]
#[command(after_help = "Examples:\n  stoke endpoint rollback greet")]
pub(super) struct RollbackArgs {
    /// Endpoint name
    #[arg(add = completions::endpoints())]
    name: String,
}

/// The version that should get the new jobs of `version`: the current version if `version` is a canary, the previous one
/// if it is current. `None` if there is no such version, or if `version` gets no jobs.
pub(crate) fn without(traffic: &Traffic, version: u32) -> Option<u32> {
    // The current version is the first.
    let current = traffic.versions.first()?.version;
    traffic.versions.iter().any(|part| part.version == version).then_some(())?;
    if version == current { traffic.previous } else { Some(current) }
}

pub(super) async fn run(global: &Global, client: &Client, args: &TrafficArgs) -> Result<()> {
    let (name, version) = endpoint(&args.name)?;
    let shown = match (version, args.percent) {
        (Some(version), percent) => set(client, &name, version, percent.unwrap_or(100)).await?,
        (None, None) => client.get(&path(&name)).await?,
        (None, Some(percent)) => {
            usage!("--percent needs a version, e.g. `stoke endpoint traffic {name}@2 --percent {percent}`");
        }
    };
    show(global, &shown)
}

/// Rolls back the canary if there is one, else the current version.
pub(super) async fn roll_back(global: &Global, client: &Client, args: &RollbackArgs) -> Result<()> {
    let (name, traffic) = (&args.name, of(client, &args.name).await?);
    let tried = traffic.versions.last().with_context(|| format!("{name} gets no jobs"))?.version;
    let Some(target) = without(&traffic, tried) else {
        usage!(
            "no version was current before {name}@{tried}; list the versions with `stoke endpoint get {name}` \
             and choose one with `stoke endpoint traffic {name}@N`"
        );
    };
    show(global, &set(client, name, target, 100).await?)
}

/// Fetches the split of an endpoint.
pub(crate) async fn of(client: &Client, name: &str) -> Result<Traffic> {
    decode(&client.get(&path(name)).await?)
}

/// Gives a version a percentage of new jobs. Returns the new split.
pub(crate) async fn set(client: &Client, name: &str, version: u32, percent: u32) -> Result<Value> {
    let body = serde_json::to_value(TrafficRequest { version, percent: Some(percent) })?;
    let call = Call { method: Method::PUT, path: &path(name), body: Some(&body), headers: &[], hold: Duration::ZERO };
    Ok(client.call(&call).await?.1)
}

fn show(global: &Global, traffic: &Value) -> Result<()> {
    if global.json {
        return output::json(traffic);
    }
    let traffic: Traffic = decode(traffic)?;
    lines(&output::text(traffic.name.as_str()), &traffic)
}

/// Prints the split: one line per version that gets new jobs.
pub(crate) fn lines(name: &str, traffic: &Traffic) -> Result<()> {
    for TrafficPart { version, percent } in &traffic.versions {
        output::line(format_args!("{name}@{version}  {percent} % of new jobs"))?;
    }
    Ok(())
}

fn path(name: &str) -> String {
    format!("/v1/endpoints/{}/traffic", segment(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_gives_its_jobs_back_to_the_one_that_had_them() {
        for (has, previous, version, expected) in [
            (&[7, 8][..], None, 8, Some(7)),
            (&[8], Some(5), 8, Some(5)),
            (&[8, 9], Some(5), 8, Some(5)),
            (&[8, 9], Some(5), 9, Some(8)),
            (&[8], None, 8, None),
            (&[7], Some(5), 8, None),
            (&[], None, 1, None),
        ] {
            let versions = has.iter().map(|version| TrafficPart { version: *version, percent: 50 }).collect();
            let traffic = Traffic { versions, previous, ..Traffic::default() };
            assert_eq!(without(&traffic, version), expected, "{version} of {has:?}");
        }
    }
}
