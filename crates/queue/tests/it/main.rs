//! Tests of the queue on a real Redis, in memory, and of the two against each other.
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

mod batches;
mod conformance;
mod diagram;
mod disk_full;
mod fairness;
mod figures;
mod history;
mod long_calls;
mod memory;
mod model;
mod outbox;
mod quarantine;
mod recovery;
mod redis;
mod registry;
mod replicas;
mod requirements;
mod schedules;
mod script_times;
mod sentinel;
mod shards;
mod shares;
mod traces;
