//! Delivery of webhooks: the events in the queue's outbox. Standard Webhooks on the wire; at least once, or `exhausted`
//! after ten tries (P9), with the same id on each.
//!
//! [`guard`] decides where they may go and [`client`] enforces it, [`sign`] signs them, [`schedule`] has the retry
//! times, [`breaker`] and [`lanes`] keep one bad receiver from delaying the rest, [`payload`] is their content, and
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
