//! The evidence that no job is lost and none is run twice: `chaos` runs the product as real processes, injects faults,
//! and checks the journals of independent witnesses.

pub mod checker;
mod clients;
mod cluster;
mod finale;
pub mod gates;
pub mod history;
mod nemesis;
mod pace;
pub mod plan;
pub mod proxy;
pub mod report;
pub mod run;
mod sink;
