//! `stoke requirements`: the requirement sets of deployed versions.

use anyhow::Result;
use clap::{Args, Subcommand};
use stokehold_client::models::{RequirementSet, RequirementSetList, Requirements};

use crate::client::{Client, decode, segment};
use crate::deletion::{self, DeletionArgs};
use crate::{Global, output};

const SETS: &str = "/v1/requirement-sets";

/// List and delete requirement sets
///
/// A requirement set is all that a version requires of workers besides memory, e.g. GPU models or regions. Versions with
/// the same requirements share one.
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
    /// List requirement sets, with the versions that use them
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

pub(crate) async fn run(global: &Global, args: RequirementsArgs) -> Result<()> {
    let client = Client::connect(global)?;
    match args.verb {
        Verb::List => {
            let found = client.get(SETS).await?;
            if global.json {
                return output::json(&found);
            }
            let sets = decode::<RequirementSetList>(&found)?.requirement_sets;
            let mut table =
                output::table(["requirement set", "requires", "used by"]).wrapping(&["requires", "used by"]);
            for RequirementSet { id, demands, versions } in sets {
                let versions: Vec<String> = versions.iter().map(|version| output::text(version.as_str())).collect();
                table.add_row([
                    output::text(id.as_str()),
                    output::text(describe(&demands).as_str()),
                    output::text(versions.join(" ").as_str()),
                ]);
            }
            output::print_table(&table, "no requirement sets: no version requires more than memory")
        }
        Verb::Delete(args) => {
            let path = format!("{SETS}/{}", segment(&args.id));
            deletion::run(global, &client, &format!("requirement set {}", args.id), &path, args.deletion).await
        }
    }
}

/// The requirements, in short.
fn describe(requirements: &Requirements) -> String {
    let Requirements { gpu_models, gpus, min_compute_capability, min_cuda, min_sandbox, min_trust, regions } =
        requirements;
    let one_of =
        |list: &Option<Vec<String>>| list.as_ref().filter(|list| !list.is_empty()).map(|list| list.join(" or "));
    let parts = [
        one_of(gpu_models),
        gpus.map(|gpus| output::counted(gpus.into(), "GPU")),
        min_compute_capability.as_ref().map(|least| format!("compute capability {least}")),
        min_cuda.as_ref().map(|least| format!("CUDA {least}")),
        min_sandbox.as_ref().map(|least| format!("sandbox {least}")),
        min_trust.as_ref().map(|least| format!("trust {least}")),
        one_of(regions).map(|regions| format!("region {regions}")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn requirements_are_shown_in_short() {
        let sets = json!({"limit": 50, "requirement_sets": [{"id": "00ff", "versions": ["greet@1"],
            "demands": {"gpu_models": ["RTX 4090", "L40S"], "gpus": 2, "min_trust": "owned", "regions": ["eu"]}}]});
        let RequirementSetList { requirement_sets, .. } = decode(&sets).unwrap();
        assert_eq!(describe(&requirement_sets[0].demands), "RTX 4090 or L40S, 2 GPUs, trust owned, region eu");
        assert_eq!(describe(&Requirements::default()), "");
    }
}
