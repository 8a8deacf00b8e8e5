//! A stand-in for Vast.ai, which speaks its API as clients meet it: the shapes, the surprises, the errors, the pacing.
//!
//! [`Market`] is the whole of it, without a clock, a socket or a thread: a simulation calls it with its own time, and the same seed and the same
//! calls give the same answers. [`Server`] puts it on a loopback port for who speaks HTTP, and starts real machines where it is given some:
//! [`Processes`] runs every container as a process group of this machine.
//!
//! It never talks to the real one, knows no real account, and its prices are drawn around those of a table in `kinds.csv`.

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
