//! Control messages of the worker, as Python objects.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// First message: import `entry` and call `setup()`.
#[pyclass(frozen, module = "stokehold._wire")]
pub(crate) struct Load {
    #[pyo3(get)]
    kind: String,
    #[pyo3(get)]
    entry: String,
    #[pyo3(get)]
    max_concurrency: u32,
    settings: Vec<u8>,
}

#[pymethods]
impl Load {
    /// Settings of the kind, as JSON.
    #[getter]
    fn settings<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.settings)
    }
}

/// Run the handler.
#[pyclass(frozen, module = "stokehold._wire")]
pub(crate) struct Run {
    #[pyo3(get)]
    number: u64,
    #[pyo3(get)]
    job: String,
    #[pyo3(get)]
    attempt: u32,
    #[pyo3(get)]
    scratch: String,
    #[pyo3(get)]
    files: BTreeMap<String, String>,
    #[pyo3(get)]
    more: u32,
    #[pyo3(get)]
    traceparent: Option<String>,
    input: Vec<u8>,
}

#[pymethods]
impl Run {
    /// The input, JSON.
    #[getter]
    fn input<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.input)
    }
}

/// Finish what runs, then exit with 0.
#[pyclass(frozen, module = "stokehold._wire")]
pub(crate) struct Shutdown;

/// A control message that waits for Python. `cancel` is not included, because it takes effect immediately.
pub(crate) enum Control {
    Load(Load),
    Run(Run),
    Shutdown,
}

impl Control {
    /// Converts a message. `Err` contains the run of a `cancel`.
    pub(crate) fn from_wire(message: stokehold_wire::Control, body: Vec<u8>) -> Result<Self, u64> {
        use stokehold_wire::Control as Message;
        match message {
            Message::Load { kind, entry, max_concurrency } => {
                Ok(Self::Load(Load { kind, entry, max_concurrency, settings: body }))
            }
            Message::Run { run, job, attempt, scratch, files, more, traceparent } => {
                Ok(Self::Run(Run { number: run, job, attempt, scratch, files, more, traceparent, input: body }))
            }
            Message::Cancel { run } => Err(run),
            Message::Shutdown => Ok(Self::Shutdown),
        }
    }

    /// The run that it starts, if any.
    pub(crate) fn run(&self) -> Option<u64> {
        match self {
            Self::Run(run) => Some(run.number),
            Self::Load(_) | Self::Shutdown => None,
        }
    }

    /// The Python object for it.
    pub(crate) fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(match self {
            Self::Load(load) => Bound::new(py, load)?.into_any().unbind(),
            Self::Run(run) => Bound::new(py, run)?.into_any().unbind(),
            Self::Shutdown => Bound::new(py, Shutdown)?.into_any().unbind(),
        })
    }
}
