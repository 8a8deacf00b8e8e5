//! The Rust half of the Python runner, imported as `stokehold._wire`.
//!
//! It owns the socket to the worker, so that a handler that holds the GIL for a minute can still be told from a dead one:
//! [`inbox`] reads on a thread of its own, [`pulse`] beats on another, and neither ever takes the GIL. [`outbox`] writes in the
//! caller's thread with the GIL released; what it was given is in the kernel when it returns, and survives whatever the handler does next.

mod control;
mod exit;
mod inbox;
mod memory;
mod outbox;
mod pulse;
mod wire;

/// What `import stokehold._wire` gives.
#[pyo3::pymodule]
mod _wire {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::control::{Load, Run, Shutdown};
    #[pymodule_export]
    use crate::wire::Wire;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("BODY_BYTES_MAX", stokehold_wire::BODY_BYTES_MAX)
    }
}
