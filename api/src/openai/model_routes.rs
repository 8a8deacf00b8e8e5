//! `GET /openai/v1/models`: the endpoints that speak the API of OpenAI.

use std::sync::Arc;

use axum::Json as JsonAnswer;
use axum::extract::State;
use serde::Serialize;

use super::error::Error;
use super::models::Models;
use super::resolve::resolve;
use super::route::speaks;
use crate::server::path::Path;
use crate::state::App;
use crate::tenants::auth::{Caller, JobsSubmit};

/// A model in OpenAI's form.
#[derive(Serialize)]
pub(super) struct ModelView {
    id: String,
    object: &'static str,
    created: u64,
    owned_by: String,
}

#[derive(Serialize)]
pub(super) struct ModelList {
    object: &'static str,
    data: Vec<ModelView>,
}

/// `GET /openai/v1/models`.
pub(super) async fn list(
    State(models): State<Arc<Models>>,
    caller: Caller<JobsSubmit>,
) -> Result<JsonAnswer<ModelList>, Error> {
    let listed = models.of(&caller.tenant).await?;
    let mut data: Vec<ModelView> = Vec::with_capacity(listed.len());
    // An endpoint's own name comes before the same name of another one.
    for listed in listed.iter() {
        let is_own = listed.model == listed.endpoint;
        let known = data.iter_mut().find(|view| view.id == listed.model);
        match known {
            Some(view) if is_own => view.created = listed.created_s,
            Some(_) => {}
            None => data.push(view(listed.model.clone(), listed.created_s, &caller.tenant)),
        }
    }
    Ok(JsonAnswer(ModelList { object: "list", data }))
}

/// `GET /openai/v1/models/{id}`.
pub(super) async fn get(
    State(app): State<App>,
    caller: Caller<JobsSubmit>,
    Path(id): Path<String>,
) -> Result<JsonAnswer<ModelView>, Error> {
    let model = resolve(&app, &caller.tenant, &id).await?;
    let version = &model.target.deployed.version;
    if !speaks(&version.spec) {
        return Err(Error::no_model(&id, Some("this endpoint does not speak the API of OpenAI")));
    }
    Ok(JsonAnswer(view(id, version.created_ms / 1000, &caller.tenant)))
}

fn view(id: String, created: u64, tenant: &str) -> ModelView {
    ModelView { id, object: "model", created, owned_by: tenant.to_owned() }
}
