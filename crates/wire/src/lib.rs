//! The wire between a worker and one of its Python runners.
//!
//! A unix stream socket carries frames: `u32` header length, `u32` body length (both little-endian), a JSON header
//! ([`Control`] towards the runner, [`Report`] back), then the body's raw bytes. The body is what neither side wants to parse on
//! the way: a job's input, an output, a result, log text. Both ends of the wire are built on this crate.

mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod message;

pub use frame::{BODY_BYTES_MAX, Decoder, FrameError, HEADER_BYTES_MAX, encode};
pub use message::{Control, Failure, OutputFile, Report, Stream};
