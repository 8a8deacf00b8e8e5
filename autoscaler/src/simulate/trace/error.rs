//! What can be wrong with a trace.

use std::io;
use std::path::PathBuf;

use super::{HEADER, Priority};
use crate::name::Name;

/// Why a trace cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk's failure, not the trace's.
    #[error("failed to read trace {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The disk's failure. What there is of the file is to be removed.
    #[error("failed to write trace {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file has to be changed.
    #[error("{} line {line}: {fault}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Counted from 1, after decompression.
        line: u64,
        /// What is wrong there.
        fault: Fault,
    },
}

/// What is wrong with a line of a trace, and what to change.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Fault {
    /// There is not even a header.
    #[error("the file is empty: begin it with the header {}", HEADER.join(","))]
    Empty,
    /// A header and nothing else.
    #[error("there are no jobs: add a line for each")]
    NoJobs,
    /// The first line is not the header.
    #[error("the header is {found:?}: make it {}", HEADER.join(","))]
    Header {
        /// The first line.
        found: String,
    },
    /// Too few columns, or too many.
    #[error("{found} columns: give {}", HEADER.join(","))]
    Columns {
        /// How many.
        found: usize,
    },
    /// Not a number, or not one that can be meant.
    #[error("{column} is {found:?}: give a number from 0 to {max}")]
    Number {
        /// Of which column.
        column: &'static str,
        /// What stands there.
        found: String,
        /// The largest that is believed.
        max: f64,
    },
    /// An endpoint without a name, or with one that cannot be meant.
    #[error("endpoint is {found:?}: give a name of at most {max} bytes without control characters")]
    Endpoint {
        /// What stands there, or how it begins.
        found: String,
        /// The longest that is believed.
        max: usize,
    },
    /// Neither priority.
    #[error("priority is {found:?}: give {} or {}", Priority::Interactive, Priority::Batch)]
    Priority {
        /// What stands there.
        found: String,
    },
    /// It arrived before the one above it.
    #[error("arrival_s {arrival_s} is below {before_s} of the line above: sort the lines by arrival_s")]
    Unsorted {
        /// Of this line.
        arrival_s: f64,
        /// Of the line above.
        before_s: f64,
    },
    /// An endpoint has one model, and that takes one amount of memory.
    #[error(
        "vram_gb of {endpoint} is {vram_gb} here and {before_gb} before: give it one value, or the endpoint two names"
    )]
    Vram {
        /// Whose.
        endpoint: Name,
        /// On this line.
        vram_gb: f64,
        /// On the first line that names it.
        before_gb: f64,
    },
    /// More than are believed.
    #[error("more than {max} jobs: cut the trace")]
    TooManyJobs {
        /// How many are believed.
        max: usize,
    },
    /// More than is believed, after decompression.
    #[error("more than {max} bytes after decompression: cut the trace")]
    TooLarge {
        /// How many are believed.
        max: u64,
    },
    /// Not text.
    #[error("it is not UTF-8: store the trace as CSV, plain or gzipped")]
    NotText,
    /// gzip that ends too early, or that is none.
    #[error("its gzip is damaged or cut short ({said}): compress or copy it again")]
    Gzip {
        /// What the decoder said.
        said: String,
    },
}
