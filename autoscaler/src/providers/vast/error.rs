//! What Vast.ai says when it does not do what it is asked. Bodies come in many shapes, and one status means many
//! things: code and text are both looked at.

use serde_json::{Map, Value};

use super::transport::Answer;

/// Of what is said, so much is told on, characters.
const SAID_MAX: usize = 200;

/// What it comes down to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Something about the request is wrong.
    InvalidArgs,
    /// The bid is, or too low.
    InvalidPrice,
    /// The account has no money; the machine is not to blame.
    InsufficientCredit,
    /// The offer is gone.
    NoSuchAsk,
    /// The instance is gone. Never for its status alone: a wrong key is a 404 too.
    NoSuchInstance,
    /// The key is wrong, or was deleted.
    AuthFailed,
    /// The account wants a second factor.
    TwoFactor,
    /// The key is right and lacks a permission; the text says which.
    MissingScope,
    /// It is somebody else's.
    Forbidden,
    /// The endpoint was asked too soon after the last time.
    TooFrequent,
    /// No more of this today.
    QuotaExceeded,
    /// It cannot start now, and will, and cost money, when it can.
    Queued,
    /// It may be done, or not, and asking again may help.
    Transient,
    /// The status says that it was done, the body that it was not.
    SuccessFalse,
    /// The status says that it was done, and the body is not what it should be.
    Unreadable,
    /// Something else, which asking again does not change.
    Other,
}

/// Why a request came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Vast.ai answered {status}: {said}")]
pub(super) struct Problem {
    pub(super) refusal: Refusal,
    pub(super) status: u16,
    /// In its words, cut.
    pub(super) said: String,
    /// An instance that was made all the same, and costs money.
    pub(super) contract: Option<u64>,
}

impl Problem {
    /// A body that says it is done, and does not hold what it should.
    pub(super) fn unreadable(why: impl Into<String>) -> Self {
        Self { refusal: Refusal::Unreadable, status: 200, said: why.into(), contract: None }
    }
}

/// The answer's object, when it says that what was asked is done.
///
/// # Errors
/// [`Problem`], of whatever bytes there are.
pub(super) fn read(answer: &Answer) -> Result<Map<String, Value>, Problem> {
    let Answer { status, body, content_type, .. } = answer;
    let problem = |refusal, said, contract| Problem { refusal, status: *status, said, contract };
    let Ok(Value::Object(object)) = serde_json::from_slice(body) else {
        let said = if body.is_empty() { "an empty body".to_owned() } else { cut(&String::from_utf8_lossy(body)) };
        let refusal = match status {
            200..300 => Refusal::Unreadable,
            _ => refusal(*status, "", &said),
        };
        let said =
            if refusal == Refusal::Unreadable { format!("not a JSON object ({content_type}): {said}") } else { said };
        return Err(problem(refusal, said, None));
    };
    let (code, text) = (word(&object, &["error", "code"]), word(&object, &["msg", "message", "detail"]));
    let contract = number(object.get("new_contract"));
    let is_success = object.get("success").and_then(Value::as_bool);
    // It is said with a success too.
    let is_queued = format!("{code} {text}").to_lowercase().contains("state change queued");
    if (200..300).contains(status) && is_success != Some(false) && !is_queued {
        return Ok(object);
    }
    let refusal = refusal(*status, &code, &text);
    let said = match (code.is_empty(), text.is_empty()) {
        (false, false) if code != text => format!("{code}: {text}"),
        (false, _) => code,
        (true, false) => text,
        (true, true) => "no reason given".to_owned(),
    };
    Err(problem(refusal, cut(&said), contract))
}

/// A number, or a text of digits.
pub(super) fn number(value: Option<&Value>) -> Option<u64> {
    let value = value?;
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// The first of these members that is a text, or an object that holds one.
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
    words.join(" ").chars().filter(|sign| !sign.is_control()).take(SAID_MAX).collect()
}

/// What a status, a code and a text come down to; the first that fits, the sure ones first.
fn refusal(status: u16, code: &str, text: &str) -> Refusal {
    let said = format!("{code} {text}").to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
    let is_ask =
        says(&["no_such_ask", "no longer available"]) || (says(&["instance type"]) && says(&["not available"]));
    match status {
        _ if says(&["search_quota_exceeded"]) => Refusal::QuotaExceeded,
        429 => Refusal::TooFrequent,
        // Before anything else it says: whether it was done is not known.
        408 | 500.. => Refusal::Transient,
        _ if says(&["too frequent"]) => Refusal::TooFrequent,
        _ if says(&["insufficient_credit", "insufficient credit", "lacks credit", "not enough credit"]) => {
            Refusal::InsufficientCredit
        }
        402 | 411 => Refusal::InsufficientCredit,
        _ if says(&["state change queued"]) => Refusal::Queued,
        _ if is_ask => Refusal::NoSuchAsk,
        _ if says(&["two factor", "two-factor", "2fa"]) => Refusal::TwoFactor,
        _ if says(&["invalid user key", "session expired", "auth_error"]) => Refusal::AuthFailed,
        _ if says(&["no_such_instance"]) => Refusal::NoSuchInstance,
        404 if code == "not_found" => Refusal::NoSuchInstance,
        401 if says(&["/api/", "permission", "scope", "route", "not authorized", "missing", "lacks"]) => {
            Refusal::MissingScope
        }
        401 => Refusal::AuthFailed,
        403 => Refusal::Forbidden,
        _ if says(&["invalid_price", "bid too low", "bid is too low"]) => Refusal::InvalidPrice,
        400 => Refusal::InvalidArgs,
        200..300 => Refusal::SuccessFalse,
        _ => Refusal::Other,
    }
}

/// An answer with this body, for tests.
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
        use Refusal as R;
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
            assert_eq!(problem.refusal, expected, "{status} {body}: {problem}");
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
        assert!(problem.said.len() <= SAID_MAX && problem.said.starts_with("a [31mb"), "{problem}");
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
