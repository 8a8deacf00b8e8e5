//! Stokehold's queue: the job model, its state machine, and the verbs that move jobs.
//!
//! The job record is the source of truth; streams only mean "ready". [`Queue`] is the contract, [`RedisQueue`] the
//! production implementation and [`MemoryQueue`] the same in one process, for simulation. This crate contains no HTTP,
//! GPU or cloud code.

pub mod backup;
pub mod batches;
pub mod budgets;
mod clock;
mod commit;
mod connection;
pub mod costs;
pub mod demands;
pub mod endpoint;
mod error;
pub mod failpoint;
pub mod feedback;
pub mod flow;
mod gate;
pub mod gateway;
pub mod gpus;
pub mod history;
mod id;
pub mod job;
mod keys;
mod limits;
mod memory;
pub mod metrics;
#[cfg(feature = "mutants")]
pub mod mutants;
pub mod outbox;
pub mod pipeline;
pub mod quarantine;
pub mod queue;
pub mod reach;
pub mod readings;
mod record;
mod redis_checks;
mod redis_health;
mod redis_queue;
pub mod registry;
mod requirements;
pub mod requirements_lock;
pub mod retry;
pub mod schedules;
mod scripts;
pub mod series;
mod shards;
mod signals;
pub mod state;
mod stored_spec;
pub mod timings;
pub mod traces;
pub mod vram;

pub use batches::Batches;
pub use clock::{Clock, ManualClock, now_ms};
pub use error::Error;
pub use id::{Fence, JobId, ParseJobIdError, nonce};
pub use memory::MemoryQueue;
pub use outbox::Outbox;
pub use queue::{BATCH_MAX, Queue, SUBMIT_MAX};
pub use redis_checks::{Durability, RedisChecks};
pub use redis_health::{RedisHealth, Refusal};
pub use redis_queue::{Health, Holding, RedisConfig, RedisQueue};
pub use registry::{Registry, SpentToken, TokenKind, TokenRecord, WebhookGeneration, WorkerRecord};
pub use schedules::Schedules;
pub use scripts::{Cursor, Recovered, scripts};
pub use shards::{SHARDS_MAX, Shards};
pub use stokehold_serde_words::{in_words, json_in_words, shown_in_words};
