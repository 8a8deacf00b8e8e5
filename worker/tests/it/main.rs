//! A whole worker against a gateway inside the test: real HTTP, real environments, real runners.
//!
//! The gateway is [`gateway::Gateway`]: the routes of `/worker/v1` over a few maps. What the worker and the real
//! gateway make of each other is for the end-to-end suite in `tests/`.
#![allow(clippy::unwrap_used, missing_docs)]

mod batches;
mod caches;
mod disk;
mod drain;
mod duties;
mod ends;
mod environments;
mod gateway;
mod gpus;
mod histories;
mod kinds;
mod leases;
mod models;
mod outputs;
mod rejoin;
mod rentals;
mod stage;
