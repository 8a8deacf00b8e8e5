//! Error responses of Vast.ai. Bodies have many shapes, and one status has several meanings, so code and text are both
//! considered.

use serde_json::{Map, Value};
use stokehold_vast::{code, field};

use super::transport::Answer;

/// Maximum length of a quoted message, characters.
const QUOTE_MAX: usize = 200;

/// Meaning of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorKind {
    /// The request is invalid.
    InvalidArgs,
    /// The bid is invalid or too low.
    InvalidPrice,
    /// The account lacks credit.
    InsufficientCredit,
    /// The offer is gone.
    NoSuchAsk,
    /// The instance is gone. Never derived from the status alone, because a wrong key also returns 404.
    NoSuchInstance,
    /// The key is wrong or was deleted.
    AuthFailed,
    /// The account requires a second factor.
    TwoFactor,
    /// The key lacks a permission; the text names it.
    MissingScope,
    /// The object belongs to another account.
    Forbidden,
    /// The request came too soon after the previous one.
    TooFrequent,
    /// The quota of the day is exhausted.
    QuotaExceeded,
    /// The instance cannot start now, but will start and cost money when it can.
    Queued,
    /// The outcome is unknown, and another try may help.
    Transient,
    /// The status reports success, and the body failure.
    SuccessFalse,
    /// The status reports success, and the body is not as expected.
    Unreadable,
    /// Another error, which a repetition does not change.
    Other,
}

/// An error response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Vast.ai answered {status}: {message}")]
pub(super) struct ErrorResponse {
    pub(super) kind: ErrorKind,
    pub(super) status: u16,
    /// Message of the response, shortened.
    pub(super) message: String,
    /// ID of an instance that was created nevertheless and costs money.
    pub(super) contract: Option<u64>,
}

impl ErrorResponse {
    /// A response of success whose body lacks expected members.
    pub(super) fn unreadable(why: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Unreadable, status: 200, message: why.into(), contract: None }
    }
}

/// Returns the object of a response that reports success.
///
/// # Errors
/// [`ErrorResponse`], for any bytes.
pub(super) fn read(answer: &Answer) -> Result<Map<String, Value>, ErrorResponse> {
    let Answer { status, body, content_type, .. } = answer;
    let problem = |kind, message, contract| ErrorResponse { kind, status: *status, message, contract };
    let Ok(Value::Object(object)) = serde_json::from_slice(body) else {
        let message = if body.is_empty() { "an empty body".to_owned() } else { cut(&String::from_utf8_lossy(body)) };
        let kind = match status {
            200..300 => ErrorKind::Unreadable,
            _ => kind(*status, "", &message),
        };
        let message = if kind == ErrorKind::Unreadable {
            format!("not a JSON object ({content_type}): {message}")
        } else {
            message
        };
        return Err(problem(kind, message, None));
    };
    let (code, text) = (word(&object, &["error", "code"]), word(&object, &["msg", "message", "detail"]));
    let contract = number(object.get(field::NEW_CONTRACT));
    let is_success = object.get("success").and_then(Value::as_bool);
    // A response of success contains this text, too.
    let is_queued = format!("{code} {text}").to_lowercase().contains("state change queued");
    if (200..300).contains(status) && is_success != Some(false) && !is_queued {
        return Ok(object);
    }
    let kind = kind(*status, &code, &text);
    let message = match (code.is_empty(), text.is_empty()) {
        (false, false) if code != text => format!("{code}: {text}"),
        (false, _) => code,
        (true, false) => text,
        (true, true) => "no reason given".to_owned(),
    };
    Err(problem(kind, cut(&message), contract))
}

/// Parses a number, or a text of digits.
pub(super) fn number(value: Option<&Value>) -> Option<u64> {
    let value = value?;
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// The first of these members that is a text, or an object that contains one.
fn word(object: &Map<String, Value>, members: &[&str]) -> String {
    let texts = members.iter().filter_map(|member| match object.get(*member)? {
        Value::String(text) => Some(text.clone()),
        Value::Object(inner) => Some(word(inner, &["code", "error", "msg", "message", "detail"])),
        Value::Array(all) => all.first().map(ToString::to_string),
        _ => None,
    });
    let mut texts = texts.filter(|text| !text.trim().is_empty());
    texts.next().unwrap_or_default()
}

fn cut(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().filter(|sign| !sign.is_control()).take(QUOTE_MAX).collect()
}

/// Derives the meaning from a status, a code and a text. The most certain rules come first.
fn kind(status: u16, code: &str, text: &str) -> ErrorKind {
    let message = format!("{code} {text}").to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    let is_ask =
        says(&[code::NO_SUCH_ASK, "no longer available"]) || (says(&["instance type"]) && says(&["not available"]));
    match status {
        _ if says(&[code::SEARCH_QUOTA_EXCEEDED]) => ErrorKind::QuotaExceeded,
        429 => ErrorKind::TooFrequent,
        // Checked before the code: the outcome is unknown.
        408 | 500.. => ErrorKind::Transient,
        _ if says(&["too frequent"]) => ErrorKind::TooFrequent,
        _ if says(&[code::INSUFFICIENT_CREDIT, "insufficient credit", "lacks credit", "not enough credit"]) => {
            ErrorKind::InsufficientCredit
        }
        402 | 411 => ErrorKind::InsufficientCredit,
        _ if says(&["state change queued"]) => ErrorKind::Queued,
        _ if is_ask => ErrorKind::NoSuchAsk,
        _ if says(&["two factor", "two-factor", "2fa"]) => ErrorKind::TwoFactor,
        _ if says(&["invalid user key", "session expired", code::AUTH_ERROR]) => ErrorKind::AuthFailed,
        _ if says(&[code::NO_SUCH_INSTANCE]) => ErrorKind::NoSuchInstance,
        404 if code == code::NOT_FOUND => ErrorKind::NoSuchInstance,
        401 if says(&["/api/", "permission", "scope", "route", "not authorized", "missing", "lacks"]) => {
            ErrorKind::MissingScope
        }
        401 => ErrorKind::AuthFailed,
        403 => ErrorKind::Forbidden,
        _ if says(&[code::INVALID_PRICE, "bid too low", "bid is too low"]) => ErrorKind::InvalidPrice,
        400 => ErrorKind::InvalidArgs,
        200..300 => ErrorKind::SuccessFalse,
        _ => ErrorKind::Other,
    }
}

/// Response with this body, for tests.
#[cfg(test)]
pub(super) fn answer(status: u16, body: impl Into<bytes::Bytes>) -> Answer {
    let content_type = "application/json".to_owned();
    Answer { status, retry_after_s: None, quota_resets_in_s: None, content_type, body: body.into() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_shape_of_error_is_known_for_what_it_is() {
        use ErrorKind as R;
        let table = [
            (400, r#"{"success":false,"error":"invalid_args","msg":"bad disk"}"#, R::InvalidArgs),
            (400, r#"{"success":false,"error":"invalid_price","msg":"price out of range"}"#, R::InvalidPrice),
            (400, r#"{"error":"no_ssh_key_for_vm","msg":"add a key"}"#, R::InvalidArgs),
            (400, r#"{"error":"invalid_request"}"#, R::InvalidArgs),
            (400, r#"{"msg":"invalid_token"}"#, R::InvalidArgs),
            (
                400,
                r#"{"success":false,"error":"insufficient_credit","msg":"Your account lacks credit"}"#,
                R::InsufficientCredit,
            ),
            (402, r#"{"msg":"pay"}"#, R::InsufficientCredit),
            (411, r#"{"msg":"prepay"}"#, R::InsufficientCredit),
            (400, r#"{"success":false,"error":"no_such_ask","msg":"gone"}"#, R::NoSuchAsk),
            (404, r#"{"success":false,"error":"no_such_ask"}"#, R::NoSuchAsk),
            (410, r#"{"msg":"error 404/3603: no_such_ask Instance type by id 7 is not available"}"#, R::NoSuchAsk),
            (404, r#"{"message":"Instance type by id 7 is not available."}"#, R::NoSuchAsk),
            (410, r#"{"detail":"this offer is no longer available"}"#, R::NoSuchAsk),
            (401, r#"{"success":false,"error":"auth_error","msg":"Invalid user key"}"#, R::AuthFailed),
            (401, r#"{"msg":"Two Factor Authentication required"}"#, R::TwoFactor),
            (401, r#"{"msg":"your key has no permission for POST /api/v0/bundles/"}"#, R::MissingScope),
            (404, r#"{"success":false,"msg":"Invalid user key"}"#, R::AuthFailed),
            (404, r#"{"msg":"Session expired. Please log in again."}"#, R::AuthFailed),
            (403, r#"{"msg":"not yours"}"#, R::Forbidden),
            (403, "", R::Forbidden),
            (404, r#"{"success":false,"error":"no_such_instance","msg":"Instance 9 not found."}"#, R::NoSuchInstance),
            (404, r#"{"error":"not_found"}"#, R::NoSuchInstance),
            (404, r#"{"detail":"Not Found"}"#, R::Other),
            (404, "", R::Other),
            (404, "<html><h1>404 Not Found</h1></html>", R::Other),
            (409, r#"{"error":"no_pending_price_increase"}"#, R::Other),
            (429, "API requests too frequent: endpoint threshold=4.5", R::TooFrequent),
            (429, r#"{"detail":"API requests too frequent"}"#, R::TooFrequent),
            (429, r#"{"success":false,"error":"search_quota_exceeded","msg":"daily"}"#, R::QuotaExceeded),
            (502, "<html>bad gateway</html>", R::Transient),
            (503, r#"{"success":false,"error":"no_such_instance"}"#, R::Transient),
            (504, "", R::Transient),
            (500, r#"{"msg":"Invalid user key"}"#, R::Transient),
            (200, r#"{"success":false,"msg":"something"}"#, R::SuccessFalse),
            (200, r#"{"success":false,"error":"no_such_ask"}"#, R::NoSuchAsk),
            (
                200,
                r#"{"success":true,"msg":"Required resources are currently unavailable, state change queued."}"#,
                R::Queued,
            ),
            (
                400,
                r#"{"success":false,"msg":"Required resources are currently unavailable, state change queued"}"#,
                R::Queued,
            ),
            (200, "", R::Unreadable),
            (200, "null", R::Unreadable),
            (200, "[]", R::Unreadable),
            (200, "<html></html>", R::Unreadable),
            (308, "", R::Other),
            (400, r#"{"error":{"code":"no_such_ask","msg":"gone"}}"#, R::NoSuchAsk),
        ];
        for (status, body, expected) in table {
            let problem = read(&answer(status, body)).unwrap_err();
            assert_eq!(problem.kind, expected, "{status} {body}: {problem}");
        }
    }

    #[test]
    fn what_an_error_has_left_behind_is_kept() {
        let of = |status, body: &'static str| read(&answer(status, body)).unwrap_err().contract;
        assert_eq!(of(400, r#"{"success":false,"error":"invalid_price","new_contract":9001}"#), Some(9001));
        assert_eq!(of(200, r#"{"success":false,"new_contract":"9001"}"#), Some(9001));
        assert_eq!(of(500, r#"{"new_contract":9001}"#), Some(9001));
        assert_eq!(of(400, r#"{"new_contract":-1}"#), None);
    }

    #[test]
    fn what_is_done_is_an_object_without_a_no() {
        assert!(read(&answer(200, r#"{"success":true}"#)).is_ok());
        assert!(read(&answer(200, r#"{"offers":[]}"#)).is_ok());
        assert!(read(&answer(201, "{}")).is_ok());
    }

    #[test]
    fn what_is_told_on_is_short_and_of_one_line() {
        let problem = read(&answer(400, format!("a\n\u{1b}[31m{}", "b".repeat(10_000)))).unwrap_err();
        assert!(problem.message.len() <= QUOTE_MAX && problem.message.starts_with("a [31mb"), "{problem}");
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(status in 100_u16..1_000, body in proptest::collection::vec(any::<u8>(), 0..300)) {
            drop(read(&answer(status, body)));
        }

        #[test]
        fn no_object_is_too_strange(
            status in prop::sample::select(vec![200_u16, 400, 401, 404, 429, 500]),
            member in prop::sample::select(vec!["success", "error", "msg", "detail", "new_contract"]),
            value in "[-0-9a-z\"{}\\[\\],:. ]{0,40}",
        ) {
            drop(read(&answer(status, format!("{{\"{member}\":{value}}}"))));
        }
    }
}
