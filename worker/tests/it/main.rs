//! A whole worker against a gateway inside the test: real HTTP, real environments, real runners.
//!
//! The gateway is [`gateway::Gateway`]: the routes of `/worker/v1` over a few maps. The end-to-end suite in `tests/`
//! covers the worker with the real gateway.
#![allow(clippy::unwrap_used, missing_docs)]

mod batches;
mod caches;
mod disk;
mod drain;
mod duties;
mod ends;
mod environments;
mod gateway;
mod gpu_kinds;
mod gpus;
mod histories;
mod kinds;
mod leases;
mod models;
mod outputs;
mod rejoin;
mod rentals;
mod stage;
