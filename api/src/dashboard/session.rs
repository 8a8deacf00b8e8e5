//! A browser's session: the API token, sealed into a cookie that no script of the page can read. The server stores no
//! session. It checks the token's record with every request, so that revoking the token ends the session.
//!
//! A browser sends a cookie by itself, even for a page of another site. Therefore every change requires a header that
//! such a page cannot set, and requests that come from another page are refused.

use axum::http::header::{COOKIE as COOKIES, HOST, ORIGIN};
use axum::http::{HeaderMap, Method, Uri};
use std::sync::Arc;
use std::time::Duration;
use stokehold_queue::{TokenKind, TokenRecord, now_ms};
use url::Url;

use crate::config::Config;
use crate::error::{Code, INTERNAL, Problem};
use crate::secrets::{open, seal};
use crate::state::App;
use crate::tenants::auth::prove;
use crate::tenants::token::{Scope, TokenKey, mint};

/// Name of the cookie.
pub(crate) const COOKIE: &str = "stoke_session";

/// Header that the dashboard's pages send with every change, and its value.
pub(crate) const HEADER: &str = "stokehold-request";
const DASHBOARD: &str = "dashboard";

/// Maximum duration of a session, milliseconds: half a day. It also ends with its token.
const LASTS_MS: u64 = 12 * 60 * 60 * 1000;

/// Context that is bound to the sealed text: no other sealed text is accepted as a session.
const BOUND: &[u8] = b"stokehold session 1";

/// Begins the session of a verified token. Returns its end and its `Set-Cookie`.
pub(crate) fn begin(config: &Config, token: &str, record: &TokenRecord) -> Result<(u64, String), Problem> {
    let now = now_ms();
    let expires_ms = record.expires_ms.unwrap_or(u64::MAX).min(now.saturating_add(LASTS_MS));
    let sealed = sealed(&config.token_key, token, expires_ms).map_err(|error| {
        tracing::error!(%error, "cannot seal a session");
        Problem::new(Code::Internal, INTERNAL)
    })?;
    Ok((expires_ms, set_cookie(&sealed, expires_ms.saturating_sub(now) / 1000, &config.public_url)))
}

/// Begins a session with a token that is valid for one login, which this spends. Of several concurrent logins one
/// succeeds, with a token of the same rights that is not shown elsewhere.
pub(crate) async fn begin_once(app: &App, record: &TokenRecord) -> Result<(u64, String), Problem> {
    let spent = app.db.ask("mark a token as used", app.db.registry.claim_token(&record.id)).await?;
    app.tokens.invalidate(&record.id);
    if spent.is_none_or(|spent| spent.hash != record.hash) {
        return Err(Problem::new(
            Code::Unauthorized,
            "this link was already used; run `stoke dashboard` to print another",
        ));
    }
    let scopes: Vec<Scope> = record.scopes.iter().filter_map(|scope| scope.parse().ok()).collect();
    let lasts = Duration::from_millis(LASTS_MS);
    let made = mint(TokenKind::Api, &record.tenant, &scopes, &record.name, Some(lasts), &app.config.token_key);
    let (own, token) = made.map_err(|error| {
        tracing::error!(%error, "cannot create the token of a session");
        Problem::new(Code::Internal, INTERNAL)
    })?;
    app.db.ask("store the token of a session", app.db.registry.put_token(&own)).await?;
    begin(&app.config, token.expose(), &own)
}

/// Value of the `Set-Cookie` that ends a session.
pub(crate) fn end(public_url: &str) -> String {
    set_cookie("", 0, public_url)
}

fn set_cookie(value: &str, max_age_s: u64, public_url: &str) -> String {
    let secure = if public_url.starts_with("https://") { "; Secure" } else { "" };
    format!("{COOKIE}={value}; HttpOnly; SameSite=Strict; Path=/; Max-Age={max_age_s}{secure}")
}

fn sealed(key: &TokenKey, token: &str, expires_ms: u64) -> Result<String, crate::secrets::Error> {
    seal(&key.derive("session"), BOUND, format!("{expires_ms} {token}").as_bytes())
}

/// Opens the token of a session that has not ended. Returns it with the session's end.
fn opened(key: &TokenKey, sealed: &str, now_ms: u64) -> Option<(String, u64)> {
    let text = String::from_utf8(open(&key.derive("session"), BOUND, sealed).ok()?).ok()?;
    let (expires_ms, token) = text.split_once(' ')?;
    let expires_ms = expires_ms.parse().ok().filter(|expires_ms| *expires_ms > now_ms)?;
    Some((token.to_owned(), expires_ms))
}

/// Returns whether a request has a session cookie, valid or not.
pub(crate) fn is_shown(headers: &HeaderMap) -> bool {
    cookie(headers).is_some()
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let pairs =
        headers.get_all(COOKIES).iter().filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(';'));
    pairs.filter_map(|pair| pair.trim().split_once('=')).find(|(name, _)| *name == COOKIE).map(|(_, value)| value)
}

/// The record of the token behind a request's session, and when the session ends.
pub(crate) async fn holder(app: &App, headers: &HeaderMap) -> Result<(Arc<TokenRecord>, u64), Problem> {
    let ended = || Problem::new(Code::Unauthorized, "there is no session, or it has expired; log in again");
    let sealed = cookie(headers).ok_or_else(ended)?;
    let (token, expires_ms) = opened(&app.config.token_key, sealed, now_ms()).ok_or_else(ended)?;
    let (record, _) = prove(app, &token, TokenKind::Api).await?;
    Ok((record, expires_ms))
}

/// Refuses a request that a foreign page may have caused.
pub(crate) fn check_asker(method: &Method, headers: &HeaderMap, uri: &Uri, public_url: &str) -> Result<(), Problem> {
    check_origin(headers, uri, public_url)?;
    let is_ours = headers.get(HEADER).is_some_and(|value| value == DASHBOARD);
    if is_ours || matches!(*method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    Err(Problem::new(
        Code::Forbidden,
        "a request with a session cookie requires the header Stokehold-Request: dashboard; programs send a bearer token",
    ))
}

/// Refuses a request that comes from the page of another host.
pub(crate) fn check_origin(headers: &HeaderMap, uri: &Uri, public_url: &str) -> Result<(), Problem> {
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).or(uri.authority().map(|host| host.as_str()));
    let is_here = origin.to_str().is_ok_and(|origin| {
        let same_host = origin.split_once("://").is_some_and(|(_, its)| host.is_some_and(|host| host == its));
        same_host || Url::parse(public_url).is_ok_and(|url| url.origin().ascii_serialization() == origin)
    });
    if is_here { Ok(()) } else { Err(Problem::new(Code::Forbidden, "the request comes from a page of another host")) }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    const URL: &str = "https://stoke.example";

    fn key() -> TokenKey {
        "ab".repeat(32).parse().unwrap()
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn a_session_ends_by_itself_and_no_other_key_opens_it() {
        let text = sealed(&key(), "sk_canary", 1_000).unwrap();
        assert!(!text.contains("canary"));
        assert_eq!(opened(&key(), &text, 999), Some(("sk_canary".to_owned(), 1_000)));
        assert_eq!(opened(&key(), &text, 1_000), None);
        assert_eq!(opened(&"cd".repeat(32).parse().unwrap(), &text, 999), None);
        assert_eq!(opened(&key(), &text[..text.len() - 4], 999), None);
        let another = seal(&key().derive("session"), b"another", b"2000 sk_canary").unwrap();
        assert_eq!(opened(&key(), &another, 999), None);
    }

    #[test]
    fn the_cookie_is_found_among_others_and_is_secure_where_the_api_is() {
        assert_eq!(cookie(&headers(&[("cookie", "a=b; stoke_session=x=; c=d")])), Some("x="));
        assert_eq!(cookie(&headers(&[("cookie", "not_stoke_session=x")])), None);
        let plain = set_cookie("x", 43_200, "http://127.0.0.1");
        assert_eq!(plain, "stoke_session=x; HttpOnly; SameSite=Strict; Path=/; Max-Age=43200");
        assert!(set_cookie("x", 1, URL).ends_with("; Secure"));
        assert!(end(URL).starts_with("stoke_session=; ") && end(URL).contains("Max-Age=0"));
    }

    #[test]
    fn a_foreign_page_changes_nothing() {
        let asks = |method: Method, pairs: &[(&'static str, &'static str)]| {
            check_asker(&method, &headers(pairs), &Uri::from_static("/v1/jobs"), URL).is_ok()
        };
        let ours = ("stokehold-request", "dashboard");
        assert!(asks(Method::GET, &[]) && asks(Method::HEAD, &[]));
        assert!(
            !asks(Method::POST, &[])
                && !asks(Method::DELETE, &[])
                && !asks(Method::POST, &[("stokehold-request", "x")])
        );
        assert!(asks(Method::POST, &[ours]));
        assert!(asks(Method::POST, &[ours, ("origin", URL), ("host", "inside:7070")]));
        assert!(asks(Method::POST, &[ours, ("origin", "http://127.0.0.1:7070"), ("host", "127.0.0.1:7070")]));
        for foreign in ["https://evil.example", "null", "https://stoke.example.evil.example"] {
            assert!(!asks(Method::POST, &[ours, ("origin", foreign), ("host", "stoke.example")]), "{foreign}");
            assert!(!asks(Method::GET, &[("origin", foreign), ("host", "stoke.example")]), "{foreign}");
        }
    }
}
