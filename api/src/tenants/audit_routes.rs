//! `GET /v1/audit`: the audit log of changes and callers.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use stokehold_queue::registry::{Change, KeptChange, Which};
use utoipa::ToSchema;

use crate::database::Database;
use crate::error::{Code, Problem};
use crate::names;
use crate::server::query::Params;
use crate::tenants::auth::{AuditRead, Caller};
use crate::tenants::scope::{Scope, has};
use crate::time_format::rfc3339;

/// The parameter value for all tenants.
const ALL: &str = "*";

/// An entry of the audit log.
#[derive(Serialize, ToSchema)]
#[schema(as = Change)]
pub(crate) struct ChangeView {
    /// The entry's unique id.
    id: String,
    /// When the change began, RFC 3339.
    at: String,
    /// The tenant whose resources were changed.
    tenant: String,
    actor: ActorView,
    /// Method and route, e.g. `PUT /v1/secrets/{name}`; `stoke ...` for a change that an operator made directly in
    /// Redis.
    action: String,
    /// The changed resource, e.g. `HF_TOKEN`; empty if the route has only one or it is not known.
    object: String,
    #[schema(value_type = ChangeEndWord)]
    outcome: &'static str,
    /// The client's address as reported by trusted proxies; null if it is not known or the caller may not see it.
    address: Option<String>,
    /// The `x-request-id` of the response.
    request_id: Option<String>,
}

/// The actor of a change. A tenant sees only that an operator made a change, not which one.
#[derive(Serialize, ToSchema)]
#[schema(as = Actor)]
pub(crate) struct ActorView {
    /// The token's id; null for operators.
    token_id: Option<String>,
    /// The token's name; `operator` for operators.
    token_name: String,
    /// The user that the token names, if any.
    user: Option<String>,
}

/// The outcome of a change.
#[derive(ToSchema)]
#[schema(as = ChangeOutcome, rename_all = "snake_case")]
#[expect(dead_code, reason = "variant names of the registry's type, for the OpenAPI document")]
pub(crate) enum ChangeEndWord {
    Done,
    Refused,
    Failed,
    Unknown,
}

/// One page of the audit log.
#[derive(Serialize, ToSchema)]
pub(crate) struct ChangeList {
    changes: Vec<ChangeView>,
    /// The cursor of the next page in the same direction; null at the end.
    next_cursor: Option<String>,
    /// Pass this as `after` to read later entries; null if the page is empty.
    newest: Option<String>,
}

impl ChangeView {
    /// Creates the view of a change for a tenant or an operator.
    fn new(change: Change, operates: bool) -> Self {
        let Change { id, tenant, at_ms, actor, action, object, address, request_id, end } = change;
        let is_shown = operates || actor.tenant == tenant;
        let given = |text: String| (is_shown && !text.is_empty()).then_some(text);
        let token_name = if is_shown && !actor.token_id.is_empty() { actor.token_name } else { "operator".to_owned() };
        Self {
            id,
            at: rfc3339(at_ms),
            tenant,
            actor: ActorView { token_id: given(actor.token_id), token_name, user: given(actor.user) },
            action,
            object,
            outcome: end.map_or("unknown", stokehold_queue::registry::ChangeEnd::as_str),
            address: given(address),
            request_id: given(request_id),
        }
    }
}

/// Read the audit log
///
/// The log holds every change except jobs and batches, which are their own records. `refused` means that the token
/// lacked the permission, `unknown` that a replica died during the change. Requests with errors changed nothing and are
/// not listed. The log keeps a tenant's last 10,000 changes for 400 days, and the last 50,000 of all tenants.
#[utoipa::path(get, operation_id = "list_changes", path = "/v1/audit", tag = "access",
    params(
        ("tenant" = Option<String>, Query, description = "For operators: the tenant to read, or `*` for all tenants."),
        ("cursor" = Option<String>, Query, description = "The `next_cursor` of the previous page; pages run from newest to oldest."),
        ("after" = Option<String>, Query, description = "A `newest` or `next_cursor`: returns later entries, oldest first."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "1 to 100; default 20."),
    ),
    responses((status = 200, description = "One page.", body = ChangeList), crate::server::responses::Problems))]
pub(crate) async fn list(
    State(db): State<Arc<Database>>,
    caller: Caller<AuditRead>,
    mut params: Params,
) -> Result<Json<ChangeList>, Problem> {
    let is_whose = |text: &str| (text == ALL || names::is_name(text)).then(|| text.to_owned());
    let tenant = params.take("tenant", "a tenant's name, or * for all", is_whose)?;
    let place = |text: &str| is_place(text).then(|| text.to_owned());
    let cursor = params.take("cursor", "the next_cursor of a page", place)?;
    let after = params.take("after", "the newest or the next_cursor of a page", place)?;
    let limit = params.limit()?;
    params.finish()?;
    if cursor.is_some() && after.is_some() {
        return Err(Problem::query("after", "and cursor exclude each other"));
    }
    let operates = has(&caller.token, Scope::TenantsRead);
    let tenant = tenant.unwrap_or_else(|| caller.tenant.clone());
    if tenant != caller.tenant && !operates {
        return Err(Problem::new(
            Code::Forbidden,
            "another tenant's audit log requires the operator scope tenants:read",
        ));
    }
    let which = after.as_deref().map_or(Which::Before(cursor.as_deref()), Which::After);
    let log = (tenant != ALL).then_some(tenant.as_str());
    let page = db.ask("read the audit log", db.registry.audit(log, which, limit)).await?;
    let newest = match which {
        Which::Before(_) => page.changes.first(),
        Which::After(_) => page.changes.last(),
    };
    let newest = newest.map(|kept| kept.cursor.clone());
    let view = |KeptChange { change, .. }| ChangeView::new(change, operates);
    Ok(Json(ChangeList { newest, changes: page.changes.into_iter().map(view).collect(), next_cursor: page.next }))
}

/// Returns whether a text is a position in the log: milliseconds and a number, the form of Redis.
fn is_place(text: &str) -> bool {
    let is_number = |text: &str| matches!(text.len(), 1..=20) && text.parse::<u64>().is_ok();
    text.split_once('-').is_some_and(|(ms, number)| is_number(ms) && is_number(number))
}

#[cfg(test)]
mod tests {
    use stokehold_queue::registry::Actor;

    use super::*;

    #[test]
    fn only_a_place_is_a_cursor() {
        assert!(is_place("1795240200123-0"));
        for wrong in ["", "-", "1", "1-", "+", "1-a", "(1-0", "184467440737095516160-0", "1-0-0"] {
            assert!(!is_place(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_tenant_does_not_see_which_operator_it_was_nor_from_where() {
        let by = |tenant: &str| Change {
            id: "1".into(),
            tenant: "acme".into(),
            at_ms: 1,
            actor: Actor {
                tenant: tenant.into(),
                token_id: "ab".into(),
                token_name: "ann's".into(),
                user: "ann".into(),
            },
            action: "PUT /v1/limits/{tenant}".into(),
            object: "acme".into(),
            address: "10.0.0.1".into(),
            request_id: "r".into(),
            end: None,
        };
        let shown = |change, operates| serde_json::to_value(ChangeView::new(change, operates)).unwrap();
        let hidden = shown(by("ops"), false);
        assert_eq!(
            (&hidden["actor"]["token_name"], &hidden["address"]),
            (&"operator".into(), &serde_json::Value::Null)
        );
        assert!(!hidden.to_string().contains("ann") && hidden["outcome"] == "unknown");
        assert_eq!(shown(by("ops"), true)["actor"]["user"], "ann");
        assert_eq!(shown(by("acme"), false)["address"], "10.0.0.1");
    }
}
