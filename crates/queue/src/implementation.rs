//! The computations that are common to all implementations of [`Queue`](crate::Queue). Only `stokehold-queue-model` may
//! depend on this module.

pub use crate::costs::spent::{AttemptUse, Numbers, spent_of};
pub use crate::flow::counters::{RunCount, Seen, Waiting, arrived, assemble, ended, failed, late, started};
pub use crate::keys::lane;
pub use crate::limits::ScopeUsage;
pub use crate::queue::lease::ahead;
pub use crate::stored_spec::encode as encode_spec;
