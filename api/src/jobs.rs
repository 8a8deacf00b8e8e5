//! Jobs: submitting, reading, waiting for, cancelling and retrying them.

pub(crate) mod events;
pub(crate) mod feedback;
pub(crate) mod inputs;
pub(crate) mod lanes;
pub(crate) mod large_inputs;
pub(crate) mod quarantine;
pub(crate) mod queue;
pub(crate) mod redrive;
pub(crate) mod results;
pub(crate) mod routes;
pub(crate) mod submit;
pub(crate) mod view;
pub(crate) mod waiting;
pub(crate) mod watchers;
pub(crate) mod words;

/// Maximum size of the body of a bulk submit, bytes: larger than other bodies, because it has up to 1,000 jobs.
pub(crate) const BULK_BODY_MAX: usize = 8 << 20;
