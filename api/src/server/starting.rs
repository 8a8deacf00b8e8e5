//! Responses of a replica that is starting and has not reached Redis or the object store yet.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};

use crate::error::{Code, Problem};
use crate::server::health::Ready;
use crate::server::json::drain;

/// Answers every request with 503, on a connection that then closes: the next request is answered by the started
/// replica, or by another one.
pub(crate) fn router() -> Router {
    Router::new()
        .route("/readyz", get(async || closing((StatusCode::SERVICE_UNAVAILABLE, Json(Ready::STARTING)))))
        .fallback(unavailable)
}

/// A client that is sending a body may read the response only after it.
async fn unavailable(body: Body) -> Response {
    drain(body).await;
    let detail = "this replica is starting and does not reach Redis or the object store yet; repeat the request";
    closing(Problem::new(Code::Unavailable, detail))
}

fn closing(response: impl IntoResponse) -> Response {
    let mut response = response.into_response();
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
