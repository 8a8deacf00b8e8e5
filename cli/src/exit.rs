//! Exit codes, and the report of an error: text, or one JSON object with `--json`.

use std::ffi::OsString;
use std::process::ExitCode;

use serde::Serialize;
use stokehold_client::{JobFailed, Problem, Unreachable};
use stokehold_package::Error as PackageError;
use stokehold_queue::Error as QueueError;
use tokio::time::error::Elapsed;

use crate::failure::Failure;
use crate::output;

/// The job, the batch, the gate or the check failed, or any error without a code of its own.
pub(crate) const FAILED: u8 = 1;
/// The command or the request is wrong; the same command fails again.
pub(crate) const USAGE: u8 = 2;
/// The API, or a server that it needs, does not respond or refuses work at the moment.
pub(crate) const UNAVAILABLE: u8 = 3;
/// What the command waited for did not happen in time.
pub(crate) const TIMED_OUT: u8 = 4;
/// There is no token, or the token does not allow this.
pub(crate) const NOT_ALLOWED: u8 = 5;

/// Every exit code with its meaning, for the reference page.
#[cfg(test)]
pub(crate) const CODES: [(u8, &str); 6] = [
    (0, "Success."),
    (FAILED, "The job, the batch, the gate or the check failed, or an error that has no code of its own."),
    (USAGE, "The command is wrong, or the API refused the request: the same command fails again."),
    (UNAVAILABLE, "The API does not respond, or accepts no work at the moment: try again later."),
    (TIMED_OUT, "The wait ended before the job did. The job goes on."),
    (NOT_ALLOWED, "There is no token, or the token does not allow this."),
];

/// The report of an error, as `--json` prints it.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Report {
    /// Stable word: the code of the API's problem, or one of `stoke`.
    pub(crate) code: String,
    /// What failed and why, without the hint.
    pub(crate) message: String,
    /// What to do, if there is advice.
    pub(crate) hint: Option<String>,
    /// HTTP status of the API's response, if there was one.
    status: Option<u16>,
    pub(crate) exit_code: u8,
}

#[derive(Serialize)]
struct Document<'a> {
    error: &'a Report,
}

/// Returns whether `--json` is among the words. Parsing may fail before the option is known.
pub(crate) fn is_json(words: &[OsString]) -> bool {
    words.iter().take_while(|word| *word != "--").any(|word| word == "--json")
}

/// Reports an error of the command line. Help and version are no errors.
pub(crate) fn usage(error: &clap::Error, json: bool) -> ExitCode {
    if !error.use_stderr() || !json {
        // A failure to print has no better place to be reported.
        let _ = error.print();
        return if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
    }
    let text = error.render().to_string();
    let text = text.trim().trim_start_matches("error: ");
    let (message, hint) = text.split_once("\n\n").unwrap_or((text, ""));
    let hint = Some(hint.trim().to_owned()).filter(|hint| !hint.is_empty());
    print(&Report { code: "usage".to_owned(), message: message.to_owned(), hint, status: None, exit_code: USAGE })
}

/// Reports the error of a command.
pub(crate) fn failure(error: &anyhow::Error, json: bool) -> ExitCode {
    let report = Report::of(error);
    if json {
        return print(&report);
    }
    output::error(error);
    ExitCode::from(report.exit_code)
}

fn print(report: &Report) -> ExitCode {
    match serde_json::to_string(&Document { error: report }) {
        Ok(text) => output::note(text),
        Err(_) => output::note(&report.message),
    }
    ExitCode::from(report.exit_code)
}

impl Report {
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        let message = format!("{error:#}");
        let own = |code: &str, exit_code| Self {
            code: code.to_owned(),
            message: message.clone(),
            hint: None,
            status: None,
            exit_code,
        };
        if let Some(failure) = error.downcast_ref::<Failure>() {
            let report = own(&failure.code, failure.exit_code);
            return Self { message: without(&message, failure.hint.as_deref()), hint: failure.hint.clone(), ..report };
        }
        // A file of the folder is wrong, or an option.
        if let Some(PackageError::Invalid(_)) = error.downcast_ref() {
            return own("usage", USAGE);
        }
        if error.is::<JobFailed>() {
            return own("job_failed", FAILED);
        }
        if let Some(problem) = error.downcast_ref::<Problem>() {
            return Self::of_problem(problem, message);
        }
        if let Some(unreachable) = error.downcast_ref::<Unreachable>() {
            let hint = unreachable.hint.trim_start_matches(": ");
            return Self {
                message: message.replacen(unreachable.hint, "", 1),
                hint: Some(hint.to_owned()).filter(|hint| !hint.is_empty()),
                ..own("unavailable", UNAVAILABLE)
            };
        }
        let is_down = |cause: &(dyn std::error::Error + 'static)| {
            cause.is::<reqwest::Error>() || matches!(cause.downcast_ref(), Some(QueueError::Unavailable { .. }))
        };
        if error.chain().any(|cause| cause.is::<Elapsed>()) {
            own("timed_out", TIMED_OUT)
        } else if error.chain().any(is_down) {
            own("unavailable", UNAVAILABLE)
        } else {
            own("failed", FAILED)
        }
    }

    fn of_problem(problem: &Problem, message: String) -> Self {
        let (status, hint) = (problem.status(), problem.hint());
        let exit_code = match status {
            401 | 403 => NOT_ALLOWED,
            408 | 429 | 500.. => UNAVAILABLE,
            _ => USAGE,
        };
        let code: &str = if problem.code.is_empty() { "unexpected_response" } else { &problem.code };
        Self {
            code: code.to_owned(),
            message: without(&message, hint),
            hint: hint.map(str::to_owned),
            status: Some(status),
            exit_code,
        }
    }
}

/// The message without the hint at its end.
fn without(message: &str, hint: Option<&str>) -> String {
    hint.and_then(|hint| message.strip_suffix(hint)).unwrap_or(message).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use axum::http::StatusCode;
    use axum::response::IntoResponse;
    use axum::routing::get;
    use axum::{Json, Router};
    use serde_json::json;
    use stokehold_client::models::Job;

    use super::*;
    use crate::client::{connect_to, decode};
    use crate::stub;

    /// The report of the error that a GET gets with this status and code.
    async fn refused(status: u16, code: &str) -> Report {
        let problem = json!({"status": status, "code": code, "detail": "no"});
        let answer = move || async move { (StatusCode::from_u16(status).unwrap(), Json(problem)).into_response() };
        let client = stub::serve(Router::new().route("/v1/x", get(answer))).await;
        let call = crate::client::Call {
            method: reqwest::Method::GET,
            path: "/v1/x",
            body: None,
            headers: &[],
            hold: std::time::Duration::ZERO,
        };
        Report::of(&client.attempt(&call).await.err().unwrap().error.context("cannot do it"))
    }

    #[tokio::test]
    async fn problems_of_the_api_have_the_code_of_who_can_help() {
        for (status, code, exit_code) in [
            (401, "unauthorized", NOT_ALLOWED),
            (403, "forbidden", NOT_ALLOWED),
            (404, "unknown_endpoint", USAGE),
            (409, "in_use", USAGE),
            (422, "invalid_input", USAGE),
            (429, "rate_limited", UNAVAILABLE),
            (503, "unavailable", UNAVAILABLE),
        ] {
            let report = refused(status, code).await;
            assert_eq!((report.exit_code, report.status, &*report.code), (exit_code, Some(status), code), "{status}");
            assert_eq!(report.message, "cannot do it: no", "{status}");
        }
        let hint = refused(401, "unauthorized").await.hint.unwrap();
        assert!(hint.contains("--token"), "{hint}");
    }

    #[tokio::test]
    async fn an_api_that_is_down_is_unavailable() {
        let client = connect_to("http://127.0.0.1:1".to_owned(), "sk_x".to_owned()).unwrap();
        let call = crate::client::Call {
            method: reqwest::Method::GET,
            path: "/v1/x",
            body: None,
            headers: &[],
            hold: std::time::Duration::ZERO,
        };
        let report = Report::of(&client.attempt(&call).await.err().unwrap().error);
        assert_eq!((report.exit_code, report.status, &*report.code), (UNAVAILABLE, None, "unavailable"));
        assert!(report.message.starts_with("cannot connect to the API at http://127.0.0.1:1"), "{report:?}");
        assert!(report.hint.unwrap().starts_with("start it with `stoke dev`"));
    }

    #[test]
    fn failures_have_codes_of_their_own() {
        let job: Job = decode(&json!({"id": "1", "endpoint": "e", "state": "failed"})).unwrap();
        let failed = job.succeeded().unwrap_err();
        assert_eq!(Report::of(&failed).exit_code, FAILED);
        assert_eq!(Report::of(&failed).code, "job_failed");
        for (failure, code, exit_code) in [
            (Failure::gate("no"), "gate_failed", FAILED),
            (Failure::batch("no"), "batch_failed", FAILED),
            (Failure::usage("no"), "usage", USAGE),
            (Failure::timed_out("no"), "timed_out", TIMED_OUT),
            (Failure::no_token("no"), "no_token", NOT_ALLOWED),
        ] {
            let report = Report::of(&anyhow::Error::from(failure).context("because"));
            assert_eq!((&*report.code, report.exit_code), (code, exit_code));
        }
        assert_eq!(Report::of(&anyhow::anyhow!("disk full")).exit_code, FAILED);
        let package = stokehold_package::Package::open("/no/such", stokehold_package::Overlay::default());
        assert_eq!(Report::of(&package.unwrap_err().into()).exit_code, USAGE);
    }

    #[test]
    fn a_hint_is_not_in_the_message_too() {
        let failure = Failure::timed_out("still queued").hint("Wait again with `stoke get 1 --wait`.");
        assert_eq!(failure.to_string(), "still queued\nWait again with `stoke get 1 --wait`.");
        let report = Report::of(&anyhow::Error::from(failure).context("cannot wait"));
        assert_eq!(report.message, "cannot wait: still queued");
        assert_eq!(report.hint.as_deref(), Some("Wait again with `stoke get 1 --wait`."));
        let cause = std::io::Error::other("no such file");
        let report = Report::of(&anyhow::Error::from(cause).context(Failure::usage("cannot read a")));
        assert_eq!((&*report.message, report.exit_code), ("cannot read a: no such file", USAGE));
    }

    #[test]
    fn json_is_asked_for_before_the_options_are_known() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert!(is_json(&words("stoke get --json")) && is_json(&words("stoke --json nonsense")));
        assert!(!is_json(&words("stoke get x")) && !is_json(&words("stoke guard 1 -- --json")));
    }
}
