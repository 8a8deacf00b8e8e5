//! Stokehold's queue: the job model, its state machine, and the verbs that move jobs.
//!
//! The job record is the truth; streams mean "ready" and nothing more. [`Queue`] is the contract, [`RedisQueue`] what runs in
//! production and [`MemoryQueue`] the same in one process, for simulation. This crate knows no HTTP, no GPU and no cloud.

#[cfg(feature = "redis")]
pub mod backup;
#[cfg(feature = "redis")]
pub mod batches;
#[cfg(feature = "redis")]
pub mod budgets;
mod clock;
#[cfg(feature = "redis")]
mod commit;
#[cfg(feature = "redis")]
mod connection;
#[cfg(feature = "redis")]
pub mod costs;
pub mod demands;
pub mod endpoint;
mod error;
pub mod failpoint;
#[cfg(feature = "redis")]
pub mod feedback;
#[cfg(feature = "redis")]
mod fitness;
#[cfg(feature = "redis")]
pub mod flow;
pub mod gateway;
pub mod gpus;
#[cfg(feature = "redis")]
pub mod history;
mod id;
pub mod job;
#[cfg(feature = "redis")]
mod keys;
#[cfg(feature = "redis")]
mod memory;
#[cfg(feature = "redis")]
pub mod metrics;
#[cfg(feature = "mutants")]
pub mod mutants;
#[cfg(feature = "redis")]
pub mod outbox;
pub mod pipeline;
#[cfg(feature = "redis")]
pub mod quarantine;
#[cfg(feature = "redis")]
pub mod queue;
pub mod reach;
#[cfg(feature = "redis")]
pub mod readings;
#[cfg(feature = "redis")]
mod record;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
pub mod registry;
#[cfg(feature = "redis")]
mod requirements;
pub mod requirements_lock;
pub mod retry;
#[cfg(feature = "redis")]
pub mod schedules;
#[cfg(feature = "redis")]
mod scripts;
#[cfg(feature = "redis")]
pub mod series;
#[cfg(feature = "redis")]
mod shards;
#[cfg(feature = "redis")]
mod signals;
pub mod state;
#[cfg(feature = "redis")]
mod stored_spec;
#[cfg(feature = "redis")]
pub mod timings;
#[cfg(feature = "redis")]
pub mod traces;
#[cfg(feature = "redis")]
mod vitals;
pub mod vram;
mod words;

#[cfg(feature = "redis")]
pub use batches::Batches;
pub use clock::{Clock, ManualClock, now_ms};
pub use error::Error;
#[cfg(feature = "redis")]
pub use fitness::{Durability, Fitness};
pub use id::{Fence, JobId, ParseJobIdError, nonce};
#[cfg(feature = "redis")]
pub use memory::MemoryQueue;
#[cfg(feature = "redis")]
pub use outbox::Outbox;
#[cfg(feature = "redis")]
pub use queue::Queue;
#[cfg(feature = "redis")]
pub use redis::{BATCH_MAX, Health, Holding, RedisConfig, RedisQueue, SUBMIT_MAX};
#[cfg(feature = "redis")]
pub use registry::{Registry, SpentToken, TokenKind, TokenRecord, WebhookGeneration, WorkerRecord};
#[cfg(feature = "redis")]
pub use schedules::Schedules;
#[cfg(feature = "redis")]
pub use scripts::{Cursor, Recovered, scripts};
#[cfg(feature = "redis")]
pub use shards::{SHARDS_MAX, Shards};
#[cfg(feature = "redis")]
pub use vitals::{Refusal, Vitals};
pub use words::{in_words, json_in_words, shown_in_words};
