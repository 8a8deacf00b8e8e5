//! What a backup contains of Redis, and how it is read and written: every stored key by its content and not by its
//! bytes in memory, so that another version, another Redis or Valkey and another number of nodes can load it.
//!
//! [`Source`] reads one root at a time while writers are paused, within a limit, so that a root is copied as of one
//! moment. [`Target`] writes into an empty queue and then releases every lease with the verb that workers use.
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
