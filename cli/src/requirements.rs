//! `stoke requirements`: the requirement sets of deployed versions.

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use serde::Deserialize;

use crate::client::{Client, segment};
use crate::deletion::{self, DeletionArgs};
use crate::{Global, output};

const SETS: &str = "/v1/requirement-sets";

/// List and delete requirement sets
///
/// A requirement set is the locked list of Python packages that a deploy stores. Versions with the same list share one.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke requirements list
  stoke requirements delete 0123456789abcdef --dry-run")]
pub(crate) struct RequirementsArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List requirement sets, with their size and the versions that use them
    #[command(after_help = "Examples:\n  stoke requirements list")]
    List,
    Delete(DeleteArgs),
}

/// Delete a requirement set
///
/// Without --force, a set that a version uses is not deleted.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke requirements delete 0123456789abcdef
  stoke requirements delete 0123456789abcdef --dry-run")]
struct DeleteArgs {
    /// Id of the set, from `stoke requirements list`
    id: String,
    #[command(flatten)]
    deletion: DeletionArgs,
}

/// The members of the API's list that the table shows. The API may leave some out.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Sets {
    #[serde(alias = "sets")]
    requirement_sets: Vec<Set>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Set {
    id: String,
    size_bytes: Option<u64>,
    created_at: Option<String>,
    #[serde(alias = "used_by")]
    versions: Vec<String>,
}

pub(crate) async fn run(global: &Global, args: RequirementsArgs) -> Result<()> {
    let client = Client::connect(global)?;
    match args.verb {
        Verb::List => {
            let found = client.get(SETS).await?;
            if global.json {
                return output::json(&found);
            }
            let Sets { requirement_sets } =
                Sets::deserialize(&found).context("the API's response is not a list of requirement sets")?;
            let mut table = output::table(["requirement set", "size", "created", "used by"]);
            for set in requirement_sets {
                let versions: Vec<String> = set.versions.iter().map(|version| output::text(version.as_str())).collect();
                table.add_row([
                    output::text(set.id.as_str()),
                    set.size_bytes.map_or("-".to_owned(), output::bytes),
                    output::ago(set.created_at.as_deref()),
                    output::text(versions.join(" ").as_str()),
                ]);
            }
            output::print_table(&table, "no requirement sets; `stoke deploy` stores one per list of packages")
        }
        Verb::Delete(args) => {
            let path = format!("{SETS}/{}", segment(&args.id));
            deletion::run(global, &client, &format!("requirement set {}", args.id), &path, args.deletion).await
        }
    }
}
