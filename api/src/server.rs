//! The HTTP server: connections and their limits, request bodies and queries, request logs, health checks.

pub(crate) mod health;
pub(crate) mod json;
pub(crate) mod observe;
pub(crate) mod path;
pub(crate) mod peer;
pub(crate) mod query;
pub(crate) mod rate_limit;
pub(crate) mod readiness;
pub(crate) mod responses;
pub(crate) mod serve;
pub(crate) mod starting;
pub(crate) mod wait_permits;
