//! Jobs: submitting, reading, waiting for, cancelling and retrying them.

pub(crate) mod events;
pub(crate) mod feedback;
pub(crate) mod inputs;
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
