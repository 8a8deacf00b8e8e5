//! `stoke limits`.

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use comfy_table::Table;
use reqwest::Method;
use serde_json::{Map, Value, json};
use std::fmt::Display;
use std::time::Duration;
use stokehold_client::models::{AtBudget, BudgetOfDay, BudgetState, Limits, LimitsShown, OwnLimits};

use crate::client::{Call, Client, decode, segment};
use crate::{Global, money, output};

/// Show or set the limits of a tenant
#[derive(Args)]
#[command(after_help = "Examples:
  stoke limits                                        your limits and usage
  stoke limits acme --weight 2 --max-running 50
  stoke limits acme --endpoint render --starts-per-minute 60 --clear max-open
  stoke limits acme --budget-usd-per-day 5 --at-budget drain
  stoke limits acme --requests-per-minute 600 --max-storage 50GiB")]
pub(crate) struct LimitsArgs {
    /// Tenant (operator only) [default: yours]
    tenant: Option<String>,
    /// Limits at this endpoint only
    #[arg(long)]
    endpoint: Option<String>,
    #[command(flatten)]
    change: Change,
}

#[derive(Args, Debug, Default)]
struct Change {
    /// Share of the capacity relative to other waiting tenants, 0.01 to 1000 [default: 1]
    #[arg(long, value_name = "W", conflicts_with = "endpoint")]
    weight: Option<f64>,
    /// Maximum jobs that run at the same time
    #[arg(long, value_name = "N")]
    max_running: Option<u64>,
    /// Maximum jobs that have not ended
    #[arg(long, value_name = "N")]
    max_open: Option<u64>,
    /// Maximum job starts per minute
    #[arg(long, value_name = "N")]
    starts_per_minute: Option<u64>,
    /// Budget per UTC day in US dollars; once it is spent, no job starts before midnight
    #[arg(long, value_name = "USD", value_parser = money::micros)]
    budget_usd_per_day: Option<u64>,
    /// What happens to running jobs when the budget is spent: let them finish (drain) or put them back at the front of
    /// their queue (stop) [default: drain]
    #[arg(long, value_name = "WHAT", value_parser = ["drain", "stop"])]
    at_budget: Option<String>,
    /// Maximum requests per minute to each replica of the API
    #[arg(long, value_name = "N", conflicts_with = "endpoint")]
    requests_per_minute: Option<u32>,
    /// Maximum size of uploaded files, packages and weights, e.g. 500MB or 50GiB
    #[arg(long, value_name = "SIZE", value_parser = bytes_of, conflicts_with = "endpoint")]
    max_storage: Option<u64>,
    /// Maximum queue memory of its jobs, including ended ones until they move to history, e.g. 500MB or 2GiB
    #[arg(long, value_name = "SIZE", value_parser = bytes_of, conflicts_with = "endpoint")]
    max_memory: Option<u64>,
    /// Remove this limit; may be repeated
    #[arg(long, value_name = "FIELD", value_enum)]
    clear: Vec<Field>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Field {
    Weight,
    // The name of the option; the alias is the JSON name.
    #[value(alias = "max_running")]
    MaxRunning,
    #[value(alias = "max_open")]
    MaxOpen,
    #[value(alias = "starts_per_minute")]
    StartsPerMinute,
    #[value(name = "budget", alias = "budget_usd_micros_per_day")]
    BudgetUsdMicrosPerDay,
    #[value(skip)]
    AtBudget,
    #[value(alias = "requests_per_minute")]
    RequestsPerMinute,
    #[value(name = "max-storage", alias = "max_storage_bytes")]
    MaxStorageBytes,
    #[value(name = "max-memory", alias = "max_memory_bytes")]
    MaxMemoryBytes,
}

/// Fields of a tenant's limits, and below of its limits at one endpoint.
const TENANT_FIELDS: &[Field] = &[
    Field::Weight,
    Field::MaxRunning,
    Field::MaxOpen,
    Field::StartsPerMinute,
    Field::BudgetUsdMicrosPerDay,
    Field::AtBudget,
    Field::RequestsPerMinute,
    Field::MaxStorageBytes,
    Field::MaxMemoryBytes,
];
const ENDPOINT_FIELDS: &[Field] =
    &[Field::MaxRunning, Field::MaxOpen, Field::StartsPerMinute, Field::BudgetUsdMicrosPerDay, Field::AtBudget];

impl Field {
    fn name(self) -> &'static str {
        match self {
            Self::Weight => "weight",
            Self::MaxRunning => "max_running",
            Self::MaxOpen => "max_open",
            Self::StartsPerMinute => "starts_per_minute",
            Self::BudgetUsdMicrosPerDay => "budget_usd_micros_per_day",
            Self::AtBudget => "at_budget",
            Self::RequestsPerMinute => "requests_per_minute",
            Self::MaxStorageBytes => "max_storage_bytes",
            Self::MaxMemoryBytes => "max_memory_bytes",
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
            Field::BudgetUsdMicrosPerDay => self.budget_usd_per_day.map(Value::from),
            Field::AtBudget => self.at_budget.clone().map(Value::from),
            Field::RequestsPerMinute => self.requests_per_minute.map(Value::from),
            Field::MaxStorageBytes => self.max_storage.map(Value::from),
            Field::MaxMemoryBytes => self.max_memory.map(Value::from),
        }
    }

    /// Merges the change into the existing limits, because the API replaces all limits at once.
    fn apply(&self, there: &Value, fields: &[Field]) -> Result<Value> {
        let mut limits = Map::new();
        for field in &self.clear {
            ensure!(fields.contains(field), "cannot clear {}: endpoints have no such limit", field.name());
            ensure!(self.given(*field).is_none(), "cannot both set and clear {}", field.name());
        }
        let no_budget = self.clear.contains(&Field::BudgetUsdMicrosPerDay);
        for field in fields {
            let is_young = matches!(
                field,
                Field::BudgetUsdMicrosPerDay
                    | Field::AtBudget
                    | Field::RequestsPerMinute
                    | Field::MaxStorageBytes
                    | Field::MaxMemoryBytes
            );
            let value = match (self.given(*field), self.clear.contains(field), field) {
                (Some(given), ..) => given,
                // A tenant always has a weight.
                (None, true, Field::Weight) => json!(1),
                (None, true, _) => Value::Null,
                (None, false, Field::AtBudget) if no_budget => Value::Null,
                (None, false, _) => there[field.name()].clone(),
            };
            // APIs of older releases do not support these fields.
            if !(*field == Field::Weight || is_young) || !value.is_null() {
                limits.insert(field.name().to_owned(), value);
            }
        }
        Ok(limits.into())
    }
}

pub(crate) async fn run(global: &Global, args: LimitsArgs) -> Result<()> {
    let client = Client::connect(global)?;
    let Some(tenant) = &args.tenant else {
        ensure!(!args.change.is_some(), "name the tenant to change, e.g. `stoke limits TENANT --max-running 50`");
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
    let LimitsShown { budget, .. } = decode(&limits)?;
    if let Some(spent) = budget.as_ref().and_then(spent) {
        output::note(spent);
    }
    let name = args.endpoint.as_ref().map_or(tenant.clone(), |endpoint| format!("{tenant} at {endpoint}"));
    let mut table = headings();
    add(&mut table, &name, &decode(&limits)?, budget.as_ref());
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
    output::line(table(&found).trim_fmt())?;
    let usage = &found.usage;
    let (running, open) = (output::count(usage.running), output::count(usage.open));
    output::line(format_args!("\n{running} jobs running, {open} not ended"))?;
    if let Some(held) = usage.memory_bytes {
        output::line(format_args!("{} of queue memory in use, including ended jobs", output::bytes(held)))?;
    }
    match usage.storage_bytes {
        Some(stored) => output::line(format_args!("{} of storage in use", output::bytes(stored))),
        None => Ok(()),
    }
}

/// Parses a size: bytes, or with a decimal (MB) or binary (MiB) unit.
fn bytes_of(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a size; use e.g. 500MB or 50GiB");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let (base, letters) = match unit.strip_suffix("iB") {
        Some(letter) if !letter.is_empty() => (1024_u64, letter),
        _ => (1000, unit.strip_suffix(['B', 'b']).unwrap_or(unit)),
    };
    let power = ["", "K", "M", "G", "T"].iter().position(|known| letters.eq_ignore_ascii_case(known));
    let factor = base.pow(power.and_then(|power| u32::try_from(power).ok()).ok_or_else(wrong)?);
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)).ok_or_else(wrong)
}

fn table(own: &OwnLimits) -> Table {
    let mut table = headings();
    let tenant = Some(&*own.tenant).filter(|tenant| !tenant.is_empty()).unwrap_or("you");
    add(&mut table, tenant, &own.limits, own.budget.as_ref());
    for (endpoint, its) in &own.endpoints {
        add(&mut table, &format!("at {endpoint}"), &its.limits, its.budget.as_ref());
    }
    table
}

/// A warning about a budget that is spent or nearly spent.
fn spent(budget: &BudgetOfDay) -> Option<String> {
    let (spent, of) = (money::dollars(budget.spent_today_usd_micros), money::dollars(budget.limit_usd_micros));
    match budget.state {
        BudgetState::Warned => Some(format!("{spent} of today's budget of {of} is spent")),
        BudgetState::Reached if budget.limit_usd_micros == 0 => {
            Some("the budget is 0, so no job starts; raise it with --budget-usd-per-day".to_owned())
        }
        BudgetState::Reached => Some(format!(
            "today's budget of {of} is spent ({spent}): no job starts before {}; raise it with --budget-usd-per-day",
            budget.resumes_at.as_deref().unwrap_or("midnight UTC")
        )),
        _ => None,
    }
}

fn headings() -> Table {
    output::table([
        "tenant",
        "weight",
        "running",
        "open",
        "starts per minute",
        "budget per day",
        "spent today",
        "requests per minute",
        "storage",
    ])
}

/// Formats a limit.
fn most(limit: Option<impl Display>) -> String {
    limit.map_or("no limit".to_owned(), |limit| limit.to_string())
}

fn add(table: &mut Table, name: &str, limits: &Limits, budget: Option<&BudgetOfDay>) {
    table.add_row([
        name.to_owned(),
        limits.weight.map_or("-".to_owned(), |weight| format!("{weight:?}")),
        most(limits.max_running),
        most(limits.max_open),
        most(limits.starts_per_minute),
        match (limits.budget_usd_micros_per_day, &limits.at_budget) {
            (None, _) => "no limit".to_owned(),
            (Some(budget), Some(AtBudget::Stop)) => format!("{}, then stop", money::dollars(budget)),
            (Some(budget), _) => money::dollars(budget),
        },
        budget.map_or("-".to_owned(), |budget| match &budget.state {
            state @ (BudgetState::Warned | BudgetState::Reached) => {
                format!("{} ({state})", money::dollars(budget.spent_today_usd_micros))
            }
            _ => money::dollars(budget.spent_today_usd_micros),
        }),
        // Absent at an endpoint, and from APIs of older releases.
        output::number(limits.requests_per_minute),
        limits.max_storage_bytes.map_or("-".to_owned(), output::bytes),
    ]);
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
        assert!(cleared.unwrap_err().to_string().contains("cannot clear weight"));
    }

    #[test]
    fn a_size_is_written_as_people_write_it() {
        let sizes =
            [("0", 0), ("700", 700), ("5kb", 5_000), ("500MB", 500_000_000), ("2GiB", 2 << 30), ("1T", 10_u64.pow(12))];
        for (text, bytes) in sizes {
            assert_eq!(bytes_of(text), Ok(bytes), "{text}");
        }
        for wrong in ["", "GB", "-1", "1.5GB", "5 GB", "1XB", "99999999999TiB", "1iB"] {
            assert!(bytes_of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_the_api_holds_a_tenant_to_is_set_with_the_rest() {
        let there = json!({"weight": 1.0, "max_running": null, "max_storage_bytes": 1000, "requests_per_minute": null});
        let change = parse("limits acme --requests-per-minute 600").change;
        let set = change.apply(&there, TENANT_FIELDS).unwrap();
        assert_eq!((&set["requests_per_minute"], &set["max_storage_bytes"]), (&json!(600), &json!(1000)));
        let cleared = parse("limits acme --clear max-storage").change.apply(&there, TENANT_FIELDS).unwrap();
        assert!(cleared.get("max_storage_bytes").is_none() && cleared.get("requests_per_minute").is_none());
        assert!(stub::parse("limits acme --endpoint e --max-storage 5GB").is_err());
    }

    #[test]
    fn a_limit_is_given_or_cleared() {
        let change = parse("limits acme --max-open 5 --clear max-open").change;
        assert!(change.apply(&Value::Null, TENANT_FIELDS).is_err());
    }

    #[test]
    fn a_budget_is_given_in_dollars_kept_and_cleared_with_what_happens_then() {
        let there = json!({"weight": 1.0, "budget_usd_micros_per_day": 5_000_000, "at_budget": "stop", "budget": {"state": "within"}});
        let kept = parse("limits acme --weight 2").change.apply(&there, TENANT_FIELDS).unwrap();
        assert_eq!((&kept["budget_usd_micros_per_day"], &kept["at_budget"]), (&json!(5_000_000), &json!("stop")));
        assert!(kept.get("budget").is_none());
        let raised = parse("limits acme --budget-usd-per-day 7.50 --at-budget drain").change;
        let raised = raised.apply(&there, TENANT_FIELDS).unwrap();
        assert_eq!((&raised["budget_usd_micros_per_day"], &raised["at_budget"]), (&json!(7_500_000), &json!("drain")));
        let cleared = parse("limits acme --clear budget").change.apply(&there, TENANT_FIELDS).unwrap();
        assert!(cleared.get("budget_usd_micros_per_day").is_none() && cleared.get("at_budget").is_none());
        assert!(stub::parse("limits acme --budget-usd-per-day lots").is_err());
    }

    #[test]
    fn a_budget_that_is_spent_is_said_to_be() {
        let budget = json!({"limit_usd_micros": 5_000_000, "spent_today_usd_micros": 4_100_000, "state": "warned"});
        assert_eq!(spent(&decode(&budget).unwrap()).unwrap(), "$4.10 of today's budget of $5.00 is spent");
        let own = json!({"tenant": "acme", "limits": {"budget_usd_micros_per_day": 5_000_000, "at_budget": "stop"}, "budget": budget});
        let shown = table(&decode(&own).unwrap()).trim_fmt();
        assert!(shown.contains("$5.00, then stop") && shown.contains("$4.10 (warned)"), "{shown}");
        let reached = json!({"state": "reached", "limit_usd_micros": 1, "resumes_at": "2026-11-23T00:00:00.000Z"});
        assert!(spent(&decode(&reached).unwrap()).unwrap().contains("before 2026-11-23T00:00:00.000Z"));
        assert_eq!(spent(&decode(&json!({"state": "within"})).unwrap()), None);
        let nothing = json!({"state": "reached", "limit_usd_micros": 0, "resumes_at": null});
        assert!(spent(&decode(&nothing).unwrap()).unwrap().starts_with("the budget is 0, so no job starts"));
    }

    #[test]
    fn own_limits_show_the_endpoints_too() {
        let own = json!({"tenant": "acme", "limits": {"weight": 1.5, "max_running": 5}, "endpoints": {"render": {"max_open": 7}}});
        let shown = table(&decode(&own).unwrap()).trim_fmt();
        assert!(shown.contains("acme") && shown.contains("1.5") && shown.contains("at render"), "{shown}");
        assert!(shown.contains("no limit"), "{shown}");
    }
}
