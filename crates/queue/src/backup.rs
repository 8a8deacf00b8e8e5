//! Reads and writes the Redis part of a backup. A backup holds every stored key by its content rather than its
//! in-memory bytes, so that another version, another Redis or Valkey, or another number of nodes can load it.
//!
//! [`Source`] reads one root at a time while writers are paused, within a time limit, so that the copy of a root is
//! consistent. [`Target`] writes into an empty queue and then releases every lease with the verb that workers use.
//! [`family`] alone decides what happens to which key. This module contains no encryption and no S3 code.

mod census;
mod entry;
pub mod family;
mod read;
mod target;
mod write;

pub use census::Census;
pub use entry::{Bytes, Content, Entry, Root};
pub use read::{Moment, Source};
pub use target::{Restored, Target, job};
