//! Packages the folder of an endpoint, with the code of `stoke deploy`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use stokehold_package::{
    Archive, BoxError, Description, Error, Host, Method, Overlay, Pinned, Request, Requirements, Response,
};

create_exception!(stokehold._wire, PackageError, PyException, "The folder cannot be packaged.");

/// The source of an endpoint. Documents are JSON text.
#[pyclass(frozen, module = "stokehold._wire")]
pub(crate) struct Package(stokehold_package::Package);

/// The pinned weights of a package.
#[pyclass(frozen, module = "stokehold._wire")]
pub(crate) struct Weights(Vec<Pinned>);

#[pymethods]
impl Package {
    /// Opens a folder, a `.py` file or `file.py:object`. `overlay` overrides `stoke.toml`.
    #[new]
    fn new(target: &str, overlay: &str) -> PyResult<Self> {
        let overlay = Overlay::parse(json(overlay)?).map_err(failed)?;
        Ok(Self(stokehold_package::Package::open(target, overlay).map_err(failed)?))
    }

    /// Notes for the author.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.0.notes.clone()
    }

    /// The folder of the endpoint.
    #[getter]
    fn folder(&self) -> String {
        self.0.folder().to_string_lossy().into_owned()
    }

    /// The handler, for messages.
    #[getter]
    fn handler(&self) -> &str {
        self.0.handler()
    }

    /// The Python version, if one is set.
    #[getter]
    fn python(&self) -> Option<&str> {
        self.0.python.as_deref()
    }

    /// The locked requirements; `None` if uv must lock them.
    fn locked(&self) -> PyResult<Option<String>> {
        Ok(match self.0.requirements().map_err(failed)? {
            Requirements::Locked(text) => Some(text),
            Requirements::Unlocked(_) => None,
        })
    }

    /// The text of the requirements file to pass to `uv_arguments`, if one is needed.
    fn lines_file(&self) -> PyResult<Option<String>> {
        Ok(match self.0.requirements().map_err(failed)? {
            Requirements::Locked(_) => None,
            Requirements::Unlocked(unlocked) => unlocked.lines_file(),
        })
    }

    /// The arguments of the uv that locks the requirements.
    fn uv_arguments(&self, lines_file: Option<PathBuf>) -> PyResult<Vec<OsString>> {
        let python = self.0.python.as_deref().unwrap_or_default();
        Ok(match self.0.requirements().map_err(failed)? {
            Requirements::Locked(_) => Vec::new(),
            Requirements::Unlocked(unlocked) => unlocked.uv_arguments(python, lines_file.as_deref()),
        })
    }

    /// The arguments of the Python that describes the handler; `None` for a program.
    fn describe_arguments(&self) -> Option<Vec<String>> {
        self.0.describe_arguments()
    }

    /// The description in what Python printed.
    fn parse_description(&self, stdout: &[u8], stderr: &[u8], ended: &str) -> PyResult<String> {
        Ok(self.0.parse_description(stdout, stderr, ended).map_err(failed)?.to_string())
    }

    /// The description of a program.
    #[staticmethod]
    fn description_of_program() -> String {
        stokehold_package::Package::description_of_program().to_string()
    }

    /// The sources in buckets for which `pin` needs a presigned URL.
    fn sources_to_sign(&self) -> PyResult<Vec<String>> {
        Ok(self.0.sources_to_sign().map_err(failed)?.into_iter().map(str::to_owned).collect())
    }

    /// Resolves the weights. `send(method, url, headers)` returns the status, the headers and an iterator of the body;
    /// `note(text)` shows a note.
    fn pin(
        &self,
        py: Python<'_>,
        send: Py<PyAny>,
        note: Py<PyAny>,
        signed: BTreeMap<String, String>,
    ) -> PyResult<Weights> {
        let host = Caller { send, note, interrupt: Interrupt::default() };
        let pinned = py.detach(|| self.0.pin(&host, &signed));
        match host.interrupt.take() {
            Some(interrupt) => Err(interrupt),
            None => Ok(Weights(pinned.map_err(failed)?)),
        }
    }

    /// A warning about pickles among the weights.
    fn pickle_note(&self, weights: &Weights) -> Option<String> {
        self.0.pickle_note(&weights.0)
    }

    /// Writes the archive. Returns its SHA-256 and its size in bytes.
    fn pack(&self, py: Python<'_>, weights: &Weights, archive: PathBuf) -> PyResult<(String, u64)> {
        let file = File::create(archive)?;
        let archive = py.detach(|| self.0.pack(&weights.0, &file)).map_err(failed)?;
        Ok((archive.sha256, archive.size_bytes))
    }

    /// The body of the deploy request. `archive` is what `pack` returned.
    fn request(
        &self,
        description: &str,
        python: &str,
        requirements_lock: &str,
        weights: &Weights,
        archive: (String, u64),
        traffic_percent: u32,
    ) -> PyResult<String> {
        let description = Description { version: json(description)?, python: python.to_owned() };
        let archive = Archive { sha256: archive.0, size_bytes: archive.1 };
        let body = self.0.request(&description, requirements_lock, &weights.0, &archive, traffic_percent);
        Ok(serde_json::Value::Object(body.map_err(failed)?).to_string())
    }
}

#[pymethods]
impl Weights {
    /// The files on this machine: name, path, SHA-256, size in bytes.
    fn files(&self) -> Vec<(String, PathBuf, String, u64)> {
        let on_disk = |one: &Pinned| Some((one.path.clone(), one.file.clone()?, one.sha256.clone(), one.size_bytes));
        self.0.iter().filter_map(on_disk).collect()
    }
}

/// The Python functions that send requests and show notes.
struct Caller {
    send: Py<PyAny>,
    note: Py<PyAny>,
    interrupt: Interrupt,
}

/// A `KeyboardInterrupt` or the like, which stops the pinning.
#[derive(Clone, Default)]
struct Interrupt(Arc<Mutex<Option<PyErr>>>);

impl Interrupt {
    fn set(&self, error: PyErr) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    fn is_set(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The text of an exception, without its class. Keeps an exception that is not an error.
    fn text_of(&self, error: PyErr) -> String {
        Python::attach(|py| {
            let text = error.value(py).to_string();
            if !error.is_instance_of::<PyException>(py) {
                self.set(error);
            }
            text
        })
    }
}

impl Host for Caller {
    fn send(&self, request: &Request<'_>) -> Result<Response, BoxError> {
        let method = match request.method {
            Method::Get => "GET",
            Method::Head => "HEAD",
        };
        Python::attach(|py| {
            let headers: Vec<(&str, &str)> =
                request.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let answer = self.send.call1(py, (method, request.url, headers))?;
            let (status, headers, chunks): (u16, Vec<(String, String)>, Py<PyAny>) = answer.extract(py)?;
            let body = Body { chunks, chunk: Vec::new(), read: 0, interrupt: self.interrupt.clone() };
            Ok(Response { status, headers, body: Box::new(body) })
        })
        .map_err(|error| self.interrupt.text_of(error).into())
    }

    fn note(&self, text: &str) {
        // A note that cannot be shown is no reason to stop.
        let _ = Python::attach(|py| self.note.call1(py, (text,)));
    }

    fn hashing(&self, _: &str, _: u64, _: u64) -> Result<(), Error> {
        if let Err(interrupt) = Python::attach(|py| py.check_signals()) {
            self.interrupt.set(interrupt);
        }
        if self.interrupt.is_set() { Err(Error::Stopped) } else { Ok(()) }
    }
}

/// The body of a response.
struct Body {
    /// An iterator of bytes.
    chunks: Py<PyAny>,
    chunk: Vec<u8>,
    /// Bytes of the chunk that have been read.
    read: usize,
    interrupt: Interrupt,
}

impl Read for Body {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        while self.read == self.chunk.len() {
            let next = Python::attach(|py| {
                let mut chunks = self.chunks.bind(py).try_iter()?;
                chunks.next().map(|chunk| chunk?.extract::<Vec<u8>>()).transpose()
            });
            match next.map_err(|error| std::io::Error::other(self.interrupt.text_of(error)))? {
                Some(chunk) => (self.chunk, self.read) = (chunk, 0),
                None => return Ok(0),
            }
        }
        let count = (self.chunk.len() - self.read).min(into.len());
        into[..count].copy_from_slice(&self.chunk[self.read..self.read + count]);
        self.read += count;
        Ok(count)
    }
}

fn failed(error: Error) -> PyErr {
    PackageError::new_err(error.with_causes())
}

fn json(text: &str) -> PyResult<serde_json::Value> {
    serde_json::from_str(text).map_err(|error| PackageError::new_err(error.to_string()))
}
