//! Shared code of the tests and benches of several crates: real servers and the real stack, started for one test and
//! ended with it.

pub mod documented;
pub mod goals;
pub mod meeting;
pub mod process;
pub mod redis_cluster;
pub mod redis_sentinel;
pub mod redis_server;
pub mod small_disk;
pub mod stack;
pub mod temp_links;
pub mod tie;
mod topology;
