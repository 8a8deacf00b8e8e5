//! The messages. Their JSON is pinned by the snapshots in `sdk/python/tests/wire/`, which the Python tests read too.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Messages from the worker to its runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Control {
    /// The first message: import `entry` and call `setup()`, or the equivalent of its kind. Answered by `ready` or
    /// `failed`. Body: the kind's settings, a JSON object.
    Load {
        /// `python`, `cog`, `runpod`, `server` or `command`.
        kind: String,
        /// `file.py:object` or `file.py`, relative to the working directory, which is the unpacked package; empty for a
        /// server or a command.
        entry: String,
        /// Number of concurrent runs; more than 1 only makes sense for async handlers.
        max_concurrency: u32,
    },
    /// Run the handler. Body: the input, a JSON object whose members are the handler's arguments.
    Run {
        /// The worker's number for this run, which all reports about it contain.
        run: u64,
        /// The job's id, for the handler.
        job: String,
        /// Number of the attempt.
        attempt: u32,
        /// Path of an empty folder for this run's output files.
        scratch: String,
        /// Local paths of the input's files, by file id.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        files: BTreeMap<String, String>,
        /// Number of following runs that belong to the same batched call. Only for batched handlers.
        #[serde(default, skip_serializing_if = "is_none")]
        more: u32,
        /// Parent span of the run in its job's trace, in W3C Trace Context format; absent outside jobs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        traceparent: Option<String>,
    },
    /// Stop this run if it is still running: an async run is cancelled, a sync one gets `stokehold.Cancelled` as soon
    /// as possible.
    Cancel {
        /// Number of the run.
        run: u64,
    },
    /// Finish the current runs, then exit with code 0.
    Shutdown,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_none(number: &u32) -> bool {
    *number == 0
}

/// Messages from the runner to its worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Report {
    /// `setup()` has finished.
    Ready {
        /// Time of the import and `setup()`.
        load_ms: u64,
    },
    /// The import or `setup()` raised an exception; the process exits after this.
    Failed {
        /// The reason.
        error: Failure,
    },
    /// Sent once a second, from a thread that does not need the GIL.
    Heartbeat {
        /// Resident memory of the process, bytes.
        rss_bytes: u64,
        /// Peak resident memory, bytes.
        peak_rss_bytes: u64,
        /// Number of current runs.
        running: u32,
    },
    /// The program takes fewer or more runs at once from now on: at least 1, at most `max_concurrency`. Sent by servers
    /// whose own metrics show that they are full, and when they no longer are.
    Capacity {
        /// Number of concurrent runs.
        runs: u32,
    },
    /// Text a run wrote to `sys.stdout` or `sys.stderr`. Body: the text, UTF-8.
    Log {
        /// Number of the run; 0 if it belongs to none (import, `setup()`, a thread that the handler started).
        run: u64,
        /// Source of the text.
        stream: Stream,
    },
    /// The handler reported its progress.
    Progress {
        /// Number of the run.
        run: u64,
        /// 0 to 1.
        fraction: f64,
        /// Description of the current step.
        message: String,
    },
    /// A generator yielded a value. Body: the value, JSON.
    Output {
        /// Number of the run.
        run: u64,
        /// 0, 1, ...
        index: u64,
    },
    /// The run succeeded. Body: the result, JSON. A file in it is `{"$file": "<name>"}`.
    Done {
        /// Number of the run.
        run: u64,
        /// How long the handler took.
        run_ms: u64,
        /// All files that the result names.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        files: Vec<OutputFile>,
    },
    /// The run failed.
    Error {
        /// Number of the run.
        run: u64,
        /// How long the handler took.
        run_ms: u64,
        /// The reason.
        error: Failure,
    },
    /// The runner itself is broken and exits after this.
    Fatal {
        /// The reason.
        message: String,
    },
}

/// A stream of the handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// `sys.stdout`.
    Stdout,
    /// `sys.stderr`.
    Stderr,
}

/// An exception.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// `handler_error`, `rejected`, `bad_output`, `setup_failed` or `cancelled`.
    pub code: String,
    /// The exception's class.
    pub class: String,
    /// The exception's message, one line.
    pub message: String,
    /// The traceback, at most 16 KiB, from the handler's first frame on.
    pub traceback: String,
}

/// An output file of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputFile {
    /// Its name in the result, unique within the run: 1 to 200 bytes without separators and control characters.
    pub name: String,
    /// Path of the file, below `scratch`.
    pub path: String,
    /// MIME type, guessed from the name.
    pub content_type: String,
}
