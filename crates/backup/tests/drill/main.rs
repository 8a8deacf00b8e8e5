//! Backups over a real Redis and a real S3 endpoint.
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

mod refusals;
mod restored;
mod shapes;
mod world;
