//! The messages. Their JSON is pinned by the snapshots in `sdk/python/tests/wire/`, which the Python tests read too.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a worker tells its runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Control {
    /// First message: import `entry` and call `setup()`, or what that is for its kind. Answered by `ready` or `failed`. Body: the kind's
    /// settings, a JSON object.
    Load {
        /// `python`, `cog`, `runpod`, `server` or `command`.
        kind: String,
        /// `file.py:object` or `file.py`, relative to the working directory, which is the unpacked package; empty for a server or a command.
        entry: String,
        /// Runs at once; more than 1 only makes sense for async handlers.
        max_concurrency: u32,
    },
    /// Run the handler. Body: the input, a JSON object whose members are the handler's arguments.
    Run {
        /// The worker's number for this run; every report about it carries it.
        run: u64,
        /// The job's id, for the handler's eyes.
        job: String,
        /// Which try.
        attempt: u32,
        /// An empty directory of this run's own; output files are put here.
        scratch: String,
        /// The input's files, already fetched: file id to local path.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        files: BTreeMap<String, String>,
        /// So many runs follow that are one call of the handler with this one. Only for a handler that takes batches.
        #[serde(default, skip_serializing_if = "is_none")]
        more: u32,
        /// The run's place in its job's trace, as W3C Trace Context writes it; none of what is no job's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        traceparent: Option<String>,
    },
    /// Stop this run if it still runs: an async run is cancelled, a sync one gets `stokehold.Cancelled` at its next chance.
    Cancel {
        /// Which.
        run: u64,
    },
    /// Finish what runs, then exit with 0.
    Shutdown,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_none(number: &u32) -> bool {
    *number == 0
}

/// What a runner tells its worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Report {
    /// `setup()` is done.
    Ready {
        /// How long import and `setup()` took.
        load_ms: u64,
    },
    /// Import or `setup()` raised; the process exits after this.
    Failed {
        /// Why.
        error: Failure,
    },
    /// Once a second, from a thread that needs no GIL.
    Heartbeat {
        /// Resident memory of the process, bytes.
        rss_bytes: u64,
        /// Largest so far, bytes.
        peak_rss_bytes: u64,
        /// Runs under way.
        running: u32,
    },
    /// Text a run wrote to `sys.stdout` or `sys.stderr`. Body: the text, UTF-8.
    Log {
        /// Which run; 0 when it belongs to none (import, `setup()`, a thread of the handler's own).
        run: u64,
        /// Which stream.
        stream: Stream,
    },
    /// The handler said how far it is.
    Progress {
        /// Which run.
        run: u64,
        /// 0 to 1.
        fraction: f64,
        /// What it is doing.
        message: String,
    },
    /// A generator yielded. Body: the item, JSON.
    Output {
        /// Which run.
        run: u64,
        /// 0, 1, ...
        index: u64,
    },
    /// The run succeeded. Body: the result, JSON. A file in it is `{"$file": "<name>"}`.
    Done {
        /// Which run.
        run: u64,
        /// How long the handler took.
        run_ms: u64,
        /// Every file the result names.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        files: Vec<OutputFile>,
    },
    /// The run failed.
    Error {
        /// Which run.
        run: u64,
        /// How long the handler took.
        run_ms: u64,
        /// Why.
        error: Failure,
    },
    /// The runner itself is broken and exits after this.
    Fatal {
        /// Why.
        message: String,
    },
}

/// Which of the handler's streams.
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
    /// Its text, one line.
    pub message: String,
    /// The traceback, at most 16 KiB, from the handler's first frame on.
    pub traceback: String,
}

/// A file a run made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputFile {
    /// Its name in the result, unique within the run: 1 to 200 bytes without separators and control characters.
    pub name: String,
    /// Where it lies, under `scratch`.
    pub path: String,
    /// MIME type, guessed from the name.
    pub content_type: String,
}
