//! Stokehold's worker: leases the jobs that fit on its GPUs, runs them in Python runners, stores their results and
//! reports how they ended.
//!
//! It communicates only with the gateway and with presigned URLs: it has no access to Redis and no S3 credentials.

mod attempt;
mod backoff;
mod conceal;
mod config;
mod disk;
pub mod environment;
mod failure;
mod gateway;
mod gpus;
mod host;
mod inputs;
mod latency;
mod leases;
mod load;
pub mod local;
pub mod machine;
mod mask;
mod messages;
pub mod metrics;
mod output;
mod package;
mod pool;
mod programs;
mod rejoin;
mod rental;
mod runner;
pub mod sandbox;
mod scratch;
mod secret;
mod transfer;
mod turns;
mod usage;
pub mod uv;
mod weights;
mod worker;

pub use conceal::conceal;
pub use config::{Config, ConfigError, INHERITED, RawConfig, SECRETS, VARIABLES, user_cache_dir};
pub use secret::Secret;
pub use worker::{run, run_supervised};
