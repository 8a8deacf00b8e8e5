//! `stoke endpoints traffic` and `rollback`: which versions new jobs run on.

use anyhow::{Context, Result, bail};
use clap::Args;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

use crate::client::{Call, Client, segment};
use crate::{Global, output};

/// Show which versions get new jobs, or give a version a part of them
#[derive(Args)]
#[command(after_help = "Examples:
  stoke endpoints traffic greet              show it
  stoke endpoints traffic greet 7 --percent 10
  stoke endpoints traffic greet 7            all of them")]
pub(super) struct TrafficArgs {
    /// The endpoint
    name: String,
    /// The version that is to get jobs
    version: Option<u32>,
    /// The part of new jobs that it gets; the current version keeps the rest
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=100), requires = "version")]
    percent: u32,
}

/// Send new jobs back to the version that was current before
///
/// A version that is tried on a part of them loses those; without one, the current version makes way for the one before
/// it.
#[derive(Args)]
pub(super) struct RollbackArgs {
    /// The endpoint
    name: String,
}

/// Which versions get new jobs.
#[derive(Deserialize)]
pub(crate) struct Traffic {
    /// The current one first.
    pub(crate) versions: Vec<Part>,
    /// The one that was current before.
    pub(crate) previous: Option<u64>,
}

/// A version's part of new jobs.
#[derive(Deserialize)]
pub(crate) struct Part {
    pub(crate) version: u64,
    pub(crate) percent: u32,
}

impl Traffic {
    /// Who is to get what this version has: the current one instead of one that is tried, the one before instead of the current one.
    /// `None` where nobody is known, or it has nothing.
    pub(crate) fn without(&self, version: u64) -> Option<u64> {
        let current = self.versions.first()?.version;
        self.versions.iter().any(|part| part.version == version).then_some(())?;
        if version == current { self.previous } else { Some(current) }
    }
}

pub(super) async fn run(global: &Global, client: &Client, args: &TrafficArgs) -> Result<()> {
    let shown = match args.version {
        Some(version) => set(client, &args.name, version.into(), args.percent).await?,
        None => client.get(&path(&args.name)).await?,
    };
    show(global, &shown)
}

/// What is tried goes first; without that the version that was current before becomes the current one.
pub(super) async fn roll_back(global: &Global, client: &Client, args: &RollbackArgs) -> Result<()> {
    let (name, traffic) = (&args.name, of(client, &args.name).await?);
    let tried = traffic.versions.last().with_context(|| format!("{name} gets no jobs"))?.version;
    let Some(target) = traffic.without(tried) else {
        bail!(
            "nothing is known to have been current before {name}@{tried}; `stoke endpoints {name}` lists what there is, \
             and `stoke endpoints traffic {name} N` makes one current"
        );
    };
    show(global, &set(client, name, target, 100).await?)
}

/// The versions that get new jobs.
pub(crate) async fn of(client: &Client, name: &str) -> Result<Traffic> {
    serde_json::from_value(client.get(&path(name)).await?).context("the API gave no traffic")
}

/// Gives a version a part of new jobs, and the traffic as it is then.
pub(crate) async fn set(client: &Client, name: &str, version: u64, percent: u32) -> Result<Value> {
    let body = json!({"version": version, "percent": percent});
    let call = Call { method: Method::PUT, path: &path(name), body: Some(&body), headers: &[], hold: Duration::ZERO };
    Ok(client.call(&call).await?.1)
}

fn show(global: &Global, traffic: &Value) -> Result<()> {
    if global.json {
        return output::json(traffic);
    }
    for part in traffic["versions"].as_array().into_iter().flatten() {
        let (version, percent) = (output::cell(&part["version"]), output::cell(&part["percent"]));
        output::line(format_args!("{}@{version}  {percent} % of new jobs", output::cell(&traffic["name"])))?;
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
            let versions = has.iter().map(|version| Part { version: *version, percent: 50 }).collect();
            assert_eq!(Traffic { versions, previous }.without(version), expected, "{version} of {has:?}");
        }
    }
}
