//! `/v1/session`: logs a browser in with an API token, which the page does not store.

use std::sync::Arc;

use axum::Json as JsonAnswer;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, SET_COOKIE};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use stokehold_queue::{TokenKind, TokenRecord};
use utoipa::ToSchema;

use crate::config::Config;
use crate::dashboard::session;
use crate::error::Problem;
use crate::server::json::Json;
use crate::server::peer::Address;
use crate::state::App;
use crate::tenants::auth::proven;

/// Maximum size of a body, bytes; larger than any token.
const BODY_MAX: usize = 4 << 10;

/// The credentials of a login.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogIn {
    /// An API token, `sk_…`, or a login token, as created by `stoke dashboard`.
    token: String,
}

/// The current session.
#[derive(Serialize, ToSchema)]
#[schema(as = Session)]
pub(crate) struct SessionView {
    /// The tenant whose jobs, endpoints and files the session sees.
    tenant: String,
    /// The scopes of the session.
    scopes: Vec<String>,
    /// When the session expires, Unix milliseconds.
    expires_ms: u64,
}

impl SessionView {
    fn new(record: &TokenRecord, expires_ms: u64) -> Self {
        Self { tenant: record.tenant.clone(), scopes: record.scopes.clone(), expires_ms }
    }
}

/// Log in a browser
///
/// The response sets a cookie that replaces the token at every route below `/v1`, for at most twelve hours. All methods
/// but GET and HEAD also require the header `Stokehold-Request: dashboard`.
#[utoipa::path(post, operation_id = "log_in", path = "/v1/session", tag = "dashboard", security(()), request_body = LogIn,
    responses((status = 200, description = "The logged-in user.", body = SessionView), crate::server::responses::Problems))]
pub(crate) async fn log_in(
    State(app): State<App>,
    address: Address,
    headers: HeaderMap,
    uri: Uri,
    Json(request): Json<LogIn, BODY_MAX>,
) -> Result<Response, Problem> {
    session::check_origin(&headers, &uri, &app.config.public_url)?;
    let token = request.token.trim();
    let proven = proven(&app, token, TokenKind::Api).await;
    let (record, _) = proven.map_err(|problem| app.tenants.failed_log_in(address, problem))?;
    app.tenants.admit(&record.tenant).await?;
    let (expires_ms, cookie) = match record.single_use {
        true => session::begin_once(&app, &record).await?,
        false => session::begin(&app.config, token, &record)?,
    };
    let view = SessionView::new(&record, expires_ms);
    Ok(([(SET_COOKIE, cookie), (CACHE_CONTROL, "no-store".to_owned())], JsonAnswer(view)).into_response())
}

/// Get the current session
#[utoipa::path(get, operation_id = "get_session", path = "/v1/session", tag = "dashboard", security(("session" = [])),
    responses((status = 200, description = "The logged-in user.", body = SessionView), crate::server::responses::Problems))]
pub(crate) async fn get(
    State(app): State<App>,
    method: Method,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Problem> {
    session::check_asker(&method, &headers, &uri, &app.config.public_url)?;
    let (record, expires_ms) = session::holder(&app, &headers).await?;
    app.tenants.admit(&record.tenant).await?;
    Ok(([(CACHE_CONTROL, "no-store")], JsonAnswer(SessionView::new(&record, expires_ms))).into_response())
}

/// Log out a browser
///
/// Removes the cookie. The token stays valid.
#[utoipa::path(delete, operation_id = "log_out", path = "/v1/session", tag = "dashboard", security(()),
    responses((status = 204, description = "The session has ended."), crate::server::responses::Problems))]
pub(crate) async fn log_out(
    State(config): State<Arc<Config>>,
    method: Method,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Problem> {
    session::check_origin(&headers, &uri, &config.public_url)?;
    if session::is_shown(&headers) {
        session::check_asker(&method, &headers, &uri, &config.public_url)?;
    }
    Ok((StatusCode::NO_CONTENT, [(SET_COOKIE, session::end(&config.public_url))]).into_response())
}
