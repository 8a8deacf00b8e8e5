//! Parameters and responses of the routes that delete.

use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Serialize;
use utoipa::ToSchema;

use super::dependents::Dependents;
use crate::error::{Code, Dependent, Problem};
use crate::server::query::Params;
use crate::tenants::audit::{Touched, Unchanged};

/// The outcome of a deletion.
#[derive(Serialize, ToSchema)]
pub(crate) struct Deletion {
    /// Whether it was deleted; false after a dry run.
    deleted: bool,
    /// What depended on it. Open jobs and batches were cancelled and schedules paused.
    dependents: Vec<Dependent>,
    /// The size of the stored files that were deleted with it, or that would be.
    freed_bytes: u64,
}

/// The parameters of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) dry_run: bool,
    pub(crate) force: bool,
}

impl Options {
    pub(crate) fn of(mut params: Params) -> Result<Self, Problem> {
        let mut flag = |name: &str| params.take(name, "true or false", |text| text.parse().ok());
        let (dry_run, force) = (flag("dry_run")?, flag("force")?);
        params.finish()?;
        Ok(Self { dry_run: dry_run.unwrap_or(false), force: force.unwrap_or(false) })
    }
}

/// The response to a dry run. The audit log has no entry, because nothing was changed.
pub(crate) fn would_delete(dependents: Dependents, freed_bytes: u64) -> Response {
    let deletion = Deletion { deleted: false, dependents: dependents.into_list(), freed_bytes };
    (Extension(Unchanged), Json(deletion)).into_response()
}

/// The response after a deletion. `what` is the object in the audit log.
pub(crate) fn deleted(tenant: &str, what: String, dependents: Dependents, freed_bytes: u64) -> Response {
    let deletion = Deletion { deleted: true, dependents: dependents.into_list(), freed_bytes };
    (Extension(Touched { object: what, tenant: tenant.to_owned() }), Json(deletion)).into_response()
}

/// Refuses to delete what others depend on. `or` is what the caller can do.
pub(crate) fn in_use(what: &str, dependents: Dependents, or: &str) -> Problem {
    let dependents = dependents.into_list();
    let list: Vec<String> = dependents.iter().map(counted).collect();
    Problem::new(Code::InUse, format!("{what} is in use: {}; {or}", list.join(", "))).with_dependents(dependents)
}

/// A number of dependents, with an example.
fn counted(dependent: &Dependent) -> String {
    let word = serde_json::to_value(dependent.kind).ok();
    let word = word.as_ref().and_then(|word| word.as_str()).unwrap_or("other");
    let example = dependent.examples.first().map_or("", String::as_str);
    match dependent.count {
        1 => format!("1 {word} ({example})"),
        count => format!("{count} of kind {word} (e.g. {example})"),
    }
}
