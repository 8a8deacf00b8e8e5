//! Middleware around every request: adds an ID, measures the request, and logs failures.

use axum::extract::{MatchedPath, Request};
use axum::http::header::{CONNECTION, TRANSFER_ENCODING};
use axum::http::{HeaderName, HeaderValue, Method, Version};
use axum::middleware::Next;
use axum::response::Response;
use tokio::time::Instant;
use tracing::Instrument;
use uuid::Uuid;

use crate::metrics;

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Value of the response's `x-request-id`.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub(crate) String);

pub(crate) async fn observe(mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = request_id(&request);
    request.extensions_mut().insert(RequestId(id.to_str().unwrap_or_default().to_owned()));
    let method = known_method(request.method());
    let route = request.extensions().get::<MatchedPath>().map_or("unknown", |path| path.as_str()).to_owned();
    // If both framings are present, hyper correctly uses this one and hides the other. A proxy may have used the other
    // one, so no later request on this connection is trusted. This prevents request smuggling.
    let ambiguous = request.version() == Version::HTTP_11 && request.headers().contains_key(TRANSFER_ENCODING);
    let span = tracing::info_span!("api.request", request.id = ?id, method, route);

    let mut response = next.run(request).instrument(span.clone()).await;

    let (status, took) = (response.status(), started.elapsed());
    metrics::request(&route, method, status.as_u16(), took);
    let duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    span.in_scope(|| {
        if status.is_server_error() {
            tracing::warn!(status = status.as_u16(), duration_ms, "request failed");
        } else {
            tracing::debug!(status = status.as_u16(), duration_ms, "request completed");
        }
    });
    if ambiguous {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// The caller's own ID if it has a plain form, else a new one.
fn request_id(request: &Request) -> HeaderValue {
    let plain = |value: &HeaderValue| {
        matches!(value.len(), 1..=64)
            && value.as_bytes().iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
    };
    match request.headers().get(REQUEST_ID) {
        Some(id) if plain(id) => id.clone(),
        _ => HeaderValue::try_from(Uuid::now_v7().simple().to_string()).unwrap_or(HeaderValue::from_static("none")),
    }
}

/// Method as a label: labels must be bounded, and clients can invent methods.
fn known_method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}
