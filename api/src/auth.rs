//! Who is calling, and whether they may.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use moka::sync::Cache;
use stokehold_queue::{TokenKind, TokenRecord, now_ms};

use crate::error::{Code, Problem};
use crate::rented;
use crate::session;
use crate::state::App;
use crate::token::{Scope, Token};

/// A revoked token is refused after this long at the latest.
const BELIEVED_FOR: Duration = Duration::from_secs(5);

/// Records of tokens that proved themselves lately. The proof itself is asked for every time.
pub(crate) fn cache() -> Cache<String, Arc<TokenRecord>> {
    Cache::builder().max_capacity(10_000).time_to_live(BELIEVED_FOR).build()
}

/// The bearer of an API token with the scope `S`.
pub(crate) struct Caller<S> {
    /// Whose jobs, endpoints and files they see: no others exist for them.
    pub(crate) tenant: String,
    /// Whether they may see what belongs to no tenant alone: the machines.
    pub(crate) operates: bool,
    scope: PhantomData<S>,
}

/// A scope as a type, so that a route's signature says what it asks for.
pub(crate) trait Asked: Send {
    const SCOPE: Scope;
}

macro_rules! scopes {
    ($($name:ident)*) => {
        $(
            pub(crate) struct $name;
            impl Asked for $name {
                const SCOPE: Scope = Scope::$name;
            }
        )*
    };
}

scopes! { JobsRead JobsWrite EndpointsRead EndpointsWrite FilesRead FilesWrite WebhooksRead WebhooksWrite SecretsRead SecretsWrite SecretsRewrap WorkersRead LimitsRead LimitsWrite }

impl<S: Asked> FromRequestParts<App> for Caller<S> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let token = holder(app, parts).await?;
        demand(&token, S::SCOPE)?;
        let operates = has(&token, Scope::WorkersRead);
        Ok(Self { tenant: token.tenant.clone(), operates, scope: PhantomData })
    }
}

/// `None` where no token is shown. One that is shown must be good.
impl<S: Asked> OptionalFromRequestParts<App> for Caller<S> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Option<Self>, Problem> {
        if !parts.headers.contains_key(AUTHORIZATION) {
            return Ok(None);
        }
        <Self as FromRequestParts<App>>::from_request_parts(parts, app).await.map(Some)
    }
}

/// Whoever shows an API token, whatever its scopes.
pub(crate) struct Holder(pub(crate) Arc<TokenRecord>);

impl FromRequestParts<App> for Holder {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        holder(app, parts).await.map(Self)
    }
}

/// Whether a token has a scope.
pub(crate) fn has(token: &TokenRecord, wanted: Scope) -> bool {
    token.scopes.iter().any(|scope| scope == wanted.as_str())
}

/// Refuses a token that lacks a scope.
pub(crate) fn demand(token: &TokenRecord, wanted: Scope) -> Result<(), Problem> {
    if has(token, wanted) {
        return Ok(());
    }
    let scope = wanted.as_str();
    Err(Problem::new(Code::Forbidden, format!("this token lacks the scope {scope}; make one that has it")))
}

/// The record of the API token that a request shows: as a bearer or, where it shows none, by the cookie of a session.
async fn holder(app: &App, parts: &Parts) -> Result<Arc<TokenRecord>, Problem> {
    if !parts.headers.contains_key(AUTHORIZATION) && session::is_shown(&parts.headers) {
        session::check_asker(&parts.method, &parts.headers, &parts.uri, &app.config.public_url)?;
        return session::holder(app, &parts.headers).await.map(|(record, _)| record);
    }
    believe(app, parts, TokenKind::Api).await.map(|(record, _)| record)
}

/// Whether a token that was good is so still, as far as can be told: for answers that go on.
pub(crate) async fn stands(app: &App, token: &TokenRecord) -> bool {
    let now = match app.tokens.get(&token.id) {
        Some(record) => record,
        None => match app.ask("read a token", app.registry.token(&token.id)).await {
            Ok(Some(record)) => app.tokens.entry_by_ref(&token.id).or_insert(Arc::new(record)).into_value(),
            Ok(None) => return false,
            Err(_) => return true,
        },
    };
    now.hash == token.hash && now.expires_ms.is_none_or(|expires_ms| expires_ms > now_ms())
}

/// A worker that has joined, by its worker token.
pub(crate) struct JoinedWorker {
    /// Its id for this life.
    pub(crate) worker_id: String,
    /// Its token's record.
    pub(crate) token: Arc<TokenRecord>,
}

impl FromRequestParts<App> for JoinedWorker {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let (token, _) = believe(app, parts, TokenKind::Worker).await?;
        if let Some(machine) = &token.machine {
            rented::check_here(app, machine).await?;
        }
        Ok(Self { worker_id: token.name.clone(), token })
    }
}

/// The bearer of a join token. A single-use one is not spent yet.
pub(crate) struct Joiner {
    pub(crate) token: Arc<TokenRecord>,
    /// Which of its record's hashes proves it.
    pub(crate) hash: String,
}

impl FromRequestParts<App> for Joiner {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let (token, hash) = believe(app, parts, TokenKind::Join).await?;
        Ok(Self { token, hash })
    }
}

/// The record behind the request's bearer token, if the token is good and of this kind, and which of its hashes proves that.
async fn believe(app: &App, parts: &Parts, kind: TokenKind) -> Result<(Arc<TokenRecord>, String), Problem> {
    let refused = |detail: &'static str| Problem::new(Code::Unauthorized, detail);
    let header = parts
        .headers
        .get(AUTHORIZATION)
        .ok_or_else(|| refused("there is no token; send the header Authorization: Bearer <token>"))?;
    let text = header
        .to_str()
        .ok()
        .and_then(|text| text.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map_or("", |(_, text)| text.trim());
    prove(app, text, kind).await
}

/// As [`believe`], of a token's text.
pub(crate) async fn prove(app: &App, text: &str, kind: TokenKind) -> Result<(Arc<TokenRecord>, String), Problem> {
    let refused = |detail: &'static str| Problem::new(Code::Unauthorized, detail);
    let token = Token::parse(text)
        .ok_or_else(|| refused("this is not a token; copy the whole of it, as `stoke token create` printed it"))?;
    if token.kind != kind {
        return Err(refused(match kind {
            TokenKind::Api => "this route wants an API token (sk_...)",
            TokenKind::Join => "this route wants a join token (jt_...)",
            TokenKind::Worker => "this route wants a worker token (wt_...), which join answers",
        }));
    }
    let known = app.tokens.get(token.id);
    let record = match known {
        Some(record) => record,
        None => Arc::new(
            app.ask("read a token", app.registry.token(token.id))
                .await?
                .ok_or_else(|| refused("this token is unknown, revoked or expired; make a new one"))?,
        ),
    };
    let proof = token.proof(&record, &app.config.token_key);
    let hash = proof.ok_or_else(|| refused("this token is unknown, revoked or expired; make a new one"))?.to_owned();
    // A join token is read afresh each time: a single-use one may be spent by now.
    if kind != TokenKind::Join {
        app.tokens.entry_by_ref(token.id).or_insert(record.clone());
    }
    Ok((record, hash))
}
