//! Stokehold's public HTTP API and its worker gateway. The API stores nothing itself: jobs are in the queue, bytes in
//! the object store, so any number of replicas serve the same data.
//!
//! The `stoke` binary calls only [`run`]; [`app`] is every route without a socket, for tests. [`token::mint`] creates
//! tokens.

mod batches;
pub mod config;
mod costs;
mod dashboard;
mod database;
mod deletion;
mod descriptors;
mod endpoints;
pub mod error;
mod files;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod history;
mod jobs;
mod maintenance;
mod metrics;
mod names;
mod object_keys;
mod openai;
pub mod openapi;
mod pipelines;
mod problems;
mod recovery;
mod redis_watch;
mod routes;
mod run;
mod schedules;
pub mod secrets;
mod server;
mod signals;
mod state;
mod tenants;
mod time_format;
mod traces;
mod wakeups;
mod webhooks;
mod workers;

pub use config::Config;
pub use dashboard::has_dashboard;
pub use metrics::cluster::METRICS as FIGURES;
pub use metrics::{METRICS, catalogues};
pub use run::{app, run, run_showing, run_supervised};
pub use state::App;
pub use tenants::{audit, token};
pub use workers::archives::{Archive as WorkerArchive, list as worker_archives};
