//! `/openai/v1`: the API of OpenAI, so that its clients work after a change of their base URL and key. A call becomes a
//! job of the endpoint that its `model` names. `docs/reference/openai.md` lists the calls.

mod answer;
mod calls;
mod embeddings;
mod error;
mod handled;
mod images;
mod job;
mod model_routes;
pub(crate) mod models;
mod resolve;
pub(crate) mod route;
mod stream;
mod stream_usage;

use axum::Router;
use axum::routing::{get, post};

pub(crate) use self::answer::JOB_ID;
pub(crate) use self::error::in_its_shape;

use self::route::Call;
use crate::state::App;

/// The routes, which are not in the OpenAPI document: their shapes are OpenAI's, and its clients call them.
pub(crate) fn router() -> Router<App> {
    let call = |call: Call| post(move |app, caller, headers, body| calls::answer(call, app, caller, headers, body));
    Router::new()
        .route("/openai/v1/models", get(model_routes::list))
        .route("/openai/v1/models/{*id}", get(model_routes::get))
        .route("/openai/v1/chat/completions", call(Call::Chat))
        .route("/openai/v1/completions", call(Call::Completions))
        .route("/openai/v1/responses", call(Call::Responses))
        .route("/openai/v1/embeddings", call(Call::Embeddings))
        .route("/openai/v1/images/generations", call(Call::Images))
}
