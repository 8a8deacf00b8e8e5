//! A stand-in for Vast.ai. It speaks the API as clients meet it: formats, deviations from the documentation, errors and
//! rate limits.
//!
//! [`Market`] has no clock, no socket and no thread: callers pass the time, and the same seed and the same calls give
//! the same responses. [`Server`] serves a market over HTTP on a loopback port and can run containers: [`Processes`]
//! runs each as a process group of this machine.
//!
//! The stand-in never connects to Vast.ai. Its prices are drawn around those of a table, `kinds.csv`.

#![recursion_limit = "256"]

mod account;
mod changes;
mod control;
mod dispatch;
mod draw;
mod fate;
mod faults;
mod fields;
mod instances;
mod kinds;
mod life;
mod limits;
mod listing;
mod log;
mod machines;
mod market;
mod money;
mod offers;
mod processes;
mod rent;
mod rows;
mod search;
mod server;
mod settings;
mod steps;
mod time;
mod traffic;
mod wire;

pub use control::Act;
pub use faults::{Fault, Faults, OutbidLook, Rule};
pub use instances::{Change, Event, Happened, Runtype, Started};
pub use log::Call;
pub use market::{Bill, Market};
pub use money::{Items, Money, UNITS_PER_USD, in_usd, nano_usd, of_traffic, per_ms_of_disk, per_ms_of_hourly};
pub use processes::{Hardware, Processes};
pub use server::{Clock, Machines, Options, Server};
pub use settings::{KEY, Key, Listing, Settings};
pub use stokehold_vast::{Route, Scope, Status};
pub use wire::{Answer, Delivery, Request};
