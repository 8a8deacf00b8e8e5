//! The autoscaler: rents, stops and returns machines as `stokehold_planner` plans.
//!
//! Each round observes the queue and the machines, plans, and applies the plan through a [`provider`]. Machines that it
//! pays for are in a ledger, which a successor reads.

mod apply;
pub mod config;
mod cost_ledger;
pub mod history;
pub mod live;
pub mod metrics;
pub mod observe;
pub mod provider;
pub mod providers;
mod rental_ledger;
pub mod secret;
mod sync;
