//! `stoke endpoint delete` and `prune`: delete versions or a whole endpoint.

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use stokehold_client::models::VersionList;

use super::traffic;
use crate::client::{Client, Problem, decode, segment};
use crate::deletion::{self, DeletionArgs};
use crate::exit::{FAILED, Report};
use crate::failure::{Failure, Failures};
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
/// The previous version is kept too, for `stoke endpoint rollback`. A version in use is not deleted, and the command
/// then exits with status 1.
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
    let (mut deleted, mut kept, mut failures) = (Vec::new(), Vec::<Value>::new(), Failures::default());
    for version in &old {
        match deletion::unused(client, &path(&args.name, Some(*version))).await {
            Ok(()) => deleted.push(version),
            // Continue with the remaining versions.
            Err(error) => {
                let error = without_blame(error);
                kept.push(json!({"version": version, "why": Report::of(&error).message}));
                failures.add(format_args!("kept {}@{version}", args.name), &error);
            }
        }
    }
    if global.json {
        output::json(&json!({"deleted": deleted, "kept": kept}))?;
    } else {
        output::line(format_args!("deleted {} of {}", output::counted(deleted.len() as u64, "version"), args.name))?;
    }
    failures.end(old.len(), "version", "were not deleted")
}

/// A version that is in use is refused for its state, and not because the command is wrong.
fn without_blame(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<Problem>() {
        Some(problem) if problem.code == "in_use" => Failure::new("in_use", FAILED, error.to_string()).into(),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::sync::{Arc, Mutex};

    use axum::extract::Path;
    use axum::http::StatusCode;
    use axum::response::IntoResponse;
    use axum::routing::{delete, get};
    use axum::{Json, Router};

    use super::*;
    use crate::exit::NOT_ALLOWED;
    use crate::stub;

    /// Prunes an endpoint with the versions 1 to 6, of which 6 gets the jobs and 4 was current before. The API refuses
    /// some versions. Returns the versions that it was asked to delete, and the error.
    async fn pruned(
        keep: usize,
        refused: &'static [u32],
        status: u16,
        code: &'static str,
    ) -> (Vec<u32>, Option<Report>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        let answer = move |Path(version): Path<u32>| async move {
            seen.lock().unwrap().push(version);
            if !refused.contains(&version) {
                return Json(json!({"deleted": true, "dependents": [], "freed_bytes": 1})).into_response();
            }
            let problem = json!({"status": status, "code": code, "detail": format!("version {version} stays")});
            (StatusCode::from_u16(status).unwrap(), Json(problem)).into_response()
        };
        let versions: Vec<Value> = (1..=6).rev().map(|version| json!({"name": "greet", "version": version})).collect();
        let traffic = json!({"name": "greet", "previous": 4, "versions": [{"version": 6, "percent": 100}]});
        let routes = Router::new()
            .route("/v1/endpoints/greet/traffic", get(move || async move { Json(traffic) }))
            .route("/v1/endpoints/greet/versions", get(move || async move { Json(json!({"versions": versions})) }))
            .route("/v1/endpoints/greet/versions/{version}", delete(answer));
        let client = stub::serve(routes).await;
        let args = PruneArgs { name: "greet".to_owned(), keep };
        let error = prune(&Global::default(), &client, &args).await.err();
        let asked = asked.lock().unwrap().clone();
        (asked, error.map(|error| Report::of(&error)))
    }

    #[tokio::test]
    async fn old_versions_without_jobs_are_deleted() {
        assert_eq!(pruned(1, &[], 409, "in_use").await, (vec![3, 2, 1], None));
        assert_eq!(pruned(10, &[], 409, "in_use").await, (vec![], None));
    }

    #[tokio::test]
    async fn a_refusal_does_not_stop_the_others_and_is_a_failure() {
        let (asked, error) = pruned(1, &[2], 409, "in_use").await;
        let error = error.unwrap();
        assert_eq!((asked, &*error.message), (vec![3, 2, 1], "1 of 3 versions were not deleted"));
        assert_eq!(error.exit_code, FAILED);
        let all = pruned(1, &[1, 2, 3], 409, "in_use").await.1.unwrap();
        assert_eq!((&*all.code, all.exit_code), ("in_use", FAILED));
        let denied = pruned(1, &[1, 2, 3], 403, "forbidden").await.1.unwrap();
        assert_eq!((&*denied.code, denied.exit_code), ("forbidden", NOT_ALLOWED));
        assert!(denied.hint.unwrap().contains("stoke token create"));
    }
}
