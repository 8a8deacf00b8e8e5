//! Messages from the worker that wait for Python.

use std::collections::{HashMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use nix::sys::pthread::{Pthread, pthread_kill, pthread_self};
use nix::sys::signal::Signal;
use stokehold_wire::Decoder;

use crate::control::Control;
use crate::exit::{self, ExitOnDrop};
use crate::outbox::Outbox;

/// Maximum number of waiting runs. A worker sends only slightly more than run concurrently, so a full inbox means a
/// broken peer.
const WAITING_MAX: usize = 1_024;

/// Signal that makes Python's main thread check whether its run was cancelled. Unlike an asynchronous exception, it
/// also interrupts `sleep()` and `read()`. It is ignored by default, so it is harmless without a handler (Go's runtime
/// uses it for the same reason).
const INTERRUPT: Signal = Signal::SIGURG;

const READ_BYTES: usize = 64 * 1024;

pub(crate) struct Inbox {
    state: Mutex<State>,
    arrived: Condvar,
    /// Receives a byte for each new message, to wake an event loop that waits on the other end.
    bell: UnixStream,
    main: Pthread,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Control>,
    /// All runs that were received and have not ended.
    runs: HashMap<u64, Standing>,
    /// Cancelled runs that Python's event loop has not taken yet.
    cancels: Vec<u64>,
    shutdown: bool,
    /// Whether Python waits in [`Inbox::wait`]. Notifying a condition variable costs a system call even without a
    /// waiter.
    awaited: bool,
    /// Whether the bell was rung and not silenced since.
    rung: bool,
}

#[derive(Default)]
struct Standing {
    taken: bool,
    cancelled: bool,
}

impl Inbox {
    /// Must be called in Python's main thread, which receives the interrupts.
    pub(crate) fn new(bell: UnixStream) -> Self {
        Self { state: Mutex::default(), arrived: Condvar::new(), bell, main: pthread_self() }
    }

    /// Waits for the next message.
    pub(crate) fn wait(&self) -> Control {
        let mut state = self.lock();
        loop {
            if let Some(control) = state.take() {
                state.awaited = false;
                return control;
            }
            state.awaited = true;
            state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The next message, if there is one.
    pub(crate) fn poll(&self) -> Option<Control> {
        self.lock().take()
    }

    /// Marks the bell as silent, so that the next message rings it. The caller must then take all waiting messages.
    pub(crate) fn silenced(&self) {
        self.lock().rung = false;
    }

    /// The runs that were cancelled since the last call.
    pub(crate) fn take_cancels(&self) -> Vec<u64> {
        std::mem::take(&mut self.lock().cancels)
    }

    /// Whether a run that has not ended was cancelled.
    pub(crate) fn is_cancelled(&self, run: u64) -> bool {
        self.lock().runs.get(&run).is_some_and(|standing| standing.cancelled)
    }

    /// Whether a run was announced and has not ended.
    pub(crate) fn is_open(&self, run: u64) -> bool {
        self.lock().runs.contains_key(&run)
    }

    /// Repeats the interrupt while a cancelled run has not ended: an interrupt between Python's last check and a
    /// blocking system call would otherwise be noticed only when the call returns, if ever.
    pub(crate) fn interrupt_again(&self) {
        if self.lock().runs.values().any(|standing| standing.taken && standing.cancelled) {
            self.interrupt();
        }
    }

    fn interrupt(&self) {
        // The main thread lives as long as the process, so this cannot fail.
        let _ = pthread_kill(self.main, INTERRUPT);
    }

    /// Removes an ended run.
    pub(crate) fn end(&self, run: u64) {
        let mut state = self.lock();
        state.runs.remove(&run);
        state.cancels.retain(|cancelled| *cancelled != run);
    }

    /// Number of runs that Python has taken and not ended.
    pub(crate) fn running(&self) -> u32 {
        u32::try_from(self.lock().runs.values().filter(|standing| standing.taken).count()).unwrap_or(u32::MAX)
    }

    /// Reads until the worker has exited, then ends the process.
    pub(crate) fn read(&self, mut socket: &UnixStream, outbox: &Outbox) {
        let _without_a_reader_nothing_ends_the_process = ExitOnDrop;
        let mut decoder = Decoder::default();
        let mut bytes = vec![0; READ_BYTES];
        loop {
            match socket.read(&mut bytes) {
                Ok(0) => break,
                Ok(count) => decoder.push(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => break,
            }
            loop {
                match decoder.next_frame() {
                    Ok(Some((message, body))) => {
                        if let Err(full) = self.deliver(message, body) {
                            outbox.fatal(full);
                        }
                    }
                    Ok(None) => break,
                    Err(error) => outbox.fatal(&error.to_string()),
                }
            }
        }
        if self.lock().shutdown { exit::now(0) } else { exit::orphaned() }
    }

    fn deliver(&self, message: stokehold_wire::Control, body: Vec<u8>) -> Result<(), &'static str> {
        let mut state = self.lock();
        let interrupts = match Control::from_wire(message, body) {
            Ok(_) if state.waiting.len() == WAITING_MAX => {
                return Err("the worker sent more runs than the runner can queue");
            }
            Ok(control) => {
                if let Some(run) = control.run() {
                    state.runs.insert(run, Standing::default());
                }
                state.shutdown |= matches!(control, Control::Shutdown);
                state.waiting.push_back(control);
                false
            }
            Err(run) => {
                match state.runs.get_mut(&run) {
                    Some(standing) if !standing.cancelled => standing.cancelled = true,
                    _ => return Ok(()),
                }
                state.cancels.push(run);
                true
            }
        };
        let awaited = state.awaited;
        let rings = !std::mem::replace(&mut state.rung, true);
        drop(state);
        if awaited {
            self.arrived.notify_one();
        }
        if interrupts {
            self.interrupt();
        }
        if rings {
            // A full socket already wakes the event loop.
            let _ = (&self.bell).write(&[0]);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self) -> Option<Control> {
        let control = self.waiting.pop_front()?;
        if let Some(standing) = control.run().and_then(|run| self.runs.get_mut(&run)) {
            standing.taken = true;
        }
        Some(control)
    }
}
