//! The compiled part of the Python package, imported as `stokehold._wire`: the connection of a runner to its worker, and
//! the packaging of folders for a deploy ([`package`]).
//!
//! The connection owns the socket to the worker, so that a handler that holds the GIL for a minute is distinguishable from a dead
//! one: [`inbox`] reads on a separate thread, [`pulse`] sends heartbeats on another, and neither takes the GIL.
//! [`outbox`] writes in the caller's thread with the GIL released; data is in the kernel when it returns and survives a
//! crash of the handler.

mod control;
mod exit;
mod inbox;
mod memory;
mod outbox;
mod package;
mod pulse;
mod wire;

/// The module `stokehold._wire`.
#[pyo3::pymodule]
mod _wire {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::control::{Load, Run, Shutdown};
    #[pymodule_export]
    use crate::package::{Package, Weights};
    #[pymodule_export]
    use crate::wire::Wire;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("BODY_BYTES_MAX", stokehold_wire::BODY_BYTES_MAX)?;
        module.add("PackageError", module.py().get_type::<crate::package::PackageError>())
    }
}
