//! `stoke limit`.

mod change;
mod show;

use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::Value;
use stokehold_client::models::{LimitsShown, OwnLimits};

use self::change::{Change, ENDPOINT_FIELDS, TENANT_FIELDS};
use crate::client::{Call, Client, decode, segment};
use crate::failure::require;
use crate::{Global, output};

/// Show and set the limits of tenants
#[derive(Args)]
#[command(after_help = "Examples:
  stoke limit get
  stoke limit set acme --weight 2 --max-running 50
  stoke limit set acme --budget-usd-per-day 5 --at-budget drain")]
pub(crate) struct LimitArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Get(GetArgs),
    Set(Box<SetArgs>),
}

/// Show your limits and usage, or the limits of a tenant
#[derive(Args)]
#[command(after_help = "Examples:
  stoke limit get
  stoke limit get acme --endpoint render")]
struct GetArgs {
    /// Tenant (operator only) [default: yours]
    tenant: Option<String>,
    /// Limits at this endpoint only
    #[arg(long)]
    endpoint: Option<String>,
}

/// Set limits of a tenant; limits that are not given stay (operator only)
#[derive(Args)]
#[command(after_help = "Examples:
  stoke limit set acme --weight 2 --max-running 50
  stoke limit set acme --endpoint render --starts-per-minute 60 --clear max-open
  stoke limit set acme --budget-usd-per-day 5 --at-budget drain
  stoke limit set acme --requests-per-minute 600 --max-storage 50GiB")]
struct SetArgs {
    /// Tenant
    tenant: String,
    /// Limits at this endpoint only
    #[arg(long)]
    endpoint: Option<String>,
    #[command(flatten)]
    change: Change,
}

pub(crate) async fn run(global: &Global, args: LimitArgs) -> Result<()> {
    let client = Client::connect(global)?;
    match args.verb {
        Verb::Get(GetArgs { tenant: None, endpoint }) => own(global, &client, endpoint.as_deref()).await,
        Verb::Get(GetArgs { tenant: Some(tenant), endpoint }) => {
            let limits = client.get(&path(&tenant, endpoint.as_deref())).await?;
            show_one(global, &tenant, endpoint.as_deref(), &limits)
        }
        Verb::Set(args) => set(global, &client, &args).await,
    }
}

/// The path of a tenant's limits.
fn path(tenant: &str, endpoint: Option<&str>) -> String {
    match endpoint {
        Some(endpoint) => format!("/v1/limits/{}/endpoints/{}", segment(tenant), segment(endpoint)),
        None => format!("/v1/limits/{}", segment(tenant)),
    }
}

async fn set(global: &Global, client: &Client, SetArgs { tenant, endpoint, change }: &SetArgs) -> Result<()> {
    require!(change.is_some(), "no limit given, e.g. --max-running 50 or --clear max-open");
    let (path, fields) =
        (path(tenant, endpoint.as_deref()), if endpoint.is_some() { ENDPOINT_FIELDS } else { TENANT_FIELDS });
    let limits = client.get(&path).await?;
    let limits = put(client, &path, &change.apply(&limits, fields)?).await?;
    show_one(global, tenant, endpoint.as_deref(), &limits)
}

fn show_one(global: &Global, tenant: &str, endpoint: Option<&str>, limits: &Value) -> Result<()> {
    if global.json {
        return output::json(limits);
    }
    let LimitsShown { budget, .. } = decode(limits)?;
    if let Some(spent) = budget.as_ref().and_then(show::spent) {
        output::note(spent);
    }
    let name = endpoint.map_or(tenant.to_owned(), |endpoint| format!("{tenant} at {endpoint}"));
    let mut table = show::headings();
    show::add(&mut table, &name, &decode(limits)?, budget.as_ref());
    output::line(table.trim_fmt())
}

async fn put(client: &Client, path: &str, limits: &Value) -> Result<Value> {
    let call = Call { method: Method::PUT, path, body: Some(limits), headers: &[], hold: Duration::ZERO };
    let (_, set) = client.call(&call).await?;
    Ok(if set.is_null() { limits.clone() } else { set })
}

async fn own(global: &Global, client: &Client, endpoint: Option<&str>) -> Result<()> {
    let mut found = client.get("/v1/limits").await?;
    if let Some(endpoint) = endpoint
        && let Some(endpoints) = found["endpoints"].as_object_mut()
    {
        endpoints.retain(|name, _| name == endpoint);
    }
    if global.json {
        return output::json(&found);
    }
    let found: OwnLimits = decode(&found)?;
    output::line(show::table(&found).trim_fmt())?;
    let usage = &found.usage;
    let (running, open) = (output::counted(usage.running, "job"), output::count(usage.open));
    output::line(format_args!("\n{running} running, {open} not ended"))?;
    if let Some(held) = usage.memory_bytes {
        output::line(format_args!("{} of queue memory in use, including ended jobs", output::bytes(held)))?;
    }
    match usage.storage_bytes {
        Some(stored) => output::line(format_args!("{} of storage in use", output::bytes(stored))),
        None => Ok(()),
    }
}
