//! `stoke tenant` (operator only).

use anyhow::Result;
use clap::{Args, Subcommand};
use reqwest::StatusCode;
use stokehold_client::models::{Tenant, TenantList, TenantRequest};

use crate::client::{Client, decode, segment};
use crate::{Global, output};

const TENANTS: &str = "/v1/tenants";

/// Create, list, disable and enable tenants (operator only)
///
/// Tenants cannot be deleted, because their history is kept. The tokens of a disabled tenant are refused, and none of
/// its jobs start.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke tenant create acme
  stoke token create --tenant acme --role admin --name ann --token \"$STOKE_TOKEN\"
  stoke limit set acme --max-open 10000 --requests-per-minute 600 --max-storage 50GiB
  stoke tenant disable acme")]
pub(crate) struct TenantArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Create a tenant, without tokens
    #[command(after_help = "Examples:\n  stoke tenant create acme")]
    Create {
        /// Tenant name: 1 to 63 characters of a-z, 0-9 and -
        name: String,
    },
    /// List tenants with their number of open jobs
    #[command(after_help = "Examples:\n  stoke tenant list")]
    List,
    /// Disable a tenant: refuse its tokens (within 5 s) and start no more jobs; running jobs finish
    #[command(after_help = "Examples:\n  stoke tenant disable acme")]
    Disable {
        /// Tenant name
        name: String,
    },
    /// Enable a disabled tenant; its waiting jobs continue
    #[command(after_help = "Examples:\n  stoke tenant enable acme")]
    Enable {
        /// Tenant name
        name: String,
    },
}

pub(crate) async fn run(global: &Global, args: TenantArgs) -> Result<()> {
    let client = Client::connect(global)?;
    match args.verb {
        Verb::Create { name } => {
            let request = serde_json::to_value(TenantRequest { name: name.clone() })?;
            let (status, tenant) = client.post(TENANTS, Some(&request)).await?;
            if global.json {
                return output::json(&tenant);
            }
            let what = if status == StatusCode::CREATED { "created" } else { "already exists" };
            output::line(format_args!("tenant {name} {what}"))?;
            output::note(format_args!(
                "create its first token with `stoke token create --tenant {name} --role admin --name NAME`"
            ));
            Ok(())
        }
        Verb::List => {
            let found = client.get(TENANTS).await?;
            if global.json {
                return output::json(&found);
            }
            list(&decode(&found)?)
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
    let open = output::counted(decode::<Tenant>(&tenant)?.open_jobs, "open job");
    match verb {
        "disable" => output::line(format_args!("disabled tenant {name}; it has {open}, and starts no more")),
        _ => output::line(format_args!("enabled tenant {name}; it continues with {open}")),
    }
}

fn list(TenantList { tenants }: &TenantList) -> Result<()> {
    let mut table = output::table(["tenant", "created", "open jobs", "disabled"]);
    for tenant in tenants {
        table.add_row([
            output::text(tenant.name.as_str()),
            output::ago(tenant.created_at.as_deref()),
            output::count(tenant.open_jobs),
            output::ago(tenant.disabled_at.as_deref()),
        ]);
    }
    output::print_table(&table, "no tenants; create one with `stoke tenant create NAME`")
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
