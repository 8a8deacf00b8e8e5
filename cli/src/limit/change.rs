//! Changes of limits.

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use crate::failure::require;
use crate::money;

#[derive(Args, Debug, Default)]
pub(super) struct Change {
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
pub(super) enum Field {
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
pub(super) const TENANT_FIELDS: &[Field] = &[
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
pub(super) const ENDPOINT_FIELDS: &[Field] =
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
    pub(super) fn is_some(&self) -> bool {
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
    pub(super) fn apply(&self, there: &Value, fields: &[Field]) -> Result<Value> {
        let mut limits = Map::new();
        for field in &self.clear {
            require!(fields.contains(field), "cannot clear {}: endpoints have no such limit", field.name());
            require!(self.given(*field).is_none(), "cannot both set and clear {}", field.name());
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::{LimitArgs, Verb};
    use super::*;
    use crate::{Command, stub};

    fn parse(line: &str) -> Change {
        let Command::Limit(LimitArgs { verb: Verb::Set(args) }) = stub::parse(line).unwrap() else { panic!("is one") };
        args.change
    }

    #[test]
    fn what_is_not_given_stays() {
        let there = json!({"weight": 2.0, "max_running": 5, "max_open": 100, "starts_per_minute": null, "of": "a newer release"});
        let change = parse("limits acme --max-running 50 --clear max-open");
        let expected = json!({"weight": 2.0, "max_running": 50, "max_open": null, "starts_per_minute": null});
        assert_eq!(change.apply(&there, TENANT_FIELDS).unwrap(), expected);
        let cleared = parse("limits acme --clear weight --clear max_running").apply(&there, TENANT_FIELDS).unwrap();
        assert_eq!(cleared, json!({"weight": 1, "max_running": null, "max_open": 100, "starts_per_minute": null}));
    }

    #[test]
    fn an_endpoint_has_no_weight() {
        let set =
            parse("limits acme --endpoint e --starts-per-minute 60").apply(&Value::Null, ENDPOINT_FIELDS).unwrap();
        assert_eq!(set, json!({"max_running": null, "max_open": null, "starts_per_minute": 60}));
        assert!(stub::parse("limits acme --endpoint e --weight 2").is_err());
        let cleared = parse("limits acme --endpoint e --clear weight").apply(&Value::Null, ENDPOINT_FIELDS);
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
        let change = parse("limits acme --requests-per-minute 600");
        let set = change.apply(&there, TENANT_FIELDS).unwrap();
        assert_eq!((&set["requests_per_minute"], &set["max_storage_bytes"]), (&json!(600), &json!(1000)));
        let cleared = parse("limits acme --clear max-storage").apply(&there, TENANT_FIELDS).unwrap();
        assert!(cleared.get("max_storage_bytes").is_none() && cleared.get("requests_per_minute").is_none());
        assert!(stub::parse("limits acme --endpoint e --max-storage 5GB").is_err());
    }

    #[test]
    fn a_limit_is_given_or_cleared() {
        let change = parse("limits acme --max-open 5 --clear max-open");
        assert!(change.apply(&Value::Null, TENANT_FIELDS).is_err());
    }

    #[test]
    fn a_budget_is_given_in_dollars_kept_and_cleared_with_what_happens_then() {
        let there = json!({"weight": 1.0, "budget_usd_micros_per_day": 5_000_000, "at_budget": "stop", "budget": {"state": "within"}});
        let kept = parse("limits acme --weight 2").apply(&there, TENANT_FIELDS).unwrap();
        assert_eq!((&kept["budget_usd_micros_per_day"], &kept["at_budget"]), (&json!(5_000_000), &json!("stop")));
        assert!(kept.get("budget").is_none());
        let raised = parse("limits acme --budget-usd-per-day 7.50 --at-budget drain");
        let raised = raised.apply(&there, TENANT_FIELDS).unwrap();
        assert_eq!((&raised["budget_usd_micros_per_day"], &raised["at_budget"]), (&json!(7_500_000), &json!("drain")));
        let cleared = parse("limits acme --clear budget").apply(&there, TENANT_FIELDS).unwrap();
        assert!(cleared.get("budget_usd_micros_per_day").is_none() && cleared.get("at_budget").is_none());
        assert!(stub::parse("limits acme --budget-usd-per-day lots").is_err());
    }
}
