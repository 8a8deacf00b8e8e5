//! `/v1/tokens`: a tenant's own tokens. Tokens with the scope for it create, rotate and revoke them, and cannot grant a
//! scope that they lack.

use std::sync::Arc;
use std::time::Duration;

use axum::Json as JsonAnswer;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use stokehold_queue::requirements::Trust;
use stokehold_queue::{TokenKind, TokenRecord};
use utoipa::ToSchema;

use crate::config::Config;
use crate::database::Database;
use crate::error::{Code, Problem};
use crate::names;
use crate::server::json::Json;
use crate::server::path::Path;
use crate::server::query::Params;
use crate::tenants::TokenCache;
use crate::tenants::audit::Touched;
use crate::tenants::auth::{Caller, TokensRead, TokensWrite, demand};
use crate::tenants::routes::is_there;
use crate::tenants::scope::{Role, Scope, has};
use crate::tenants::token;
use crate::tenants::token::{Error, Secret};
use crate::time_format::rfc3339;
use crate::workers::evicted::Evictions;

/// Maximum number of tokens of one tenant.
const TOKENS_MAX: usize = 1_000;

/// Allowed validity of a token, seconds: at least a minute and, if it expires at all, at most ten years.
const TTL_S: std::ops::RangeInclusive<u64> = 60..=10 * 365 * 24 * 3600;

/// Default overlap after a rotation, and the longest one: a week. Seconds.
const OVERLAP_S: u64 = 24 * 3600;
const OVERLAP_S_MAX: u64 = 7 * 24 * 3600;

const NAME_CHARS_MAX: usize = 64;

/// A token to create: with roles, scopes or both.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenRequest {
    /// The token's name, 1 to 64 characters.
    name: String,
    /// The user of the token, at most 64 characters.
    user: Option<String>,
    /// Roles: predefined sets of scopes. `worker` cannot be combined with others; it creates a join token.
    #[serde(default)]
    #[schema(value_type = Vec<RoleWord>)]
    roles: Vec<String>,
    /// Additional scopes, e.g. `jobs:read`.
    #[serde(default)]
    scopes: Vec<String>,
    /// When the token expires, in seconds from now: 60 to ten years. Default: never.
    ttl_s: Option<u64>,
    /// For operators: the tenant of the token. Default: your own.
    tenant: Option<String>,
    /// For a join token: the owner of the machines that join with it. Default `owned`.
    #[schema(value_type = Option<TrustWord>)]
    trust: Option<String>,
    /// For a join token: the region of those machines, as endpoints name it.
    region: Option<String>,
    /// For a join token: only one worker may join with it.
    #[serde(default)]
    single_use: bool,
}

/// A rotation.
#[derive(Deserialize, Default, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RotateRequest {
    /// How long the previous secret stays valid, in seconds: 0 to 604,800, default 86,400.
    overlap_s: Option<u64>,
    /// When the new secret expires, in seconds from now. Default: the same lifetime as the previous one had when it was
    /// created.
    ttl_s: Option<u64>,
}

/// A predefined set of scopes.
#[derive(ToSchema)]
#[schema(as = Role, rename_all = "snake_case")]
#[expect(dead_code, reason = "variant names of the role's type, for the OpenAPI document")]
pub(crate) enum RoleWord {
    Submit,
    Read,
    Cancel,
    Deploy,
    Admin,
    Operator,
    Worker,
}

/// The owner of a machine.
#[derive(ToSchema)]
#[schema(as = TokenTrust, rename_all = "snake_case")]
#[expect(dead_code, reason = "variant names of the queue's type, for the OpenAPI document")]
pub(crate) enum TrustWord {
    Community,
    Datacenter,
    Owned,
}

/// The kind of a token.
#[derive(ToSchema)]
#[schema(as = TokenKind, rename_all = "snake_case")]
#[expect(dead_code, reason = "variant names of the registry's type, for the OpenAPI document")]
pub(crate) enum KindWord {
    Api,
    Join,
}

/// A token, without its secret, which is returned only once.
#[derive(Serialize, ToSchema)]
#[schema(as = Token)]
pub(crate) struct TokenView {
    /// The part of the token after the first `_`.
    id: String,
    #[schema(value_type = KindWord)]
    kind: TokenKind,
    tenant: String,
    name: String,
    /// The user of the token, if set.
    user: Option<String>,
    /// The token's scopes; none for a join token.
    scopes: Vec<String>,
    /// RFC 3339.
    created_at: String,
    /// RFC 3339; null: the token does not expire.
    expires_at: Option<String>,
    /// When the token was last used, RFC 3339, within a minute or two; null: not in the last 400 days.
    last_used_at: Option<String>,
    /// Until when the secret before the last rotation is also valid, RFC 3339.
    previous_until: Option<String>,
    /// For a join token: the owner of the machines that join with it; null for an API token.
    #[schema(value_type = Option<TrustWord>)]
    trust: Option<Trust>,
    /// For a join token: the region of those machines, as endpoints name it; null if none is set.
    region: Option<String>,
    /// Whether only one worker may join with it.
    single_use: bool,
}

/// Tokens, by name.
#[derive(Serialize, ToSchema)]
pub(crate) struct TokenList {
    tokens: Vec<TokenView>,
}

/// A created token.
#[derive(Serialize, ToSchema)]
pub(crate) struct NewToken {
    /// The token itself, returned only once.
    token: String,
    /// The token's stored record.
    record: TokenView,
}

impl TokenView {
    fn new(record: TokenRecord, used_ms: Option<u64>) -> Self {
        let TokenRecord { id, kind, tenant, name, user, scopes, created_ms, expires_ms, spent, .. } = record;
        let TokenRecord { trust, region, single_use, .. } = record;
        Self {
            id,
            kind,
            tenant,
            name,
            user: Some(user).filter(|user| !user.is_empty()),
            scopes,
            created_at: rfc3339(created_ms),
            expires_at: expires_ms.map(rfc3339),
            last_used_at: used_ms.map(rfc3339),
            previous_until: spent.map(|spent| rfc3339(spent.until_ms)),
            trust: (kind == TokenKind::Join).then_some(trust),
            region: Some(region).filter(|region| !region.is_empty()),
            single_use,
        }
    }
}

/// Create a token
///
/// A token can grant only scopes that it has itself. Do not repeat this blindly: if the outcome is unknown, list the
/// tokens and revoke the one whose secret you did not receive.
#[utoipa::path(post, operation_id = "create_token", path = "/v1/tokens", tag = "access", request_body = TokenRequest,
    responses((status = 201, description = "The token. Its secret is returned only here.", body = NewToken), crate::server::responses::Problems))]
pub(crate) async fn create(
    State(db): State<Arc<Database>>,
    State(config): State<Arc<Config>>,
    caller: Caller<TokensWrite>,
    Json(request): Json<TokenRequest>,
) -> Result<(StatusCode, Extension<Touched>, JsonAnswer<NewToken>), Problem> {
    let tenant = whose(&db, &caller.token, request.tenant.as_deref()).await?;
    let wanted = request.checked()?;
    check_grant(&caller.token, &wanted)?;
    let known = db.ask("list tokens", db.registry.tokens_of(&tenant)).await?;
    if known.len() >= TOKENS_MAX {
        return Err(Problem::field(
            "/name",
            format!("would be one too many: the tenant already has {TOKENS_MAX} tokens; revoke some"),
        ));
    }
    let ttl = request.ttl_s.map(Duration::from_secs);
    let minted = token::mint(wanted.kind, &tenant, &wanted.scopes, &request.name, ttl, &config.token_key);
    let (mut record, secret) = minted.map_err(|error| not_made(&error))?;
    record.user = request.user.unwrap_or_default();
    record.trust = wanted.trust.unwrap_or(record.trust);
    record.region = request.region.unwrap_or_default();
    record.single_use = request.single_use;
    db.ask_again("store a token", || db.registry.put_token(&record)).await?;
    Ok((StatusCode::CREATED, touched(&record), JsonAnswer(shown(record, &secret))))
}

/// List tokens
#[utoipa::path(get, operation_id = "list_tokens", path = "/v1/tokens", tag = "access",
    params(("tenant" = Option<String>, Query, description = "For operators: the tenant whose tokens to list.")),
    responses((status = 200, description = "The stored records of the tokens, without their secrets.", body = TokenList), crate::server::responses::Problems))]
pub(crate) async fn list(
    State(db): State<Arc<Database>>,
    caller: Caller<TokensRead>,
    mut params: Params,
) -> Result<JsonAnswer<TokenList>, Problem> {
    let tenant = params.take("tenant", "a tenant's name", |text| names::is_name(text).then(|| text.to_owned()))?;
    params.finish()?;
    let tenant = tenant.unwrap_or_else(|| caller.tenant.clone());
    if tenant != caller.tenant {
        demand(&caller.token, Scope::TenantsRead)?;
    }
    let tokens = db.ask("list tokens", db.registry.tokens_of(&tenant)).await?;
    let mut uses = db.ask("read when tokens were last used", db.registry.uses(&tokens)).await?;
    let view = |record: TokenRecord| {
        let used_ms = uses.remove(&record.id);
        TokenView::new(record, used_ms)
    };
    Ok(JsonAnswer(TokenList { tokens: tokens.into_iter().map(view).collect() }))
}

/// Rotate a token
///
/// Creates a new secret for the same token. The previous secret stays valid for the overlap; the one before it becomes
/// invalid immediately. If the outcome is unknown, rotate again.
#[utoipa::path(post, operation_id = "rotate_token", path = "/v1/tokens/{id}/rotate", tag = "access", request_body = RotateRequest,
    params(("id" = String, Path, description = "The token's id.")),
    responses((status = 200, description = "The token with its new secret, which is returned only here.", body = NewToken), crate::server::responses::Problems))]
pub(crate) async fn rotate(
    State(db): State<Arc<Database>>,
    State(config): State<Arc<Config>>,
    State(tokens): State<TokenCache>,
    caller: Caller<TokensWrite>,
    Path(id): Path<String>,
    Json(request): Json<RotateRequest>,
) -> Result<(Extension<Touched>, JsonAnswer<NewToken>), Problem> {
    let record = reachable(&db, &caller.token, &id).await?;
    // The bearer of the new secret gets all rights of the token.
    check_grant(&caller.token, &Wanted::of(&record))?;
    let overlap_s = request.overlap_s.unwrap_or(OVERLAP_S);
    if overlap_s > OVERLAP_S_MAX {
        return Err(Problem::field("/overlap_s", format!("must be 0 to {OVERLAP_S_MAX}")));
    }
    check_ttl(request.ttl_s)?;
    let (overlap, ttl) = (Duration::from_secs(overlap_s), request.ttl_s.map(Duration::from_secs));
    let rotated = token::rotated(&record, overlap, ttl, &config.token_key);
    let (next, secret) = rotated.map_err(|error| not_made(&error))?;
    if !db.ask("rotate a token", db.registry.swap_token(&record.hash, &next)).await? {
        return Err(Problem::new(
            Code::Unavailable,
            "this token was rotated or revoked at the same moment; list the tokens, then try again",
        ));
    }
    tokens.invalidate(&id);
    Ok((touched(&next), JsonAnswer(shown(next, &secret))))
}

/// Revoke a token
///
/// Every replica refuses it within five seconds. Workers that joined with it stay, unless `with_workers` evicts them as
/// `evict_worker` does. This also works for a join token that was used or revoked earlier.
#[utoipa::path(delete, operation_id = "revoke_token", path = "/v1/tokens/{id}", tag = "access",
    params(
        ("id" = String, Path, description = "The token's id."),
        ("with_workers" = Option<bool>, Query, description = "For a join token: evict the workers that joined with it. Default: false."),
    ),
    responses((status = 204, description = "The token was revoked."), crate::server::responses::Problems))]
pub(crate) async fn revoke(
    State(db): State<Arc<Database>>,
    State(tokens): State<TokenCache>,
    State(evictions): State<Arc<Evictions>>,
    caller: Caller<TokensWrite>,
    Path(id): Path<String>,
    mut params: Params,
) -> Result<(StatusCode, Extension<Touched>), Problem> {
    let with_workers = params.take("with_workers", "true or false", |text| text.parse().ok())?.unwrap_or(false);
    params.finish()?;
    if with_workers {
        demand(&caller.token, Scope::WorkersJoin)?;
    }
    let touched = match reachable(&db, &caller.token, &id).await {
        Ok(record) => {
            // Any token that may revoke tokens may revoke all tokens of its tenant: a leaked token must be revocable by
            // every administrator.
            let wanted = Wanted::of(&record);
            let operators = wanted.scopes.iter().copied().filter(|scope| scope.is_operators()).collect();
            check_grant(&caller.token, &Wanted { scopes: operators, ..wanted })?;
            db.ask_again("revoke a token", || db.registry.delete_token(&id)).await?;
            tokens.invalidate(&id);
            touched(&record)
        }
        // The token was spent or revoked before, but workers that joined with it are still connected.
        Err(problem) if with_workers && problem.code() == Code::NotFound => {
            Extension(Touched { object: id.clone(), tenant: caller.tenant.clone() })
        }
        Err(problem) => return Err(problem),
    };
    if with_workers {
        evict_joined(&db, &evictions, &id).await?;
    }
    Ok((StatusCode::NO_CONTENT, touched))
}

/// Evicts the workers that have joined with a token.
async fn evict_joined(db: &Database, evictions: &Evictions, token_id: &str) -> Result<(), Problem> {
    for worker in db.ask("list workers", db.registry.workers()).await? {
        if worker.joined_with.as_deref() == Some(token_id) {
            evictions.evict(&worker).await?;
        }
    }
    Ok(())
}

/// The rights of a new token.
struct Wanted {
    kind: TokenKind,
    scopes: Vec<Scope>,
    trust: Option<Trust>,
}

impl Wanted {
    fn of(record: &TokenRecord) -> Self {
        let scopes = record.scopes.iter().filter_map(|word| word.parse().ok()).collect();
        Self { kind: record.kind, scopes, trust: Some(record.trust) }
    }
}

impl TokenRequest {
    fn checked(&self) -> Result<Wanted, Problem> {
        let is_text = |text: &str| text.chars().count() <= NAME_CHARS_MAX && !text.chars().any(char::is_control);
        if self.name.is_empty() || !is_text(&self.name) {
            return Err(Problem::field("/name", "must be 1 to 64 printable characters"));
        }
        if !self.user.iter().chain(&self.region).all(|text| is_text(text)) {
            return Err(Problem::field("/user", "and region must be at most 64 printable characters"));
        }
        check_ttl(self.ttl_s)?;
        let read = |at: &str, error: Error| Problem::field(at, error.to_string());
        let roles = self.roles.iter().map(|word| word.parse());
        let roles: Vec<Role> = roles.collect::<Result<_, _>>().map_err(|error| read("/roles", error))?;
        let scopes = self.scopes.iter().map(|word| word.parse());
        let scopes: Vec<Scope> = scopes.collect::<Result<_, _>>().map_err(|error| read("/scopes", error))?;
        let joins = roles.contains(&Role::Worker);
        if joins && (roles.len() > 1 || !scopes.is_empty()) {
            return Err(Problem::field("/roles", "worker cannot be combined: a join token has no scopes"));
        }
        if !joins && (self.trust.is_some() || self.region.is_some() || self.single_use) {
            return Err(Problem::field("/roles", "must be worker to set trust, region or single_use"));
        }
        let trust = self.trust.as_deref().map(|word| {
            let known = [Trust::Community, Trust::Datacenter, Trust::Owned].into_iter().find(|it| it.as_str() == word);
            known.ok_or_else(|| Problem::field("/trust", "must be community, datacenter or owned"))
        });
        let scopes = Role::union(&roles, &scopes);
        if !joins && scopes.is_empty() {
            let roles = Role::ALL.map(Role::as_str).join(", ");
            return Err(Problem::field(
                "/roles",
                format!("must name at least one of {roles}, or scopes must not be empty"),
            ));
        }
        let kind = if joins { TokenKind::Join } else { TokenKind::Api };
        Ok(Wanted { kind, scopes, trust: trust.transpose()? })
    }
}

fn check_ttl(ttl_s: Option<u64>) -> Result<(), Problem> {
    match ttl_s {
        Some(ttl_s) if !TTL_S.contains(&ttl_s) => {
            Err(Problem::field("/ttl_s", format!("must be {} to {}", TTL_S.start(), TTL_S.end())))
        }
        _ => Ok(()),
    }
}

/// Checks that the caller has the rights that it grants.
fn check_grant(giver: &TokenRecord, wanted: &Wanted) -> Result<(), Problem> {
    if wanted.kind != TokenKind::Api {
        return demand(giver, Scope::WorkersJoin);
    }
    match wanted.scopes.iter().find(|scope| !has(giver, **scope)) {
        None => Ok(()),
        Some(lacking) => {
            let detail = format!(
                "this token lacks the scope {}, and a token can grant only scopes that it has itself",
                lacking.as_str()
            );
            Err(Problem::new(Code::Forbidden, detail))
        }
    }
}

/// Tenant for which a token is made.
async fn whose(db: &Database, giver: &TokenRecord, named: Option<&str>) -> Result<String, Problem> {
    match named {
        Some(other) if other != giver.tenant => {
            demand(giver, Scope::TenantsWrite)?;
            if !is_there(db, other).await? {
                return Err(Problem::field("/tenant", "no such tenant; `stoke tenant create` creates one"));
            }
            Ok(other.to_owned())
        }
        _ => Ok(giver.tenant.clone()),
    }
}

/// Returns a token that the caller may see: one of its tenant, or any for an operator. Workers' tokens are never
/// visible.
async fn reachable(db: &Database, caller: &TokenRecord, id: &str) -> Result<TokenRecord, Problem> {
    let is_id = id.len() == 16 && id.bytes().all(|b| b.is_ascii_hexdigit());
    let found = if is_id { db.ask("read a token", db.registry.token(id)).await? } else { None };
    let is_theirs = |record: &TokenRecord| record.tenant == caller.tenant || has(caller, Scope::TenantsWrite);
    let found = found.filter(|record| record.kind != TokenKind::Worker && is_theirs(record));
    found.ok_or_else(|| Problem::not_found("token"))
}

fn shown(record: TokenRecord, secret: &Secret) -> NewToken {
    NewToken { token: secret.expose().to_owned(), record: TokenView::new(record, None) }
}

fn touched(record: &TokenRecord) -> Extension<Touched> {
    let object = format!("{} {}", record.id, record.name);
    Extension(Touched { object, tenant: record.tenant.clone() })
}

fn not_made(error: &Error) -> Problem {
    tracing::error!(%error, "cannot create a token");
    Problem::new(Code::Internal, crate::error::INTERNAL)
}
