//! Headers that keep browsers from treating objects as pages: a browser neither runs an object nor guesses its type.
//!
//! The store can be served at the origin of the dashboard, whose session a script there could use. See Google's advice
//! on user data, <https://web.dev/articles/securely-hosting-user-data>.

use hyper::HeaderMap;
use hyper::header::{CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};

/// Types that browsers show; all others are downloaded. None of them can contain a script, so SVG is not included.
const SHOWN: [&str; 8] = [
    "image/png",
    "image/jpeg",
    "image/webp",
    "image/gif",
    "image/avif",
    "text/plain",
    "application/json",
    "application/octet-stream",
];

/// Adds the headers that keep a response from being treated as a page.
pub(super) fn make_inert(headers: &mut HeaderMap) {
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let Some(content_type) = headers.get(CONTENT_TYPE) else { return };
    if !is_shown(content_type.to_str().unwrap_or_default()) {
        let disposition = headers.get(CONTENT_DISPOSITION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let disposition = attached(disposition);
        headers.insert(CONTENT_DISPOSITION, disposition);
    }
}

fn is_shown(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    SHOWN.contains(&kind.as_str()) || kind.starts_with("audio/") || kind.starts_with("video/")
}

/// Changes a disposition to a download with the same file name.
fn attached(disposition: &str) -> HeaderValue {
    let name = disposition.split_once(';').map_or("", |(_, name)| name);
    let attached = if name.is_empty() { "attachment".to_owned() } else { format!("attachment;{name}") };
    HeaderValue::from_str(&attached).unwrap_or(HeaderValue::from_static("attachment"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_carry_a_script_is_downloaded_under_its_name() {
        let made = |content_type: &str, disposition: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, content_type.parse().unwrap());
            if let Some(disposition) = disposition {
                headers.insert(CONTENT_DISPOSITION, disposition.parse().unwrap());
            }
            make_inert(&mut headers);
            assert_eq!(headers[X_CONTENT_TYPE_OPTIONS], "nosniff");
            assert_eq!(headers[CONTENT_SECURITY_POLICY], "sandbox; default-src 'none'");
            headers.get(CONTENT_DISPOSITION).map(|value| value.to_str().unwrap().to_owned())
        };
        for active in [
            "text/html",
            "TEXT/HTML; charset=utf-8",
            "image/svg+xml",
            "application/xhtml+xml",
            "text/xml",
            "application/pdf",
            "x/y",
            "",
        ] {
            assert_eq!(made(active, None).as_deref(), Some("attachment"), "{active}");
        }
        let named = "inline; filename*=UTF-8''a%2Ehtml";
        assert_eq!(made("text/html", Some(named)).as_deref(), Some("attachment; filename*=UTF-8''a%2Ehtml"));
        assert_eq!(made("image/png", Some(named)).as_deref(), Some(named));
        assert_eq!(made("video/mp4", None), None);
        assert_eq!(made("application/json; charset=utf-8", None), None);
    }
}
