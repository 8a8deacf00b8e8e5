//! Failures with a code of their own.

use std::borrow::Cow;
use std::fmt;

use crate::exit::{FAILED, NOT_ALLOWED, Report, TIMED_OUT, USAGE};
use crate::output;

/// A failure whose exit code is not that of its cause.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Stable word of the report.
    pub(crate) code: Cow<'static, str>,
    pub(crate) exit_code: u8,
    text: String,
    /// What to do, on a line of its own.
    pub(crate) hint: Option<String>,
}

impl std::error::Error for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match &self.hint {
            Some(hint) => write!(f, "\n{hint}"),
            None => Ok(()),
        }
    }
}

impl Failure {
    pub(crate) fn new(code: impl Into<Cow<'static, str>>, exit_code: u8, text: impl Into<String>) -> Self {
        Self { code: code.into(), exit_code, text: text.into(), hint: None }
    }

    /// Adds what to do.
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// The options, their values or a file that they name are wrong.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::new("usage", USAGE, text)
    }

    /// A file that an option names cannot be read. It is the context of its cause.
    pub(crate) fn cannot_read(path: impl fmt::Display) -> Self {
        Self::usage(format!("cannot read {path}"))
    }

    /// A job ended without a result.
    pub(crate) fn job(text: impl Into<String>) -> Self {
        Self::new("job_failed", FAILED, text)
    }

    /// Lines of a batch failed.
    pub(crate) fn batch(text: impl Into<String>) -> Self {
        Self::new("batch_failed", FAILED, text)
    }

    /// A version missed a limit of its gate.
    pub(crate) fn gate(text: impl Into<String>) -> Self {
        Self::new("gate_failed", FAILED, text)
    }

    /// Other objects depend on the one to delete.
    pub(crate) fn in_use(text: impl Into<String>) -> Self {
        Self::new("in_use", USAGE, text)
    }

    /// A wait timed out.
    pub(crate) fn timed_out(text: impl Into<String>) -> Self {
        Self::new("timed_out", TIMED_OUT, text)
    }

    /// No token is known.
    pub(crate) fn no_token(text: impl Into<String>) -> Self {
        Self::new("no_token", NOT_ALLOWED, text)
    }
}

/// Returns a usage error with this text.
macro_rules! usage {
    ($($text:tt)*) => {
        return Err($crate::failure::Failure::usage(format!($($text)*)).into())
    };
}

/// Returns a usage error with this text unless the condition holds.
macro_rules! require {
    ($condition:expr, $($text:tt)*) => {
        let holds: bool = $condition;
        if !holds {
            $crate::failure::usage!($($text)*);
        }
    };
}

pub(crate) use {require, usage};

/// The failures of a command that names several objects. Each is printed when it happens, and the other objects are
/// not affected.
#[derive(Default)]
pub(crate) struct Failures {
    count: usize,
    /// The report of the first failure; `None` once another one has a different exit code.
    kind: Option<Report>,
}

impl Failures {
    /// Prints the failure of one object.
    pub(crate) fn add(&mut self, object: impl fmt::Display, error: &anyhow::Error) {
        output::note(format_args!("{object}: {error:#}"));
        let report = Report::of(error);
        let is_first = self.count == 0;
        self.kind = self.kind.take().filter(|kind| kind.exit_code == report.exit_code);
        if is_first {
            self.kind = Some(report);
        }
        self.count += 1;
    }

    /// Returns an error if there were failures. If all of the `total` objects failed in the same way, it has the exit
    /// code of that failure. `what` is what the objects failed to be, e.g. `jobs were not cancelled`.
    pub(crate) fn end(self, total: usize, object: &str, what: &str) -> anyhow::Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        let text = format!("{} of {} {what}", self.count, output::counted(total as u64, object));
        Err(match self.kind.filter(|_| self.count == total) {
            Some(Report { code, hint, exit_code, .. }) => {
                Failure { hint, ..Failure::new(code, exit_code, text) }.into()
            }
            None => Failure::new("failed", FAILED, text).into(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn end(failures: Vec<Failure>, total: usize) -> (String, String, u8) {
        let mut seen = Failures::default();
        for failure in failures {
            seen.add("job 01", &failure.into());
        }
        let error = seen.end(total, "job", "were not cancelled").unwrap_err();
        let Report { code, message, exit_code, .. } = Report::of(&error);
        (message, code, exit_code)
    }

    #[test]
    fn what_fails_for_all_in_the_same_way_has_its_exit_code() {
        let denied = || Failure::no_token("no");
        let all = ("2 of 2 jobs were not cancelled".to_owned(), "no_token".to_owned(), NOT_ALLOWED);
        assert_eq!(end(vec![denied(), denied()], 2), all);
        let some = ("1 of 2 jobs were not cancelled".to_owned(), "failed".to_owned(), FAILED);
        assert_eq!(end(vec![denied()], 2), some);
        for mixed in [vec![denied(), Failure::usage("no"), denied()], vec![denied(), denied(), Failure::usage("no")]] {
            assert_eq!(end(mixed, 3).2, FAILED);
        }
        assert!(Failures::default().end(2, "job", "").is_ok());
    }
}
