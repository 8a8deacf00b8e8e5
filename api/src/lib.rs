//! Stokehold's public HTTP API and its worker gateway. It keeps nothing of its own: jobs are in the queue, bytes in the object
//! store, and any number of replicas serve the same.
//!
//! [`run`] is all that the `stoke` binary calls; [`app`] is every route without a socket, for tests. Tokens are made with
//! [`token::mint`].

pub mod audit;
mod auth;
mod batches;
mod budgets;
mod catalog;
pub mod config;
mod costs;
mod dashboard;
mod descriptors;
pub mod error;
mod evicted;
mod feedback;
mod figures;
mod fleet;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod gateway;
mod history;
mod inputs;
mod json;
mod keepers;
mod large_inputs;
mod live;
mod maintenance;
mod metrics;
mod names;
mod observe;
mod offers;
pub mod openapi;
mod pace;
mod path;
mod patience;
mod peer;
mod pulls;
mod query;
mod recovery;
mod rented;
mod requirements;
mod routes;
mod run;
mod schedules;
mod schema;
mod scope;
pub mod secrets;
mod series;
mod serve;
mod session;
mod settle;
mod shares;
mod signals;
mod stamp;
mod state;
mod storage;
mod tenants;
pub mod token;
mod traces;
mod turns;
mod uses;
mod waiting;
mod waits;
mod watch;
mod webhooks;
mod work;

pub use config::Config;
pub use dashboard::has_dashboard;
pub use figures::METRICS as FIGURES;
pub use metrics::{METRICS, catalogues};
pub use routes::archives::{Archive as WorkerArchive, list as worker_archives};
pub use run::{app, run, run_showing, run_supervised};
pub use state::App;
