//! The whole stack: the built binaries, real Redis, real store, real Python, real kills.
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

mod api;
mod autoscaling;
mod bad_input;
mod batches;
mod building;
mod clocks;
mod crash;
mod dashboard;
mod deleting;
mod deploy;
mod documents;
mod events;
mod failover;
mod fairness;
mod fault_table;
mod first_light;
mod gate;
mod gpus;
mod handlers;
mod installed;
mod killed;
mod kinds;
mod makefile;
mod new_machine;
mod pipelines;
mod poison;
mod renting;
mod sandbox;
mod schedules;
mod sdk;
mod secrets;
mod tracing;
mod tutorials;
mod webhooks;
mod weights;
