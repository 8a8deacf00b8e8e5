//! `stoke endpoints delete` and `prune`: delete versions or a whole endpoint.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};
use stokehold_client::models::VersionList;

use super::traffic;
use crate::client::{Call, Client, decode, segment};
use crate::{Global, output};

/// Delete an endpoint with all its versions, or one version
///
/// Ended jobs are kept, with their results and costs. Without --force, anything with open jobs is not deleted. A
/// version that gets new jobs cannot be deleted without its endpoint. Numbers of deleted versions are not reused.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke endpoints delete greet@3   one version
  stoke endpoints delete greet     the endpoint with all versions")]
pub(super) struct DeleteArgs {
    /// Endpoint, or one version as NAME@VERSION
    name: String,
    /// Delete although others depend on it; cancel open jobs and batches, pause schedules
    #[arg(long)]
    force: bool,
}

/// Delete old versions of an endpoint that get no new jobs
///
/// The previous version is kept too, for `stoke endpoints rollback`. Versions with open jobs are not deleted.
#[derive(Args)]
pub(super) struct PruneArgs {
    /// Endpoint name
    name: String,
    /// Number of newest versions without new jobs to keep
    #[arg(long, default_value_t = 10)]
    keep: usize,
}

pub(super) async fn run(global: &Global, client: &Client, args: &DeleteArgs) -> Result<()> {
    let (name, version) = match args.name.split_once('@') {
        Some((name, version)) => (name, Some(version)),
        None => (&*args.name, None),
    };
    let done = delete(client, name, version, args.force).await?;
    if global.json {
        return output::json(&done);
    }
    output::line(format!("deleted {}", args.name))
}

pub(super) async fn prune(global: &Global, client: &Client, args: &PruneArgs) -> Result<()> {
    let traffic = traffic::of(client, &args.name).await?;
    let path = format!("/v1/endpoints/{}/versions", segment(&args.name));
    let VersionList { versions } = decode(&client.get(&path).await?)?;
    let has_use = |version: &u32| {
        traffic.previous == Some(*version) || traffic.versions.iter().any(|part| part.version == *version)
    };
    let numbers = versions.iter().map(|version| version.version);
    let old: Vec<u32> = numbers.filter(|version| !has_use(version)).skip(args.keep).collect();
    let (mut deleted, mut kept) = (Vec::new(), Vec::new());
    for version in old {
        match delete(client, &args.name, Some(&version.to_string()), false).await {
            Ok(_) => deleted.push(version),
            Err(error) => kept.push((version, format!("{error:#}"))),
        }
    }
    if global.json {
        let kept: Vec<Value> = kept.iter().map(|(version, why)| json!({"version": version, "why": why})).collect();
        return output::json(&json!({"deleted": deleted, "kept": kept}));
    }
    for (version, why) in &kept {
        output::line(format!("kept {}@{version}: {why}", args.name))?;
    }
    output::line(format!("deleted {} versions of {}", deleted.len(), args.name))
}

async fn delete(client: &Client, name: &str, version: Option<&str>, force: bool) -> Result<Value> {
    let mut path = format!("/v1/endpoints/{}", segment(name));
    if let Some(version) = version {
        path += &format!("/versions/{}", segment(version));
    }
    if force {
        path += "?force=true";
    }
    let call = Call { method: Method::DELETE, path: &path, body: None, headers: &[], hold: Duration::ZERO };
    Ok(client.call(&call).await?.1)
}
