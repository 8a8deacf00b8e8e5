//! The market from outside, over its wire, and the official client against it.
#![allow(clippy::unwrap_used, reason = "tests")]

mod client;
mod faults;
mod market;
mod money;
mod server;
mod side;
