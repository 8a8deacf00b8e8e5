//! A client of the public API: requests with timeouts and retries, API problems as errors, event streams, pages, and
//! models generated from `api/openapi.json`.

mod client;
mod decode;
pub mod events;
pub mod models;
mod outcome;
pub mod pages;
mod problem;
pub mod retry;
#[cfg(test)]
mod stub;
mod word;

pub use client::{Call, Client, Hints, RequestError, Settings, query, segment};
pub use decode::{Response, decode};
pub use outcome::JobFailed;
pub use problem::{Problem, Unreachable, may_pass};
pub use word::Word;
