//! `/v1/secrets`: values that only the handlers which name them can read. The API stores them and never returns them.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json as JsonAnswer;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use stokehold_queue::registry::{SECRETS_MAX, SealedSecret, SecretPut};
use utoipa::ToSchema;

use crate::config::Config;
use crate::database;
use crate::database::Database;
use crate::endpoints::runner::check_variable;
use crate::error::{Code, Problem};
use crate::secrets::Error;
use crate::server::json::Json;
use crate::server::path::Path;
use crate::tenants::auth::{Caller, SecretsRead, SecretsRewrap, SecretsWrite};
use crate::time_format::rfc3339;

const VALUE_BYTES_MAX: usize = 32 << 10;

/// A secret's value.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SecretRequest {
    /// 1 to 32,768 bytes without a zero byte.
    value: String,
}

/// A secret, without its value, which is never returned.
#[derive(Serialize, ToSchema)]
#[schema(as = Secret)]
pub(crate) struct SecretView {
    name: String,
    /// When it was set, RFC 3339.
    updated_at: String,
    /// The id of the API key that seals it.
    key_id: String,
    /// The endpoints whose current version uses it.
    used_by: Vec<String>,
}

/// A tenant's secrets, by name.
#[derive(Serialize, ToSchema)]
pub(crate) struct SecretList {
    secrets: Vec<SecretView>,
}

/// The outcome of sealing all secrets with the current key.
#[derive(Serialize, ToSchema)]
pub(crate) struct Rewrapped {
    /// The id of the current key.
    key_id: String,
    /// The number of secrets that were sealed with another key and are now sealed with this one.
    rewrapped: u64,
    /// Secrets that cannot be opened, `<tenant>/<name>`; they are not changed.
    unreadable: Vec<String>,
}

/// Set a secret
///
/// Loaded models keep the value that they were loaded with.
#[utoipa::path(put, operation_id = "set_secret", path = "/v1/secrets/{name}", tag = "secrets", request_body = SecretRequest,
    params(("name" = String, Path, description = "The secret's name: the environment variable that handlers read.")),
    responses(
        (status = 201, description = "The secret was created.", body = SecretView),
        (status = 200, description = "The secret was replaced.", body = SecretView),
        crate::server::responses::Problems,
    ))]
pub(crate) async fn set(
    State(db): State<Arc<Database>>,
    State(config): State<Arc<Config>>,
    caller: Caller<SecretsWrite>,
    Path(name): Path<String>,
    Json(request): Json<SecretRequest>,
) -> Result<(StatusCode, JsonAnswer<SecretView>), Problem> {
    check_variable(&name, "name")?;
    let value = request.value.as_bytes();
    if value.is_empty() || value.len() > VALUE_BYTES_MAX || value.contains(&0) {
        return Err(Problem::field("/value", format!("must be 1 to {VALUE_BYTES_MAX} bytes, without a zero byte")));
    }
    let sealed = config.secret_keys.seal(&caller.tenant, &name, value).map_err(|error| defect(&error))?;
    let put = || db.registry.put_secret(&caller.tenant, &name, &sealed);
    let status = match db.ask_again("store a secret", put).await? {
        SecretPut::Created => StatusCode::CREATED,
        SecretPut::Replaced => StatusCode::OK,
        SecretPut::TooMany => {
            let message =
                format!("would be one too many: the tenant already has {SECRETS_MAX} secrets; delete an unused one");
            return Err(Problem::field("name", message));
        }
    };
    tracing::info!(tenant = caller.tenant, name, "secret set");
    let users = users(&db, &caller.tenant).await?;
    Ok((status, JsonAnswer(view(name, &sealed, &users))))
}

/// List secrets
#[utoipa::path(get, operation_id = "list_secrets", path = "/v1/secrets", tag = "secrets",
    responses((status = 200, description = "The names of the secrets, never their values.", body = SecretList), crate::server::responses::Problems))]
pub(crate) async fn list(
    State(db): State<Arc<Database>>,
    caller: Caller<SecretsRead>,
) -> Result<JsonAnswer<SecretList>, Problem> {
    let (secrets, users) =
        tokio::try_join!(db.ask("list secrets", db.registry.secrets(&caller.tenant)), users(&db, &caller.tenant))?;
    let sorted: BTreeMap<String, SealedSecret> = secrets.into_iter().collect();
    let secrets = sorted.into_iter().map(|(name, secret)| view(name, &secret, &users)).collect();
    Ok(JsonAnswer(SecretList { secrets }))
}

/// Delete a secret
///
/// Endpoints that use it cannot be loaded until it is set again.
#[utoipa::path(delete, operation_id = "delete_secret", path = "/v1/secrets/{name}", tag = "secrets",
    params(("name" = String, Path, description = "The secret's name.")),
    responses((status = 204, description = "The secret was deleted."), crate::server::responses::Problems))]
pub(crate) async fn delete(
    State(db): State<Arc<Database>>,
    caller: Caller<SecretsWrite>,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    if !db.ask("delete a secret", db.registry.delete_secret(&caller.tenant, &name)).await? {
        return Err(Problem::not_found("secret"));
    }
    tracing::info!(tenant = caller.tenant, name, "secret deleted");
    Ok(StatusCode::NO_CONTENT)
}

/// Seal every tenant's secrets with the current key
///
/// For operators, after adding a new key as the first of the API's `secret_keys`: the old key is not needed afterwards.
/// Repeating is safe.
#[utoipa::path(post, operation_id = "rewrap_secrets", path = "/v1/secrets/rewrap", tag = "secrets",
    responses((status = 200, description = "The number of secrets sealed again.", body = Rewrapped), crate::server::responses::Problems))]
pub(crate) async fn rewrap(
    State(db): State<Arc<Database>>,
    State(config): State<Arc<Config>>,
    _: Caller<SecretsRewrap>,
) -> Result<JsonAnswer<Rewrapped>, Problem> {
    let keys = &config.secret_keys;
    let mut done = Rewrapped { key_id: keys.current().to_owned(), rewrapped: 0, unreadable: Vec::new() };
    for tenant in db.ask("list the tenants with secrets", db.registry.secret_tenants()).await? {
        for (name, old) in db.ask("list secrets", db.registry.secrets(&tenant)).await? {
            match keys.reseal(&tenant, &name, &old) {
                Ok(None) => {}
                Ok(Some(new)) => {
                    let swap = db.registry.swap_secret(&tenant, &name, &old, &new);
                    // A secret that was set meanwhile is sealed with the current key.
                    done.rewrapped += u64::from(db.ask("store a secret", swap).await?);
                }
                Err(Error::Random(error)) => return Err(defect(&Error::Random(error))),
                Err(Error::UnknownKey(_) | Error::Forged) => done.unreadable.push(format!("{tenant}/{name}")),
            }
        }
    }
    done.unreadable.sort();
    tracing::info!(
        key_id = done.key_id,
        rewrapped = done.rewrapped,
        unreadable = done.unreadable.len(),
        "secrets rewrapped"
    );
    Ok(JsonAnswer(done))
}

/// Endpoints that name each secret.
async fn users(db: &Database, tenant: &str) -> Result<BTreeMap<String, Vec<String>>, database::Error> {
    let mut users: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for version in db.ask("list endpoints", db.registry.endpoints(tenant)).await? {
        for name in version.spec.secrets {
            users.entry(name).or_default().push(version.name.clone());
        }
    }
    Ok(users)
}

fn view(name: String, secret: &SealedSecret, users: &BTreeMap<String, Vec<String>>) -> SecretView {
    let used_by = users.get(&name).cloned().unwrap_or_default();
    SecretView { name, updated_at: rfc3339(secret.updated_ms), key_id: secret.key_id.clone(), used_by }
}

/// The error for a secret that an endpoint names and that does not exist.
pub(crate) fn missing(name: &str) -> Problem {
    Problem::new(Code::SecretMissing, format!("no such secret: {name}; set it with `stoke secret set {name}`"))
}

fn defect(error: &Error) -> Problem {
    tracing::error!(%error, "cannot seal a secret");
    Problem::new(Code::Internal, crate::error::INTERNAL)
}
