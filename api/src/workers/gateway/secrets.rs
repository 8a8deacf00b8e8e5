use axum::Json as JsonAnswer;
use axum::extract::State;
use stokehold_queue::Queue;
use stokehold_queue::gateway::{ModelRef, SecretsReply, SecretsRequest};

use super::BODY_MAX;
use crate::error::{Code, Problem};
use crate::secrets::routes::missing;
use crate::server::json::Json;
use crate::state::App;
use crate::tenants::auth::JoinedWorker;

/// `secrets`: returns the secrets of a model's version, with which to load it. Only for a worker that holds a job of
/// that version or must keep it loaded.
pub(super) async fn secrets(
    State(app): State<App>,
    worker: JoinedWorker,
    Json(SecretsRequest { model, lease }): Json<SecretsRequest, BODY_MAX>,
) -> Result<JsonAnswer<SecretsReply>, Problem> {
    let may = match &lease {
        Some(lease) => {
            app.ownership.check_own(&worker.worker_id, lease).await?;
            let held = app.db.ask("check a lease", app.db.queue.held(lease)).await?;
            held.is_some_and(|(spec, _)| {
                model == ModelRef { tenant: spec.tenant, endpoint: spec.endpoint, version: spec.version }
            })
        }
        None => app.advisor.is_to_keep(&worker.worker_id, &model).await?,
    };
    if !may {
        return Err(Problem::new(
            Code::StaleFence,
            "this worker neither holds a job of that model nor has to keep it loaded",
        ));
    }
    let ModelRef { tenant, endpoint, version } = &model;
    let named = &app.catalog.resolve(tenant, endpoint, Some(*version)).await?.version.spec.secrets;
    let sealed = app.db.ask("read secrets", app.db.registry.secrets(tenant)).await?;
    let opened = named.iter().map(|name| {
        let secret = sealed.get(name).ok_or_else(|| missing(name))?;
        let unreadable =
            |why: String| Problem::new(Code::SecretMissing, format!("the secret {name} cannot be read: {why}"));
        let value = app.config.secret_keys.open(tenant, name, secret).map_err(|error| unreadable(error.to_string()))?;
        let value = String::from_utf8(value).map_err(|_| unreadable("it is not text".to_owned()))?;
        Ok((name.clone(), value))
    });
    Ok(JsonAnswer(SecretsReply { secrets: opened.collect::<Result<_, Problem>>()? }))
}
