//! What a backup holds of Redis, and how it gets there and back: every key that is kept, as what it says and not as its bytes in memory,
//! so that another version, another Redis or Valkey and another number of nodes take it.
//!
//! [`Source`] reads a root at a time while writers wait, for as long as they may be made to, so that a root is copied as it was at one
//! moment. [`Target`] writes into a queue that holds nothing, and then takes every lease from whom it had been given to, by the verb that
//! workers give them back with. What becomes of which key is in [`family`] alone. Knows no encryption and no S3.

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
