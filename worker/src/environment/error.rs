//! Errors of environments.

use std::path::PathBuf;
use std::time::Duration;

use super::child::NOTHING;
use stokehold_protocol::requirements_lock::LockError;

/// Why an environment, or uv, is not available.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// uv is missing and could not be installed.
    #[error("uv is not available ({0}); install it (`pip install uv`), put it on PATH, or set STOKE_UV to the binary")]
    UvMissing(String),
    /// The requested Python version is invalid.
    #[error("{0:?} is not a valid Python version; use e.g. \"3.11\", or leave it empty to use the worker's python3")]
    PythonVersion(String),
    /// The requirements contain something that a lock must not contain.
    #[error("cannot install the locked requirements: {0}. Lock them again and redeploy")]
    Requirements(#[from] LockError),
    /// The requested Python is missing and could not be installed.
    #[error("no Python {version} on this machine: {why}")]
    PythonMissing {
        /// The requested version.
        version: String,
        /// uv's output.
        why: String,
    },
    /// The runner wheel cannot be read.
    #[error("cannot read the runner wheel {path}; set STOKE_RUNNER_WHEEL to a stokehold wheel", path = .path.display())]
    Wheel {
        /// Path of the wheel.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A program failed, usually because the requirements cannot be met.
    #[error("{what} failed ({status}):\n{output}")]
    Failed {
        /// The step that it performed.
        what: &'static str,
        /// Its exit status.
        status: std::process::ExitStatus,
        /// The last lines of its output.
        output: String,
    },
    /// A program exceeded its timeout and was killed.
    #[error("{what} timed out after {limit:?}; last lines of its output:\n{output}")]
    TimedOut {
        /// The step that it performed.
        what: &'static str,
        /// The timeout.
        limit: Duration,
        /// The last lines of its output.
        output: String,
    },
    /// A package changes files of the environment itself.
    #[error(
        "a package installs {path:?}, which belongs to the environment itself or points outside it; remove that package: packages may \
         install files only below bin, etc, include, lib and share"
    )]
    Foreign {
        /// Path relative to the environment.
        path: PathBuf,
    },
    /// A program's output is invalid.
    #[error("{what} gave unexpected output: {answer:?}")]
    Answer {
        /// The step that it performed.
        what: &'static str,
        /// The start of its output.
        answer: String,
    },
    /// Another process has been building or removing the same environment for longer than a build may take.
    #[error("another process has held the lock {path} for {limit:?}; stop that process", path = .path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The timeout of the wait.
        limit: Duration,
    },
    /// A file system operation failed.
    #[error("cannot {what}")]
    Io {
        /// The operation.
        what: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        |source| Self::Io { what, source }
    }
    /// Whether the cause is a package that has no wheel for this machine.
    pub(crate) fn is_for_want_of_a_wheel(&self) -> bool {
        const SIGNS: [&str; 4] = ["no usable wheels", "no wheels", "building from source", "source distribution"];
        let output = self.output().map(str::to_lowercase).unwrap_or_default();
        SIGNS.iter().any(|sign| output.contains(sign))
    }

    fn output(&self) -> Option<&str> {
        match self {
            Self::Failed { output, .. } | Self::TimedOut { output, .. } => Some(output),
            _ => None,
        }
    }

    /// The message for the tenant. uv may quote any file that it cannot parse, so only messages about packages are
    /// shown.
    pub(crate) fn for_tenants(&self) -> String {
        let Some(output) = self.output().filter(|output| !is_about_packages(output)) else {
            let advice = if self.is_for_want_of_a_wheel() { SOURCE_ADVICE } else { "" };
            return format!("{self}{advice}");
        };
        let hidden = "(uv rejected these requirements; lock them with `uv pip compile --generate-hashes`)";
        self.to_string().replace(output, hidden)
    }
}

/// Advice for a package without a wheel.
const SOURCE_ADVICE: &str = "\nThe workers install only wheels: choose a version that has a wheel, or ask the operator to set STOKE_ALLOW_SOURCE_BUILDS on the workers";

/// Whether uv's message is about packages and their sources; all others may quote files.
fn is_about_packages(output: &str) -> bool {
    const KNOWN: [&str; 10] = [
        "Building source distributions is disabled",
        "No solution found when resolving",
        "Failed to download",
        "Failed to fetch",
        "Failed to build",
        "Failed to install",
        "Failed to prepare",
        "Failed to unzip",
        "Failed to extract",
        "Request failed after",
    ];
    let mut lines =
        output.lines().map(|line| line.trim_start().trim_start_matches("error: ").trim_start_matches(['×', ' ']));
    let first = lines.find(|line| !line.is_empty() && !line.starts_with("warning: ")).unwrap_or_default();
    first == NOTHING || KNOWN.iter().any(|known| first.starts_with(known))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn failed(output: &str) -> Error {
        let status = std::process::ExitStatus::from_raw(1 << 8);
        Error::Failed { what: "installing the requirements", status, output: output.to_owned() }
    }

    #[test]
    fn a_tenant_reads_what_is_wrong_with_its_packages() {
        for output in [
            "error: No solution found when resolving dependencies\n  cause: Because there is no version of six==0.0.987",
            "  × No solution found when resolving dependencies:\n  ╰─▶ Because there is no version of six==0.0.987",
            "warning: slow\nerror: Failed to download `six==0.0.987`\n  cause: Hash mismatch for `six==0.0.987`",
        ] {
            let message = failed(output).for_tenants();
            assert!(
                message.starts_with("installing the requirements failed") && message.contains("six==0.0.987"),
                "{message}"
            );
        }
    }

    #[test]
    fn a_tenant_reads_no_file_that_uv_quotes() {
        for output in [
            "error: Couldn't parse requirement in `/proc/1/environ` at position 0\n  cause: TOKEN=verysecret",
            "error: Error parsing included file in `r.txt` at position 0\n  cause: No solution found verysecret",
            "error: Distribution not found at: file:///root/verysecret",
            "verysecret",
        ] {
            let message = failed(output).for_tenants();
            assert!(message.contains("uv pip compile") && !message.contains("verysecret"), "{message}");
        }
    }

    #[test]
    fn a_package_without_a_wheel_is_recognized() {
        let wheelless =
            failed("error: No solution found when resolving dependencies\n  cause: Because a==1 has no usable wheels");
        assert!(wheelless.is_for_want_of_a_wheel() && wheelless.for_tenants().contains("STOKE_ALLOW_SOURCE_BUILDS"));
        assert!(!failed("error: Failed to fetch: http://127.0.0.1:9/").is_for_want_of_a_wheel());
    }
}
