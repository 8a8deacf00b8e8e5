//! The words of Vast.ai's API: URLs, environment variables, JSON names, states and error codes. Without I/O.
//!
//! The provider of the autoscaler, the dead man's switch of the worker and the stand-in of the tests spell these words
//! here only. `python3 tests/tidy` checks that, and a test of the autoscaler compares `deploy/vast/bootstrap.sh`.
//! Tests spell the words themselves, so that a typing error here fails.

pub mod code;
pub mod env;
pub mod field;
pub mod path;
mod reply;
mod route;
mod scope;
pub mod state;
mod status;

pub use reply::reports_failure;
pub use route::Route;
pub use scope::Scope;
pub use status::Status;

/// URL of Vast.ai, without a trailing slash.
pub const URL: &str = "https://console.vast.ai";
