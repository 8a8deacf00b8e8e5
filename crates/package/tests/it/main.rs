//! The archive and the deploy request of a folder of each kind.

#![allow(clippy::unwrap_used, reason = "tests")]

mod goldens;
mod same;
