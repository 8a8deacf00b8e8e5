//! The wire between a worker and one of its Python runners.
//!
//! A Unix stream socket carries frames: `u32` header length, `u32` body length (both little-endian), a JSON header
//! ([`Control`] to the runner, [`Report`] back), then the raw bytes of the body. The body is data that need not be
//! parsed on the way: a job's input, an output, a result, log text. Both ends of the wire use this crate.

mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod message;

pub use frame::{BODY_BYTES_MAX, Decoder, FrameError, HEADER_BYTES_MAX, encode};
pub use message::{Control, Failure, OutputFile, Report, Stream};
