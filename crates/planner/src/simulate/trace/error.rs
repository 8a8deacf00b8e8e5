//! Errors of traces.

use std::io;
use std::path::PathBuf;

use super::{HEADER, Priority};
use crate::name::Name;

/// Reason why a trace cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("failed to read trace {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file cannot be written. A partial file may be left, which the caller has to remove.
    #[error("failed to write trace {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The contents of the file are invalid.
    #[error("{} line {line}: {fault}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Line number, from 1, after decompression.
        line: u64,
        /// The problem on that line.
        fault: ErrorKind,
    },
}

/// A problem with a line of a trace, and its fix.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ErrorKind {
    /// The file has no header.
    #[error("the file is empty: begin it with the header {}", HEADER.join(","))]
    Empty,
    /// The file has a header and no jobs.
    #[error("there are no jobs: add a line for each")]
    NoJobs,
    /// The first line is not the header.
    #[error("the header is {found:?}: make it {}", HEADER.join(","))]
    Header {
        /// The first line.
        found: String,
    },
    /// A line has too few or too many columns.
    #[error("{found} columns: give {}", HEADER.join(","))]
    Columns {
        /// Number of columns.
        found: usize,
    },
    /// A value is not a number, or is out of range.
    #[error("{column} is {found:?}: give a number from 0 to {max}")]
    Number {
        /// The column.
        column: &'static str,
        /// The value found.
        found: String,
        /// The maximum.
        max: f64,
    },
    /// An endpoint's name is missing or invalid.
    #[error("endpoint is {found:?}: give a name of at most {max} bytes without control characters")]
    Endpoint {
        /// The value found, or its beginning.
        found: String,
        /// Maximum length, bytes.
        max: usize,
    },
    /// A priority is unknown.
    #[error("priority is {found:?}: give {} or {}", Priority::Interactive, Priority::Batch)]
    Priority {
        /// The value found.
        found: String,
    },
    /// A job arrived before the one on the line above.
    #[error("arrival_s {arrival_s} is below {before_s} of the line above: sort the lines by arrival_s")]
    Unsorted {
        /// Arrival time on this line.
        arrival_s: f64,
        /// Arrival time on the line above.
        before_s: f64,
    },
    /// The memory of an endpoint differs between lines. An endpoint has one model.
    #[error(
        "vram_gb of {endpoint} is {vram_gb} here and {before_gb} before: give it one value, or the endpoint two names"
    )]
    Vram {
        /// The endpoint.
        endpoint: Name,
        /// Memory on this line, GB.
        vram_gb: f64,
        /// Memory on the first line of the endpoint, GB.
        before_gb: f64,
    },
    /// The trace has too many jobs.
    #[error("more than {max} jobs: cut the trace")]
    TooManyJobs {
        /// Maximum number of jobs.
        max: usize,
    },
    /// The trace is too large after decompression.
    #[error("more than {max} bytes after decompression: cut the trace")]
    TooLarge {
        /// Maximum size, bytes.
        max: u64,
    },
    /// The file is not text.
    #[error("it is not UTF-8: store the trace as CSV, plain or gzipped")]
    NotText,
    /// The gzip data is truncated or invalid.
    #[error("its gzip is damaged or cut short ({cause}): compress or copy it again")]
    Gzip {
        /// Error of the decoder.
        cause: String,
    },
}
