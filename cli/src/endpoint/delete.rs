//! `stoke endpoint delete` and `prune`: delete versions or a whole endpoint.

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use stokehold_client::models::VersionList;

use super::traffic;
use crate::client::{Client, decode, segment};
use crate::deletion::{self, DeletionArgs};
use crate::submit::options::endpoint;
use crate::{Global, completions, output};

/// Delete an endpoint with all its versions, or one version
///
/// Ended jobs are kept, with their results and costs. Without --force, nothing that is in use is deleted. A version
/// that gets new jobs cannot be deleted without its endpoint. Numbers of deleted versions are not reused.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke endpoint delete greet@3           one version
  stoke endpoint delete greet             the endpoint with all versions
  stoke endpoint delete greet --dry-run   print what depends on it")]
pub(super) struct DeleteArgs {
    /// Endpoint, or one version as NAME@VERSION
    #[arg(value_name = "NAME[@VERSION]", add = completions::endpoints())]
    name: String,
    #[command(flatten)]
    deletion: DeletionArgs,
}

/// Delete old versions of an endpoint that get no new jobs
///
/// The previous version is kept too, for `stoke endpoint rollback`. Versions with open jobs are not deleted.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke endpoint prune greet
  stoke endpoint prune greet --keep 3")]
pub(super) struct PruneArgs {
    /// Endpoint name
    #[arg(add = completions::endpoints())]
    name: String,
    /// Number of newest versions without new jobs to keep
    #[arg(long, default_value_t = 10)]
    keep: usize,
}

pub(super) async fn run(global: &Global, client: &Client, args: &DeleteArgs) -> Result<()> {
    let (name, version) = endpoint(&args.name)?;
    let what = if version.is_some() { &args.name } else { &format!("endpoint {name} with all versions") };
    deletion::run(global, client, what, &path(&name, version), args.deletion).await
}

fn path(name: &str, version: Option<u32>) -> String {
    let endpoint = format!("/v1/endpoints/{}", segment(name));
    version.map_or(endpoint.clone(), |version| format!("{endpoint}/versions/{version}"))
}

pub(super) async fn prune(global: &Global, client: &Client, args: &PruneArgs) -> Result<()> {
    let traffic = traffic::of(client, &args.name).await?;
    let VersionList { versions } = decode(&client.get(&format!("{}/versions", path(&args.name, None))).await?)?;
    let has_use = |version: &u32| {
        traffic.previous == Some(*version) || traffic.versions.iter().any(|part| part.version == *version)
    };
    let numbers = versions.iter().map(|version| version.version);
    let old: Vec<u32> = numbers.filter(|version| !has_use(version)).skip(args.keep).collect();
    let (mut deleted, mut kept) = (Vec::new(), Vec::new());
    for version in old {
        match deletion::unused(client, &path(&args.name, Some(version))).await {
            Ok(()) => deleted.push(version),
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
