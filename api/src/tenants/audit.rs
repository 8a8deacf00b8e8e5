//! The audit log. Every request that could change something passes through this middleware, and a change that cannot be
//! recorded is refused. The routes that leave no entry are listed below with the reason. A handler can add the object
//! of its change, and can mark a response that changed nothing; it cannot skip recording.

use std::time::Duration;

use axum::extract::{FromRequestParts, MatchedPath, RawPathParams, Request, State};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use stokehold_queue::registry::{Actor, Change, ChangeEnd};
use stokehold_queue::{TokenRecord, now_ms};
use stokehold_supervise::{BoxError, Duty};
use tracing::Instrument as _;
use uuid::Uuid;

use crate::config::Config;
use crate::database::Database;
use crate::error::{Code, INTERNAL, Problem};
use crate::server::observe::RequestId;
use crate::server::peer::Address;
use crate::state::App;
use crate::tenants::auth::admitted;
use crate::tenants::turns::Meter;

/// Routes that may change something and leave no entry: method, route, reason.
pub const UNRECORDED: [(&str, &str, &str); 13] = [
    ("POST", "/v1/jobs", "the job itself is the record"),
    ("POST", "/v1/jobs/bulk", "the jobs themselves are the record"),
    ("POST", "/v1/jobs/{id}/cancel", "the job records it"),
    ("POST", "/v1/jobs/{id}/retry", "the new job records it"),
    ("POST", "/v1/jobs/{id}/feedback", "the feedback is stored with its time"),
    ("POST", "/v1/batches", "the batch itself is the record"),
    ("POST", "/v1/batches/estimate", "changes nothing"),
    ("POST", "/v1/files", "only reserves an upload address; the job that uses the input is the record"),
    ("POST", "/v1/files/upload", "the file is the record, and the job that uses it"),
    ("POST", "/v1/packages", "only reserves an upload address; the deploy that uses the package is recorded"),
    ("POST", "/v1/weights", "only reserves an upload address; the deploy that uses the weights is recorded"),
    ("POST", "/v1/session", "stores nothing: the cookie is the session"),
    ("DELETE", "/v1/session", "stores nothing: the cookie is the session"),
];

/// Time after which an unfinished change counts as abandoned: no request lasts that long.
const ABANDONED_AFTER: Duration = Duration::from_secs(10 * 60);

/// Interval of the search for abandoned changes, and its timeout.
const ROUND: Duration = Duration::from_secs(60);
const ROUND_MAX: Duration = Duration::from_secs(30);

/// Maximum length of an object's name from a path, characters. The rest is cut off.
const OBJECT_CHARS_MAX: usize = 200;

/// The object of a change, if the path does not name it: a handler puts it into its response's extensions.
#[derive(Debug, Clone)]
pub(crate) struct Touched {
    /// See [`Change::object`].
    pub(crate) object: String,
    /// See [`Change::tenant`].
    pub(crate) tenant: String,
}

/// Marks the response to a request that changed nothing, e.g. a dry run: its entry is removed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unchanged;

/// The middleware around every public route.
pub(crate) async fn record(State(app): State<App>, request: Request, next: Next) -> Response {
    let Some(action) = action(&request) else { return next.run(request).await };
    let (mut parts, body) = request.into_parts();
    let admitted = match admitted(&app, &parts).await {
        Ok(admitted) => admitted,
        Err(problem) => return problem.into_response(),
    };
    // A deletion has no body that could be slow, and must be possible regardless of other changes in progress.
    let share = app.change_shares.take(&admitted.token.tenant);
    if share.is_none() && parts.method != Method::DELETE {
        let detail = "too many changes by this tenant are in progress on this replica; try again";
        return Problem::new(Code::RateLimited, detail).into_response();
    }
    let (change, named) = begun(&app.config, &mut parts, &admitted.token, action).await;
    match app.db.ask("record a change in the audit log", app.db.registry.begin_change(&change)).await {
        Ok(true) => {}
        Ok(false) => return unwritten("too many changes are in progress").into_response(),
        Err(error) => return unwritten("the audit log is unavailable").caused_by(error).into_response(),
    }
    let meter = parts.extensions.get::<Meter>().cloned().unwrap_or_default();
    parts.extensions.insert(admitted);
    let request = Request::from_parts(parts, body);
    // The client may disconnect: a change that was begun is finished and recorded all the same.
    let made = async move {
        let answer = next.run(request).await;
        let touched = answer.extensions().get().cloned();
        let outcome = outcome(answer.status()).filter(|_| answer.extensions().get::<Unchanged>().is_none());
        end(&app.db, change, (named, touched), outcome).await;
        drop(share);
        answer
    };
    tokio::spawn(meter.count(made).in_current_span()).await.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => Problem::new(Code::Internal, INTERNAL).into_response(),
    })
}

/// Name of the action that a request asks for. `None` when it changes nothing, or leaves its own record.
fn action(request: &Request) -> Option<String> {
    let (method, route) = (request.method(), request.extensions().get::<MatchedPath>()?.as_str());
    let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    let is_listed = UNRECORDED.iter().any(|(listed, path, _)| *listed == method.as_str() && *path == route);
    (!reads && !is_listed).then(|| format!("{method} {route}"))
}

/// The record of a change that begins, and the tenant that the path names.
async fn begun(config: &Config, parts: &mut Parts, token: &TokenRecord, action: String) -> (Change, Option<String>) {
    let params = RawPathParams::from_request_parts(parts, &()).await;
    let params: Vec<(&str, &str)> = params.as_ref().map(|params| params.iter().collect()).unwrap_or_default();
    let named = params.iter().find(|(name, _)| *name == "tenant").map(|(_, tenant)| (*tenant).to_owned());
    let object = params.iter().map(|(_, value)| *value).collect::<Vec<_>>().join("/");
    let change = Change {
        id: Uuid::now_v7().simple().to_string(),
        tenant: token.tenant.clone(),
        at_ms: now_ms(),
        actor: Actor {
            tenant: token.tenant.clone(),
            token_id: token.id.clone(),
            token_name: token.name.clone(),
            user: token.user.clone(),
        },
        action,
        object: object.chars().filter(|c| !c.is_control()).take(OBJECT_CHARS_MAX).collect(),
        address: Address::of(config, parts).text(),
        request_id: parts.extensions.get::<RequestId>().map_or(String::new(), |id| id.0.clone()),
        end: None,
    };
    (change, named)
}

/// Refuses a change that cannot be recorded.
fn unwritten(why: &str) -> Problem {
    tracing::warn!(why, "a change was refused because it could not be recorded in the audit log");
    Problem::new(Code::Unavailable, format!("{why}, so nothing was changed; try again"))
}

/// Records the outcome of a change. If that fails, the change is made all the same, and its outcome is later recorded
/// as unknown.
async fn end(
    db: &Database,
    change: Change,
    (named, touched): (Option<String>, Option<Touched>),
    outcome: Option<ChangeEnd>,
) {
    let Some(end) = outcome else {
        if let Err(error) = db.ask("remove a change from the audit log", db.registry.drop_change(&change.id)).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "a change that was not made is left open in the audit log");
        }
        return;
    };
    let mut change = Change { end: Some(end), ..change };
    // Only a caller that may change another tenant's objects writes to that tenant's log.
    if end != ChangeEnd::Refused {
        change.tenant = named.unwrap_or(change.tenant);
    }
    if let Some(Touched { object, tenant }) = touched {
        (change.object, change.tenant) = (object, tenant);
    }
    let Change { tenant, action, object, actor, .. } = &change;
    tracing::info!(tenant, action, object, token.id = actor.token_id, outcome = end.as_str(), "a change was made");
    if let Err(error) = db.ask_again("record the outcome of a change", || db.registry.end_change(&change)).await {
        tracing::warn!(
            change = change.id,
            error = &error as &dyn std::error::Error,
            "a change is left open in the audit log; its outcome will be recorded as unknown"
        );
    }
}

/// Outcome of a change. `None` when it was not made because the request was invalid.
fn outcome(status: StatusCode) -> Option<ChangeEnd> {
    match status {
        StatusCode::FORBIDDEN => Some(ChangeEnd::Refused),
        status if status.is_client_error() => None,
        status if status.is_server_error() => Some(ChangeEnd::Failed),
        _ => Some(ChangeEnd::Done),
    }
}

/// The loop that ends the changes that stopped replicas left open. Every replica runs it; each change is ended once.
pub(crate) struct Abandoned(pub(crate) App);

impl Duty for Abandoned {
    const NAME: &'static str = "audit";
    const ROUND_TIMEOUT: Duration = ROUND_MAX;
    const INITIAL_DELAY: Duration = ROUND;
    const RETRY_DELAY: Duration = ROUND;
    const BLOCKS_READINESS: bool = false;

    async fn round(&mut self) -> Result<Duration, BoxError> {
        let before_ms = now_ms().saturating_sub(u64::try_from(ABANDONED_AFTER.as_millis()).unwrap_or(u64::MAX));
        let changes = self.0.db.registry.abandoned_changes(before_ms).await?;
        if changes > 0 {
            tracing::warn!(changes, "replicas that died left changes open; their outcome is recorded as unknown");
        }
        Ok(ROUND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_merely_wrong_leaves_no_line_and_what_was_forbidden_does() {
        for status in [400, 404, 409, 413, 422, 429] {
            assert_eq!(outcome(StatusCode::from_u16(status).unwrap()), None, "{status}");
        }
        assert_eq!(outcome(StatusCode::FORBIDDEN), Some(ChangeEnd::Refused));
        assert_eq!(outcome(StatusCode::SERVICE_UNAVAILABLE), Some(ChangeEnd::Failed));
        assert_eq!(outcome(StatusCode::CREATED), Some(ChangeEnd::Done));
    }
}
