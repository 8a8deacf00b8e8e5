//! Tables of limits.

use std::fmt::Display;

use stokehold_client::models::{AtBudget, BudgetOfDay, BudgetState, Limits, OwnLimits};

use crate::{money, output};

pub(super) fn table(own: &OwnLimits) -> output::Table {
    let mut table = headings();
    let tenant = Some(&*own.tenant).filter(|tenant| !tenant.is_empty()).unwrap_or("you");
    add(&mut table, tenant, &own.limits, own.budget.as_ref());
    for (endpoint, its) in &own.endpoints {
        add(&mut table, &format!("at {endpoint}"), &its.limits, its.budget.as_ref());
    }
    table
}

/// A warning about a budget that is spent or nearly spent.
pub(super) fn spent(budget: &BudgetOfDay) -> Option<String> {
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

pub(super) fn headings() -> output::Table {
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

pub(super) fn add(table: &mut output::Table, name: &str, limits: &Limits, budget: Option<&BudgetOfDay>) {
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
    use serde_json::json;

    use super::*;
    use crate::client::decode;

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
