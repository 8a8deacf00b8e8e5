//! The wire as a Python object.

use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use nix::unistd::getppid;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use stokehold_wire::{Failure, FrameError, OutputFile, Report, Stream};

use crate::inbox::Inbox;
use crate::outbox::Outbox;
use crate::pulse;

/// The connection to the worker. Created once, in the main thread.
#[pyclass(frozen, module = "stokehold._wire")]
pub(crate) struct Wire {
    inbox: Arc<Inbox>,
    outbox: Arc<Outbox>,
    bell: UnixStream,
}

#[pymethods]
impl Wire {
    /// Takes ownership of the socket `fd`, and starts reading and sending heartbeats.
    #[new]
    fn new(fd: RawFd) -> PyResult<Self> {
        // One descriptor for both directions, so that a forked child closes the connection by closing `fd`.
        let socket = Arc::new(adopt(fd)?);
        let (bell, rope) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        rope.set_nonblocking(true)?;
        let outbox = Arc::new(Outbox::new(Arc::clone(&socket)));
        let inbox = Arc::new(Inbox::new(rope));
        thread::Builder::new().name("stoke-inbox".into()).spawn({
            let (inbox, outbox) = (Arc::clone(&inbox), Arc::clone(&outbox));
            move || inbox.read(&socket, &outbox)
        })?;
        thread::Builder::new().name("stoke-pulse".into()).spawn({
            let (inbox, outbox, worker) = (Arc::clone(&inbox), Arc::clone(&outbox), getppid());
            move || pulse::beat(&inbox, &outbox, worker)
        })?;
        Ok(Self { inbox, outbox, bell })
    }

    /// Waits for the next `Load`, `Run` or `Shutdown`.
    fn recv(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        py.detach(|| self.inbox.wait()).into_python(py)
    }

    /// The next `Load`, `Run` or `Shutdown`, if available.
    fn try_recv(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.inbox.poll().map(|control| control.into_python(py)).transpose()
    }

    /// A descriptor that is readable when a message has arrived, for an event loop that then calls `silence` and takes
    /// all messages.
    fn fileno(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    /// Makes `fileno` unreadable until the next message.
    fn silence(&self) {
        let mut rings = [0; 16];
        while matches!((&self.bell).read(&mut rings), Ok(count) if count == rings.len()) {}
        // In this order: a ring between the two steps would otherwise be lost.
        self.inbox.silenced();
    }

    /// The runs that were cancelled since the last call.
    fn take_cancels(&self) -> Vec<u64> {
        self.inbox.take_cancels()
    }

    /// Whether this run was cancelled and has not ended.
    fn is_cancelled(&self, run: u64) -> bool {
        self.inbox.is_cancelled(run)
    }

    /// Reports that `setup()` has finished.
    fn ready(&self, py: Python<'_>, load_ms: u64) -> PyResult<()> {
        self.say(py, |outbox| outbox.send(&Report::Ready { load_ms }))
    }

    /// Reports the number of runs that the program takes at once from now on.
    fn capacity(&self, py: Python<'_>, runs: u32) -> PyResult<()> {
        self.say(py, |outbox| outbox.send(&Report::Capacity { runs }))
    }

    /// Reports that the import or `setup()` raised an exception.
    fn failed(&self, py: Python<'_>, error: (String, String, String, String)) -> PyResult<()> {
        self.say(py, |outbox| outbox.send_about(0, &Report::Failed { error: failure(error) }, &[]))
    }

    /// Adds text of `stdout` or `stderr`; run 0 means outside any run.
    fn log(&self, py: Python<'_>, run: u64, stderr: bool, text: &[u8]) -> PyResult<()> {
        let run = if self.inbox.is_open(run) { run } else { 0 };
        let stream = if stderr { Stream::Stderr } else { Stream::Stdout };
        self.say(py, |outbox| outbox.log(run, stream, text))
    }

    /// Sends the incomplete line of a run.
    fn flush(&self, py: Python<'_>, run: u64) -> PyResult<()> {
        self.say(py, |outbox| outbox.flush(run))
    }

    /// Reports the progress of a run; ignored after its end.
    fn progress(&self, py: Python<'_>, run: u64, fraction: f64, message: String) -> PyResult<()> {
        if !self.inbox.is_open(run) {
            return Ok(());
        }
        self.say(py, |outbox| outbox.progress(run, fraction, message))
    }

    /// Reports a value that a generator yielded.
    fn output(&self, py: Python<'_>, run: u64, index: u64, body: &[u8]) -> PyResult<()> {
        self.say(py, |outbox| outbox.send_about(run, &Report::Output { run, index }, body))
    }

    /// Reports a successful run. `files`: name, path, MIME type.
    fn done(
        &self,
        py: Python<'_>,
        run: u64,
        run_ms: u64,
        body: &[u8],
        files: Vec<(String, String, String)>,
    ) -> PyResult<()> {
        let files =
            files.into_iter().map(|(name, path, content_type)| OutputFile { name, path, content_type }).collect();
        self.say(py, |outbox| outbox.end(run, &Report::Done { run, run_ms, files }, body))?;
        self.inbox.end(run);
        Ok(())
    }

    /// Reports a failed run. `error`: code, class, message, traceback.
    fn error(&self, py: Python<'_>, run: u64, run_ms: u64, error: (String, String, String, String)) -> PyResult<()> {
        self.say(py, |outbox| outbox.end(run, &Report::Error { run, run_ms, error: failure(error) }, &[]))?;
        self.inbox.end(run);
        Ok(())
    }

    /// Reports that the runner is broken; does not return.
    fn fatal(&self, py: Python<'_>, message: &str) {
        py.detach(|| self.outbox.fatal(message))
    }
}

impl Wire {
    /// Writes with the GIL released.
    fn say(&self, py: Python<'_>, write: impl FnOnce(&Outbox) -> Result<(), FrameError> + Send) -> PyResult<()> {
        py.detach(|| write(&self.outbox)).map_err(|error| PyValueError::new_err(error.to_string()))
    }
}

/// Takes ownership of the inherited descriptor, and keeps it from child processes of the handler.
fn adopt(fd: RawFd) -> PyResult<UnixStream> {
    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    if fd <= 2 {
        return Err(PyValueError::new_err(format!("file descriptor {fd} is not a socket of the worker")));
    }
    #[expect(unsafe_code, reason = "a descriptor that was inherited has only a number")]
    // SAFETY: the worker opened it for this process alone and told its number to this call alone.
    let socket = UnixStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
    socket.local_addr()?;
    fcntl(&socket, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).map_err(std::io::Error::from)?;
    // The worker's end may be non-blocking; ours blocks, so that a slow worker slows down its handler.
    socket.set_nonblocking(false)?;
    Ok(socket)
}

fn failure((code, class, message, traceback): (String, String, String, String)) -> Failure {
    Failure { code, class, message, traceback }
}
