//! `/openai/v1`: the API of OpenAI, so that its clients work after a change of their base URL and key. A call becomes a
//! job of the endpoint that its `model` names. `docs/reference/openai.md` lists the calls.

mod answer;
mod batch_routes;
mod batch_view;
mod calls;
mod embeddings;
mod error;
pub(crate) mod expiry;
mod file_routes;
pub(crate) mod files;
mod handled;
mod image_edit_routes;
mod images;
mod job;
pub(crate) mod lines;
mod model_routes;
pub(crate) mod models;
mod multipart;
pub(crate) mod outputs;
mod resolve;
pub(crate) mod route;
mod stream;
mod stream_usage;
mod upload_routes;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, post};

pub(crate) use self::answer::JOB_ID;
pub(crate) use self::error::in_its_shape;

use self::route::Call;
use crate::state::App;
use crate::tenants::audit;

/// The routes, which are not in the OpenAPI document: their shapes are OpenAI's, and its clients call them.
pub(crate) fn router(app: &App) -> Router<App> {
    // Changes that are recorded where the native API makes them, too.
    let recorded = || from_fn_with_state(app.clone(), audit::record);
    let file = get(file_routes::get).merge(delete(file_routes::delete).layer(recorded()));
    let call = |call: Call| post(move |app, caller, headers, body| calls::answer(call, app, caller, headers, body));
    Router::new()
        .route("/openai/v1/models", get(model_routes::list))
        .route("/openai/v1/models/{*id}", get(model_routes::get))
        .route("/openai/v1/chat/completions", call(Call::Chat))
        .route("/openai/v1/completions", call(Call::Completions))
        .route("/openai/v1/responses", call(Call::Responses))
        .route("/openai/v1/embeddings", call(Call::Embeddings))
        .route("/openai/v1/images/generations", call(Call::Images))
        .route("/openai/v1/images/edits", post(image_edit_routes::answer))
        .route("/openai/v1/files", post(upload_routes::upload).get(file_routes::list))
        .route("/openai/v1/files/{id}", file)
        .route("/openai/v1/files/{id}/content", get(file_routes::content))
        .route("/openai/v1/batches", post(batch_routes::create).get(batch_routes::list))
        .route("/openai/v1/batches/{id}", get(batch_routes::get))
        .route("/openai/v1/batches/{id}/cancel", post(batch_routes::cancel).layer(recorded()))
}
