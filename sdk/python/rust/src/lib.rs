//! The Rust half of the Python runner, imported as `stokehold._wire`.
//!
//! It owns the socket to the worker, so that a handler that holds the GIL for a minute is distinguishable from a dead
//! one: [`inbox`] reads on a separate thread, [`pulse`] sends heartbeats on another, and neither takes the GIL.
//! [`outbox`] writes in the caller's thread with the GIL released; data is in the kernel when it returns and survives a
//! crash of the handler.

mod control;
mod exit;
mod inbox;
mod memory;
mod outbox;
mod pulse;
mod wire;

/// The module `stokehold._wire`.
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
