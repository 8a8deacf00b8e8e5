//! Authentication and authorisation of callers.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use futures::{Stream, StreamExt as _};
use stokehold_queue::{TokenKind, TokenRecord, now_ms};
use tokio::time::interval;

use crate::dashboard::session;
use crate::error::{Code, Problem};
use crate::server::peer::Address;
use crate::state::App;
use crate::tenants;
use crate::tenants::scope::{Scope, has};
use crate::tenants::token::Token;
use crate::tenants::turns::{Entry, Turn};

/// Interval of checks of the token behind a continuing response. Most checks use cached records.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The bearer of an API token with the scope `S`.
pub(crate) struct Caller<S> {
    /// Tenant whose jobs, endpoints and files the caller sees. Those of other tenants do not exist for it.
    pub(crate) tenant: String,
    /// Set when the caller may see what belongs to no single tenant, i.e. the instances.
    pub(crate) operates: bool,
    /// Record of the caller's token.
    pub(crate) token: Arc<TokenRecord>,
    /// Turn of the request, for as long as it is served.
    pub(crate) turn: Turn,
    scope: PhantomData<S>,
}

/// A scope as a type, so that a route's signature shows which scope it requires.
pub(crate) trait Asked: Send {
    const SCOPE: Scope;
}

macro_rules! asked {
    ($($name:ident)*) => {
        $(
            pub(crate) struct $name;
            impl Asked for $name {
                const SCOPE: Scope = Scope::$name;
            }
        )*
    };
}

asked! {
    JobsRead JobsSubmit JobsCancel EndpointsRead EndpointsWrite FilesRead FilesWrite WebhooksRead WebhooksWrite SecretsRead SecretsWrite
    TokensRead TokensWrite AuditRead SecretsRewrap WorkersRead WorkersJoin LimitsRead LimitsWrite TenantsRead TenantsWrite
}

impl<S: Asked> FromRequestParts<App> for Caller<S> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Admitted { token, entry } = admitted(app, parts).await?;
        demand(&token, S::SCOPE)?;
        let operates = has(&token, Scope::WorkersRead);
        let turn = entry.turn(parts).await?;
        // Read by the extractor of the body.
        parts.extensions.insert(turn.clone());
        Ok(Self { tenant: token.tenant.clone(), operates, token, turn, scope: PhantomData })
    }
}

/// `None` when the request has no token. A token that is present must be valid.
impl<S: Asked> OptionalFromRequestParts<App> for Caller<S> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Option<Self>, Problem> {
        if !parts.headers.contains_key(AUTHORIZATION) {
            return Ok(None);
        }
        <Self as FromRequestParts<App>>::from_request_parts(parts, app).await.map(Some)
    }
}

/// The API token of a request, with any scopes.
pub(crate) struct Holder(pub(crate) Arc<TokenRecord>);

impl FromRequestParts<App> for Holder {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        admitted(app, parts).await.map(|Admitted { token, .. }| Self(token))
    }
}

/// Refuses a token that lacks a scope.
pub(crate) fn demand(token: &TokenRecord, wanted: Scope) -> Result<(), Problem> {
    if has(token, wanted) {
        return Ok(());
    }
    let scope = wanted.as_str();
    Err(Problem::new(Code::Forbidden, format!("this token lacks the scope {scope}; use or create a token that has it")))
}

/// A request that has been admitted.
#[derive(Clone)]
pub(crate) struct Admitted {
    pub(crate) token: Arc<TokenRecord>,
    entry: Entry,
}

/// Admits a request by its API token, if its tenant may send requests now. The token is the bearer token, or else that
/// of the session cookie. Each request is counted once.
pub(crate) async fn admitted(app: &App, parts: &Parts) -> Result<Admitted, Problem> {
    if let Some(admitted) = parts.extensions.get::<Admitted>() {
        return Ok(admitted.clone());
    }
    let token = app.db.within("read a token", believed(app, parts)).await?;
    let entry = app.turns.enter(&token.tenant, parts).await?;
    Ok(Admitted { token, entry })
}

async fn believed(app: &App, parts: &Parts) -> Result<Arc<TokenRecord>, Problem> {
    let token = if !parts.headers.contains_key(AUTHORIZATION) && session::is_shown(&parts.headers) {
        session::check_asker(&parts.method, &parts.headers, &parts.uri, &app.config.public_url)?;
        session::holder(app, &parts.headers).await?.0
    } else {
        believe(app, parts, TokenKind::Api).await?.0
    };
    app.tenants.admit(&token.tenant).await?;
    Ok(token)
}

/// Returns whether a verified token is still valid, as far as known; for responses that continue.
pub(crate) async fn stands(app: &App, token: &TokenRecord) -> bool {
    let now = match app.tokens.get(&token.id) {
        Some(record) => record,
        None => match app.db.ask("read a token", app.db.registry.token(&token.id)).await {
            Ok(Some(record)) => app.tokens.entry_by_ref(&token.id).or_insert(Arc::new(record)).into_value(),
            Ok(None) => return false,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "a token cannot be checked again");
                return true;
            }
        },
    };
    // After a rotation, the old token stays valid for the overlap.
    let overlaps = now.spent.as_ref().is_some_and(|spent| spent.hash == token.hash && now_ms() < spent.until_ms);
    let lasts = now.expires_ms.is_none_or(|expires_ms| expires_ms > now_ms());
    let tenant = app.tenants.get(&token.tenant).await.inspect_err(|error| {
        tracing::warn!(error = error as &dyn std::error::Error, "a token's tenant cannot be checked again");
    });
    let is_disabled = tenant.is_ok_and(|tenant| tenant.disabled_ms.is_some());
    lasts && (now.hash == token.hash || overlaps) && !is_disabled
}

/// Refuses a response after a wait when the token has ended meanwhile.
pub(crate) async fn check_still(app: &App, token: &TokenRecord) -> Result<(), Problem> {
    if stands(app, token).await {
        return Ok(());
    }
    Err(Problem::new(Code::Unauthorized, "this token was revoked or expired during the request; create a new one"))
}

/// Ends a stream when its token ends.
pub(crate) fn while_valid<T>(app: App, token: Arc<TokenRecord>, items: impl Stream<Item = T>) -> impl Stream<Item = T> {
    async_stream::stream! {
        let mut items = std::pin::pin!(items);
        let mut looks = interval(LOOK_EVERY);
        loop {
            let next = tokio::select! {
                next = items.next() => next,
                _ = looks.tick() => {
                    if !stands(&app, &token).await {
                        return;
                    }
                    continue;
                }
            };
            let Some(next) = next else { return };
            yield next;
        }
    }
}

/// A worker that has joined, by its worker token.
pub(crate) struct JoinedWorker {
    /// ID of the worker, which changes with each join.
    pub(crate) worker_id: String,
    /// Record of the worker's token.
    pub(crate) token: Arc<TokenRecord>,
}

impl FromRequestParts<App> for JoinedWorker {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let (token, _) = believe(app, parts, TokenKind::Worker).await?;
        if let Some(machine) = &token.machine {
            app.instances.check_here(machine).await?;
        }
        app.evictions.check_stays(&token.name).await?;
        Ok(Self { worker_id: token.name.clone(), token })
    }
}

/// The bearer of a join token. A single-use one is not spent yet.
pub(crate) struct Joiner {
    pub(crate) token: Arc<TokenRecord>,
    /// The hash of the record that proves the token.
    pub(crate) hash: String,
}

impl FromRequestParts<App> for Joiner {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let (token, hash) = believe(app, parts, TokenKind::Join).await?;
        tenants::check_enabled(&*app.tenants.get(&token.tenant).await?)?;
        Ok(Self { token, hash })
    }
}

/// Returns the record of the request's bearer token, if the token is valid and of this kind, and the hash that proves
/// it.
async fn believe(app: &App, parts: &Parts, kind: TokenKind) -> Result<(Arc<TokenRecord>, String), Problem> {
    let refused = |detail: &'static str| Problem::new(Code::Unauthorized, detail);
    let header = parts
        .headers
        .get(AUTHORIZATION)
        .ok_or_else(|| refused("the request has no token; send the header Authorization: Bearer <token>"))?;
    let text = header
        .to_str()
        .ok()
        .and_then(|text| text.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map_or("", |(_, text)| text.trim());
    let proven = prove(app, text, kind).await;
    // A refused worker must receive exactly this error, because it then joins anew.
    if kind != TokenKind::Api {
        return proven;
    }
    proven.map_err(|problem| app.tenants.failed_log_in(Address::of(&app.config, parts), problem))
}

/// Like [`believe`], for the text of a token.
pub(crate) async fn prove(app: &App, text: &str, kind: TokenKind) -> Result<(Arc<TokenRecord>, String), Problem> {
    let (record, hash) = proven(app, text, kind).await?;
    if record.single_use && kind == TokenKind::Api {
        return Err(Problem::new(Code::Unauthorized, "this token is valid only for one login to the dashboard"));
    }
    Ok((record, hash))
}

/// Like [`prove`], but also accepts a token that is valid for one login, which this spends.
pub(crate) async fn proven(app: &App, text: &str, kind: TokenKind) -> Result<(Arc<TokenRecord>, String), Problem> {
    let refused = |detail: &'static str| Problem::new(Code::Unauthorized, detail);
    let token = Token::parse(text)
        .ok_or_else(|| refused("this is not a token; copy the whole token as `stoke token create` printed it"))?;
    if token.kind != kind {
        return Err(refused(match kind {
            TokenKind::Api => "this route requires an API token (sk_...)",
            TokenKind::Join => "this route requires a join token (jt_...)",
            TokenKind::Worker => "this route requires a worker token (wt_...), which POST /v1/worker/join returns",
        }));
    }
    // A join token is read from Redis each time: a single-use one may be spent by now.
    let known = app.tokens.get(token.id).filter(|_| kind != TokenKind::Join);
    let proven =
        known.and_then(|record| Some((record.clone(), token.proof(&record, &app.config.token_key)?.to_owned())));
    if let Some(proven) = proven {
        return Ok(proven);
    }
    // The token is not cached, or was rotated since it was read.
    let unknown = || refused("this token is unknown, revoked or expired; create a new one");
    let Some(record) = app.db.ask("read a token", app.db.registry.token(token.id)).await? else {
        app.tokens.invalidate(token.id);
        return Err(unknown());
    };
    let hash = token.proof(&record, &app.config.token_key).ok_or_else(unknown)?.to_owned();
    let record = Arc::new(record);
    if kind != TokenKind::Worker {
        app.token_last_used.note(token.id);
    }
    if kind != TokenKind::Join {
        app.tokens.insert(token.id.to_owned(), record.clone());
    }
    Ok((record, hash))
}
