//! The proof that no job is lost and none is done twice: `chaos` runs the product as real processes, breaks them, and judges what
//! independent witnesses wrote down.

pub mod checker;
mod clients;
mod cluster;
mod finale;
pub mod gates;
pub mod history;
mod nemesis;
pub mod plan;
pub mod proxy;
pub mod report;
pub mod run;
mod sink;
