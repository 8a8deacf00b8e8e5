//! `stoke limits`.

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use comfy_table::Table;
use reqwest::Method;
use serde_json::{Map, Value, json};
use std::time::Duration;

use crate::client::{Call, Client, segment};
use crate::{Global, output};

/// Show what a tenant may take at once, or set it
#[derive(Args)]
#[command(after_help = "Examples:
  stoke limits                                        your own, and what you use of them
  stoke limits acme --weight 2 --max-running 50
  stoke limits acme --endpoint render --starts-per-minute 60 --clear max-open")]
pub(crate) struct LimitsArgs {
    /// Whose: for operators [default: your own]
    tenant: Option<String>,
    /// At this endpoint only
    #[arg(long)]
    endpoint: Option<String>,
    #[command(flatten)]
    change: Change,
}

#[derive(Args, Debug, Default)]
struct Change {
    /// Its share when several tenants wait, 0.01 to 1000: with 2, twice that of one with 1
    #[arg(long, value_name = "W", conflicts_with = "endpoint")]
    weight: Option<f64>,
    /// Jobs that run at once
    #[arg(long, value_name = "N")]
    max_running: Option<u64>,
    /// Jobs that have not ended
    #[arg(long, value_name = "N")]
    max_open: Option<u64>,
    /// Jobs that start within a minute
    #[arg(long, value_name = "N")]
    starts_per_minute: Option<u64>,
    /// Lift this limit; may be repeated
    #[arg(long, value_name = "FIELD", value_enum)]
    clear: Vec<Field>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Field {
    Weight,
    // As the option is written, and as JSON has it.
    #[value(alias = "max_running")]
    MaxRunning,
    #[value(alias = "max_open")]
    MaxOpen,
    #[value(alias = "starts_per_minute")]
    StartsPerMinute,
}

/// A tenant's, and an endpoint's: whoever has none of an endpoint's own is held by the tenant's.
const TENANT_FIELDS: &[Field] = &[Field::Weight, Field::MaxRunning, Field::MaxOpen, Field::StartsPerMinute];
const ENDPOINT_FIELDS: &[Field] = &[Field::MaxRunning, Field::MaxOpen, Field::StartsPerMinute];

impl Field {
    fn name(self) -> &'static str {
        match self {
            Self::Weight => "weight",
            Self::MaxRunning => "max_running",
            Self::MaxOpen => "max_open",
            Self::StartsPerMinute => "starts_per_minute",
        }
    }
}

impl Change {
    fn is_some(&self) -> bool {
        !self.clear.is_empty() || TENANT_FIELDS.iter().any(|field| self.given(*field).is_some())
    }

    fn given(&self, field: Field) -> Option<Value> {
        match field {
            Field::Weight => self.weight.map(Value::from),
            Field::MaxRunning => self.max_running.map(Value::from),
            Field::MaxOpen => self.max_open.map(Value::from),
            Field::StartsPerMinute => self.starts_per_minute.map(Value::from),
        }
    }

    /// What is there, with what was given: the API takes all of it at once.
    fn apply(&self, there: &Value, fields: &[Field]) -> Result<Value> {
        let mut limits = Map::new();
        for field in &self.clear {
            ensure!(fields.contains(field), "an endpoint has no {} of its own to clear", field.name());
            ensure!(self.given(*field).is_none(), "{} is both given and cleared", field.name());
        }
        for field in fields {
            let value = match (self.given(*field), self.clear.contains(field), field) {
                (Some(given), ..) => given,
                // It always has one.
                (None, true, Field::Weight) => json!(1),
                (None, true, _) => Value::Null,
                (None, false, _) => there[field.name()].clone(),
            };
            if *field != Field::Weight || !value.is_null() {
                limits.insert(field.name().to_owned(), value);
            }
        }
        Ok(limits.into())
    }
}

pub(crate) async fn run(global: &Global, args: LimitsArgs) -> Result<()> {
    let client = Client::connect(global)?;
    let Some(tenant) = &args.tenant else {
        ensure!(!args.change.is_some(), "say whose limits to set, as in `stoke limits TENANT --max-running 50`");
        return own(global, &client, args.endpoint.as_deref()).await;
    };
    let (path, fields) = match &args.endpoint {
        Some(endpoint) => (format!("/v1/limits/{}/endpoints/{}", segment(tenant), segment(endpoint)), ENDPOINT_FIELDS),
        None => (format!("/v1/limits/{}", segment(tenant)), TENANT_FIELDS),
    };
    let mut limits = client.get(&path).await?;
    if args.change.is_some() {
        limits = put(&client, &path, &args.change.apply(&limits, fields)?).await?;
    }
    if global.json {
        return output::json(&limits);
    }
    let name = args.endpoint.as_ref().map_or(tenant.clone(), |endpoint| format!("{tenant} at {endpoint}"));
    let mut table = headings();
    add(&mut table, &name, &limits);
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
    output::line(table(&found).trim_fmt())?;
    let used = |name: &str| output::count(found["usage"][name].as_u64().unwrap_or_default());
    output::line(format_args!("\nnow {} jobs run and {} have not ended", used("running"), used("open")))
}

fn table(own: &Value) -> Table {
    let mut table = headings();
    add(&mut table, own["tenant"].as_str().unwrap_or("you"), &own["limits"]);
    for (endpoint, limits) in own["endpoints"].as_object().into_iter().flatten() {
        add(&mut table, &format!("at {endpoint}"), limits);
    }
    table
}

fn headings() -> Table {
    output::table(["tenant", "weight", "running", "open", "starts per minute"])
}

fn add(table: &mut Table, name: &str, limits: &Value) {
    let mut row = vec![name.to_owned()];
    row.extend(TENANT_FIELDS.iter().map(|field| match (&limits[field.name()], field) {
        (Value::Null, Field::Weight) => "-".to_owned(),
        (Value::Null, _) => "no limit".to_owned(),
        (value, _) => output::cell(value),
    }));
    table.add_row(row);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::{Command, stub};

    fn parse(line: &str) -> LimitsArgs {
        let Command::Limits(args) = stub::parse(line).unwrap() else { panic!("is one") };
        args
    }

    #[test]
    fn what_is_not_given_stays() {
        let there = json!({"weight": 2.0, "max_running": 5, "max_open": 100, "starts_per_minute": null, "of": "a newer release"});
        let change = parse("limits acme --max-running 50 --clear max-open").change;
        let expected = json!({"weight": 2.0, "max_running": 50, "max_open": null, "starts_per_minute": null});
        assert_eq!(change.apply(&there, TENANT_FIELDS).unwrap(), expected);
        let cleared =
            parse("limits acme --clear weight --clear max_running").change.apply(&there, TENANT_FIELDS).unwrap();
        assert_eq!(cleared, json!({"weight": 1, "max_running": null, "max_open": 100, "starts_per_minute": null}));
    }

    #[test]
    fn an_endpoint_has_no_weight() {
        let set = parse("limits acme --endpoint e --starts-per-minute 60")
            .change
            .apply(&Value::Null, ENDPOINT_FIELDS)
            .unwrap();
        assert_eq!(set, json!({"max_running": null, "max_open": null, "starts_per_minute": 60}));
        assert!(stub::parse("limits acme --endpoint e --weight 2").is_err());
        let cleared = parse("limits acme --endpoint e --clear weight").change.apply(&Value::Null, ENDPOINT_FIELDS);
        assert!(cleared.unwrap_err().to_string().contains("no weight"));
    }

    #[test]
    fn a_limit_is_given_or_cleared() {
        let change = parse("limits acme --max-open 5 --clear max-open").change;
        assert!(change.apply(&Value::Null, TENANT_FIELDS).is_err());
    }

    #[test]
    fn own_limits_show_the_endpoints_too() {
        let own = json!({"tenant": "acme", "limits": {"weight": 1.5, "max_running": 5}, "endpoints": {"render": {"max_open": 7}}});
        let shown = table(&own).trim_fmt();
        assert!(shown.contains("acme") && shown.contains("1.5") && shown.contains("at render"), "{shown}");
        assert!(shown.contains("no limit"), "{shown}");
    }
}
