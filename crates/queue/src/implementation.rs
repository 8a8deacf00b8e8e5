//! What every implementation of [`Queue`](crate::Queue) computes alike. For `stokehold-queue-model` alone: no other
//! crate may depend on it.

pub use crate::costs::spent::{AttemptUse, spent_of};
pub use crate::flow::counters::{RunCount, Seen, Waiting, arrived, assemble, ended, failed, late, started};
pub use crate::keys::lane;
pub use crate::limits::ScopeUsage;
pub use crate::queue::lease::ahead;
pub use crate::stored_spec::encode as encode_spec;
