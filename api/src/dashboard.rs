//! The dashboard at `/dashboard`: the page built by Vite, as bytes in the binary. The page is public; it requests its
//! data from `/v1`.

pub(crate) mod live;
pub(crate) mod live_routes;
pub(crate) mod series;
pub(crate) mod series_routes;
pub(crate) mod session;
pub(crate) mod session_routes;
pub(crate) mod subjects;

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use stokehold_objects::Objects;
use url::Url;

use crate::server::path::Path;
use crate::state::App;

/// The built files by their paths; empty unless `make dashboard` has run.
static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/dashboard.rs"));

/// Content security policy of a page: its own host, and for results also the object store to which their URLs redirect.
fn policy(store: &str) -> String {
    let store = if store.is_empty() { String::new() } else { format!(" {store}") };
    format!(
        "default-src 'self'; img-src 'self' data:{store}; media-src 'self'{store}; frame-src 'self'{store}; base-uri 'none'; \
         form-action 'self'; frame-ancestors 'none'"
    )
}

/// Validity of the presigned URL that is made only to find the address of the store; it is never used.
const SIGNED_FOR: Duration = Duration::from_secs(60);

/// Folder of the files whose names change with their content.
const HASHED: &str = "assets/";

/// Response when the dashboard was not built.
const NOT_BUILT: &str =
    "This binary was built without the dashboard. Run `make dashboard` (requires Node), then build `stoke` again.\n";

/// Returns whether this binary contains the dashboard.
#[must_use]
pub fn has_dashboard() -> bool {
    !FILES.is_empty()
}

pub(crate) fn router() -> Router<App> {
    Router::new()
        .route("/dashboard", get(|State(app): State<App>| async move { answer(FILES, "", &store(&app.objects).await) }))
        .route(
            "/dashboard/",
            get(|State(app): State<App>| async move { answer(FILES, "", &store(&app.objects).await) }),
        )
        .route(
            "/dashboard/{*path}",
            get(|State(app): State<App>, Path(path): Path<String>| async move {
                answer(FILES, &path, &store(&app.objects).await)
            }),
        )
}

/// Origin of presigned result URLs. Finding it sends no request.
async fn store(objects: &Objects) -> String {
    let signed = objects.presign_get("results/", SIGNED_FOR).await;
    signed.ok().and_then(|url| Url::parse(&url).ok()).map(|url| url.origin().ascii_serialization()).unwrap_or_default()
}

/// Responds with the file at `path`, or else with the page itself, which resolves its own addresses. A missing asset is
/// not replaced by the page.
fn answer(files: &'static [(&'static str, &'static [u8])], path: &str, store: &str) -> Response {
    let named = |name: &str| files.iter().find(|(known, _)| *known == name).copied();
    let found = named(path).or_else(|| if path.starts_with(HASHED) { None } else { named("index.html") });
    let common = [
        (header::CONTENT_SECURITY_POLICY, policy(store)),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (header::REFERRER_POLICY, "same-origin".to_owned()),
    ];
    let Some((name, bytes)) = found else {
        let text = if files.is_empty() { NOT_BUILT } else { "No such file.\n" };
        let kind = [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::CACHE_CONTROL, "no-cache")];
        return (StatusCode::NOT_FOUND, common, kind, text).into_response();
    };
    let cache = if name.starts_with(HASHED) { "public, max-age=31536000, immutable" } else { "no-cache" };
    (common, [(header::CONTENT_TYPE, content_type(name)), (header::CACHE_CONTROL, cache)], bytes).into_response()
}

/// Content type by file extension. Vite writes only these.
fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static BUILT: &[(&str, &[u8])] = &[("assets/index-1.js", b"js"), ("index.html", b"page")];

    fn header_of(answer: &Response, name: header::HeaderName) -> &str {
        answer.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    #[test]
    fn an_address_within_the_page_answers_the_page_and_is_asked_for_again_each_time() {
        for path in ["", "jobs", "jobs/job_1"] {
            let answer = answer(BUILT, path, "https://s3.example");
            assert_eq!(answer.status(), StatusCode::OK);
            assert_eq!(header_of(&answer, header::CONTENT_TYPE), "text/html; charset=utf-8");
            assert_eq!(header_of(&answer, header::CACHE_CONTROL), "no-cache");
            let policy = header_of(&answer, header::CONTENT_SECURITY_POLICY);
            assert!(policy.starts_with("default-src 'self'; img-src 'self' data: https://s3.example;"), "{policy}");
            assert!(!policy.contains("script-src"), "scripts come from here alone");
        }
    }

    #[test]
    fn a_hashed_file_is_kept_for_a_year_and_one_that_is_gone_is_not_the_page() {
        assert!(header_of(&answer(BUILT, "assets/index-1.js", ""), header::CACHE_CONTROL).contains("immutable"));
        assert_eq!(answer(BUILT, "assets/index-0.js", "").status(), StatusCode::NOT_FOUND);
    }

    #[test]
    fn without_a_build_it_says_how_to_get_one() {
        let answer = answer(&[], "", "");
        assert_eq!(answer.status(), StatusCode::NOT_FOUND);
        assert_eq!(header_of(&answer, header::CONTENT_TYPE), "text/plain; charset=utf-8");
    }
}
