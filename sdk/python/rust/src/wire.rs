//! The wire, as Python holds it.

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

/// The connection to the worker. Made once, in the main thread.
#[pyclass(frozen, module = "stokehold._wire")]
pub(crate) struct Wire {
    inbox: Arc<Inbox>,
    outbox: Arc<Outbox>,
    bell: UnixStream,
}

#[pymethods]
impl Wire {
    /// Takes over the socket `fd` and starts to read and to beat.
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

    /// The next `Load`, `Run` or `Shutdown`, if it is there already.
    fn try_recv(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.inbox.poll().map(|control| control.into_python(py)).transpose()
    }

    /// Readable when something came in; for an event loop, which then calls `silence` and takes all there is.
    fn fileno(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    /// Makes `fileno` unreadable until the next message.
    fn silence(&self) {
        let mut rings = [0; 16];
        while matches!((&self.bell).read(&mut rings), Ok(count) if count == rings.len()) {}
        // In this order: a ring between the two steps would be taken away and yet count as still to be heard.
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

    /// `setup()` is done.
    fn ready(&self, py: Python<'_>, load_ms: u64) -> PyResult<()> {
        self.say(py, |outbox| outbox.send(&Report::Ready { load_ms }))
    }

    /// Import or `setup()` raised.
    fn failed(&self, py: Python<'_>, error: (String, String, String, String)) -> PyResult<()> {
        self.say(py, |outbox| outbox.send_about(0, &Report::Failed { error: failure(error) }, &[]))
    }

    /// Text for `stdout`, or for `stderr`; 0 is no run.
    fn log(&self, py: Python<'_>, run: u64, stderr: bool, text: &[u8]) -> PyResult<()> {
        let run = if self.inbox.is_open(run) { run } else { 0 };
        let stream = if stderr { Stream::Stderr } else { Stream::Stdout };
        self.say(py, |outbox| outbox.log(run, stream, text))
    }

    /// Sends what a run said and no newline has ended.
    fn flush(&self, py: Python<'_>, run: u64) -> PyResult<()> {
        self.say(py, |outbox| outbox.flush(run))
    }

    /// How far a run is; nothing when it has ended.
    fn progress(&self, py: Python<'_>, run: u64, fraction: f64, message: String) -> PyResult<()> {
        if !self.inbox.is_open(run) {
            return Ok(());
        }
        self.say(py, |outbox| outbox.progress(run, fraction, message))
    }

    /// A generator yielded.
    fn output(&self, py: Python<'_>, run: u64, index: u64, body: &[u8]) -> PyResult<()> {
        self.say(py, |outbox| outbox.send_about(run, &Report::Output { run, index }, body))
    }

    /// The run succeeded. `files`: name, path, MIME type.
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

    /// The run failed. `error`: code, class, message, traceback.
    fn error(&self, py: Python<'_>, run: u64, run_ms: u64, error: (String, String, String, String)) -> PyResult<()> {
        self.say(py, |outbox| outbox.end(run, &Report::Error { run, run_ms, error: failure(error) }, &[]))?;
        self.inbox.end(run);
        Ok(())
    }

    /// The runner is broken; does not return.
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

/// Makes the inherited descriptor ours; a handler's own child processes do not get it.
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
    // The worker's own end may well be non-blocking; ours waits, so that a slow worker slows its handler down.
    socket.set_nonblocking(false)?;
    Ok(socket)
}

fn failure((code, class, message, traceback): (String, String, String, String)) -> Failure {
    Failure { code, class, message, traceback }
}
