//! `stoke tenant`: for operators.

use anyhow::Result;
use clap::{Args, Subcommand};
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::client::{Client, segment};
use crate::{Global, output};

const TENANTS: &str = "/v1/tenants";

/// Make, list, disable and enable tenants (for operators)
///
/// A tenant is never deleted, for what it did is history: it is disabled, and then nobody of it is served and none of
/// its jobs starts.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke tenant create acme
  stoke token create --tenant acme --role admin --name ann --token \"$STOKE_TOKEN\"
  stoke limits acme --max-open 10000 --requests-per-minute 600 --max-storage 50GiB
  stoke tenant disable acme")]
pub(crate) struct TenantArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make a tenant; it has no tokens yet
    Create {
        /// 1 to 63 of a-z, 0-9 and -
        name: String,
    },
    /// List tenants, with their jobs that have not ended
    List,
    /// Refuse a tenant's tokens within 5 seconds, and start none of its jobs; those that run end
    Disable {
        /// Its name
        name: String,
    },
    /// Serve a tenant again; its jobs that waited go on
    Enable {
        /// Its name
        name: String,
    },
}

pub(crate) async fn run(global: &Global, args: TenantArgs) -> Result<()> {
    let client = Client::connect(global)?;
    match args.verb {
        Verb::Create { name } => {
            let (status, tenant) = client.post(TENANTS, Some(&json!({"name": name}))).await?;
            if global.json {
                return output::json(&tenant);
            }
            let what = if status == StatusCode::CREATED { "is there now" } else { "was there already" };
            output::line(format_args!("tenant {name} {what}"))?;
            output::note(format_args!(
                "`stoke token create --tenant {name} --role admin --name NAME` makes its first token"
            ));
            Ok(())
        }
        Verb::List => {
            let found = client.get(TENANTS).await?;
            if global.json {
                return output::json(&found);
            }
            list(&found)
        }
        Verb::Disable { name } => switch(global, &client, &name, "disable").await,
        Verb::Enable { name } => switch(global, &client, &name, "enable").await,
    }
}

async fn switch(global: &Global, client: &Client, name: &str, verb: &str) -> Result<()> {
    let (_, tenant) = client.post(&format!("{TENANTS}/{}/{verb}", segment(name)), None).await?;
    if global.json {
        return output::json(&tenant);
    }
    let open = output::count(tenant["open_jobs"].as_u64().unwrap_or_default());
    match verb {
        "disable" => output::line(format_args!(
            "tenant {name} is disabled; {open} of its jobs have not ended, and none more starts"
        )),
        _ => output::line(format_args!("tenant {name} is enabled; {open} of its jobs go on")),
    }
}

fn list(found: &Value) -> Result<()> {
    let mut table = output::table(["tenant", "made", "open jobs", "disabled"]);
    for tenant in found["tenants"].as_array().into_iter().flatten() {
        let since = |at: &Value| if at.is_null() { "-".to_owned() } else { output::ago(at) };
        table.add_row([
            output::cell(&tenant["name"]),
            since(&tenant["created_at"]),
            output::count(tenant["open_jobs"].as_u64().unwrap_or_default()),
            since(&tenant["disabled_at"]),
        ]);
    }
    output::print_table(&table, "there are no tenants; `stoke tenant create NAME` makes one")
}

#[cfg(test)]
mod tests {
    use crate::stub::parse;

    #[test]
    fn every_verb_parses_and_none_deletes() {
        for line in ["create acme", "list", "disable acme", "enable acme"] {
            assert!(parse(&format!("tenant {line}")).is_ok(), "{line}");
        }
        assert!(parse("tenant delete acme").is_err());
    }
}
