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

/// Send new jobs back to the version before
#[derive(Args)]
pub(super) struct RollbackArgs {
    /// The endpoint
    name: String,
}

/// A version's part of new jobs.
#[derive(Deserialize)]
pub(crate) struct Part {
    pub(crate) version: u64,
    pub(crate) percent: u32,
}

pub(super) async fn run(global: &Global, client: &Client, args: &TrafficArgs) -> Result<()> {
    let shown = match args.version {
        Some(version) => set(client, &args.name, version.into(), args.percent).await?,
        None => client.get(&path(&args.name)).await?,
    };
    show(global, &shown)
}

/// A canary goes first; without one the version before the current one becomes the current one.
pub(super) async fn roll_back(global: &Global, client: &Client, args: &RollbackArgs) -> Result<()> {
    let parts = of(client, &args.name).await?;
    let current = parts.first().with_context(|| format!("{} gets no jobs", args.name))?.version;
    let target = if parts.len() > 1 { current } else { current - 1 };
    if target == 0 {
        bail!("{}@1 is its first version: there is none to go back to", args.name);
    }
    show(global, &set(client, &args.name, target, 100).await?)
}

/// The versions that get new jobs, the current one first.
pub(crate) async fn of(client: &Client, name: &str) -> Result<Vec<Part>> {
    let mut found = client.get(&path(name)).await?;
    serde_json::from_value(found["versions"].take()).context("the API gave no traffic")
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
