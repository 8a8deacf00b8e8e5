//! The autoscaler with its providers, as a program.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod bootstrap;
mod duties;
mod kubernetes;
mod vast;
