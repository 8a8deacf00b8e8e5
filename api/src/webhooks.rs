//! Delivery of webhooks: the events in the queue's outbox. The wire format is Standard Webhooks. Each event is
//! delivered at least once, or `exhausted` after ten attempts (P9), with the same ID on each.
//!
//! [`guard`] decides on allowed destinations and [`client`] enforces it, [`sign`] signs the messages, [`schedule`] has
//! the retry times, [`breaker`] and [`lanes`] keep one failing receiver from delaying the rest, [`payload`] builds
//! their content, and [`deliver`] is the loop.

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

/// Checks whether a job's or a batch's events may be sent to this URL; the error completes "webhook ...".
pub(crate) fn check_url(config: &Webhooks, url: &str) -> Result<(), String> {
    guard::check_url(config, url).map(|_| ()).map_err(|refused| refused.to_string())
}
