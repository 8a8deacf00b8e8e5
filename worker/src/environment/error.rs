//! What can go wrong with an environment.

use std::path::PathBuf;
use std::time::Duration;

use stokehold_queue::requirements_lock::LockError;

/// Why an environment, or the tool that builds it, is not there.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No uv, and none could be installed.
    #[error("uv is not available ({0}); install it (`pip install uv`), put it on PATH, or set STOKE_UV to the binary")]
    UvMissing(String),
    /// The asked Python version is not one uv could look for.
    #[error("{0:?} is not a Python version; write it like \"3.11\", or leave it empty for the worker's python3")]
    PythonVersion(String),
    /// The requirements say what no lock may say.
    #[error("the locked requirements cannot be installed: {0}. Lock them again and deploy")]
    Requirements(#[from] LockError),
    /// No such Python on this machine, and none could be installed.
    #[error("no Python {version} on this machine: {why}")]
    PythonMissing {
        /// The version asked for.
        version: String,
        /// What uv said.
        why: String,
    },
    /// The runner's wheel cannot be read.
    #[error("the runner's wheel {path} cannot be read; set STOKE_RUNNER_WHEEL to a stokehold wheel", path = .path.display())]
    Wheel {
        /// Where it was looked for.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A program ended badly: most often requirements that cannot be met.
    #[error("{what} failed ({status}):\n{output}")]
    Failed {
        /// What it was to do.
        what: &'static str,
        /// How it ended.
        status: std::process::ExitStatus,
        /// The last lines it wrote.
        output: String,
    },
    /// A program took too long and was killed.
    #[error("{what} was stopped after {limit:?}; its last lines:\n{output}")]
    TimedOut {
        /// What it was to do.
        what: &'static str,
        /// How long it had.
        limit: Duration,
        /// The last lines it wrote.
        output: String,
    },
    /// A program answered with something that cannot be read.
    #[error("{what} answered {answer:?}")]
    Answer {
        /// What it was to do.
        what: &'static str,
        /// The start of what it wrote.
        answer: String,
    },
    /// Another process has been building, or removing, the same environment for longer than a build may take.
    #[error("{path} has been locked by another process for {limit:?}; end that process", path = .path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// How long we waited.
        limit: Duration,
    },
    /// The file system refused.
    #[error("cannot {what}")]
    Io {
        /// What was being done.
        what: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        |source| Self::Io { what, source }
    }
}
