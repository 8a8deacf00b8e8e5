//! The data that Stokehold's programs exchange: ids, the job model and its state table, endpoints and their
//! requirements on workers, and the messages between workers and the gateway. Data and pure functions: no Redis, no
//! HTTP, no GPU and no cloud code.

pub mod capability;
pub mod clock;
pub mod endpoint;
pub mod gateway;
pub mod gpus;
pub mod id;
pub mod job;
pub mod names;
pub mod pipeline;
pub mod requirements;
pub mod requirements_lock;
pub mod retry;
pub mod state;
pub mod vram;

pub use clock::{Clock, ManualClock, now_ms};
pub use id::{Fence, JobId, ParseJobIdError, nonce};
