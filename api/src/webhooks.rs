//! Webhooks: events that the queue's outbox holds, delivered. Standard Webhooks on the wire; at least once, or `exhausted` after ten
//! tries (P9), with the same id on each.
//!
//! [`guard`] says where they may go, [`client`] goes nowhere else, [`sign`] proves whom they are from, [`schedule`] says when they
//! are tried again, [`breaker`] and [`lanes`] keep one bad receiver from holding up the rest, [`payload`] is what they say, and
//! [`deliver`] is the loop.

mod breaker;
mod client;
pub(crate) mod deliver;
pub(crate) mod guard;
mod lanes;
mod payload;
pub(crate) mod routes;
pub(crate) mod schedule;
pub(crate) mod sign;

use crate::config::Webhooks;

/// Whether a job's or a batch's events may be sent to this URL; the error completes "webhook ...".
pub(crate) fn check_url(config: &Webhooks, url: &str) -> Result<(), String> {
    guard::check_url(config, url).map(|_| ()).map_err(|refused| refused.to_string())
}
