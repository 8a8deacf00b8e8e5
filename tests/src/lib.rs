//! What the tests of several crates share: real servers, started for one test and gone with it.

pub mod redis_server;
