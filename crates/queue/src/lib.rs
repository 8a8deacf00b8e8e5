//! Stokehold's queue: the verbs that move jobs, and the other records in Redis.
//!
//! The job record is the source of truth; streams only mean "ready". [`Queue`] is the contract and [`RedisQueue`] the
//! production implementation. `stokehold-queue-model` is an implementation in one process, for tests and simulation.
//! The job model is in `stokehold-protocol`, whose modules are re-exported here. This crate contains no HTTP, GPU or
//! cloud code.

pub mod backup;
pub mod batches;
pub mod budgets;
mod commit;
mod connection;
pub mod costs;
mod error;
pub mod feedback;
pub mod flow;
pub mod history;
#[doc(hidden)]
pub mod implementation;
mod keys;
mod lane_place;
mod limit_scope;
mod limits;
pub mod metrics;
#[cfg(feature = "mutants")]
pub mod mutants;
pub mod outbox;
mod output_texts;
pub mod quarantine;
pub mod queue;
pub mod readings;
mod record;
mod redis_checks;
mod redis_health;
mod redis_queue;
pub mod registry;
mod requirement_sets;
pub mod schedules;
mod scripts;
pub mod series;
mod shards;
mod signals;
mod stored_spec;
pub mod timings;
pub mod traces;

pub use batches::Batches;
pub use error::Error;
pub use lane_place::LanePlace;
pub use outbox::Outbox;
pub use queue::{BATCH_MAX, Queue, SUBMIT_MAX};
pub use redis_checks::{Durability, RedisChecks};
pub use redis_health::{NoAdmission, RedisHealth};
pub use redis_queue::{Health, Holding, OpenJobs, OpenJobsStart, RedisConfig, RedisQueue, WatchedAttempt};
pub use registry::{Registry, SpentToken, TokenKind, TokenRecord, WebhookGeneration, WorkerRecord};
pub use schedules::Schedules;
pub use scripts::{Cursor, Recovered, scripts};
pub use shards::{SHARDS_MAX, Shards};
pub use stokehold_failpoint as failpoint;
pub use stokehold_protocol::{
    Clock, Fence, JobId, ManualClock, ParseJobIdError, capability, endpoint, gateway, gpus, job, names, nonce, now_ms,
    pipeline, requirements, requirements_lock, retry, state, vram,
};
use stokehold_protocol::{clock, id};
pub use stokehold_serde_words::{in_words, json_in_words, shown_in_words};
