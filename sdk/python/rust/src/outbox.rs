//! Reports to the worker, in order.

use std::collections::HashMap;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stokehold_wire::{FrameError, Report, Stream, encode};

use crate::exit;

/// Minimum average interval of a run's progress reports; of additional reports, the last one is sent.
const PROGRESS_EVERY: Duration = Duration::from_millis(80);

/// How far a run may be ahead of [`PROGRESS_EVERY`], because reports at nominal intervals of 100 ms arrive slightly
/// early or late.
const PROGRESS_AHEAD: Duration = Duration::from_millis(320);

/// Maximum size of a line; longer ones are sent in pieces.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// Maximum size of the frame buffer to keep after use.
const FRAME_BYTES_KEPT: usize = 1024 * 1024;

pub(crate) struct Outbox {
    state: Mutex<State>,
    /// Notified when a progress report is delayed, for the thread in [`Outbox::wait`].
    put_off: Condvar,
}

struct State {
    socket: Arc<UnixStream>,
    frame: Vec<u8>,
    /// Incomplete lines.
    lines: HashMap<(u64, Stream), Vec<u8>>,
    pace: HashMap<u64, Pace>,
}

/// When a run's next progress report is due, and the delayed report.
struct Pace {
    next: Instant,
    waiting: Option<(f64, String)>,
}

impl Pace {
    /// The earliest time for the next report.
    fn open_at(&self) -> Instant {
        self.next.checked_sub(PROGRESS_AHEAD).unwrap_or(self.next)
    }
}

impl Outbox {
    pub(crate) fn new(socket: Arc<UnixStream>) -> Self {
        let state = State { socket, frame: Vec::new(), lines: HashMap::new(), pace: HashMap::new() };
        Self { state: Mutex::new(state), put_off: Condvar::new() }
    }

    /// Sends a report that belongs to no run.
    pub(crate) fn send(&self, report: &Report) -> Result<(), FrameError> {
        self.lock().send(report, &[])
    }

    /// Sends a report about a run, after all earlier output of the run.
    pub(crate) fn send_about(&self, run: u64, report: &Report, body: &[u8]) -> Result<(), FrameError> {
        let mut state = self.lock();
        state.flush(run)?;
        state.send(report, body)
    }

    /// Sends the last report about a run and removes the run. On an error, the run stays open.
    pub(crate) fn end(&self, run: u64, report: &Report, body: &[u8]) -> Result<(), FrameError> {
        let mut state = self.lock();
        state.flush(run)?;
        state.send(report, body)?;
        state.pace.remove(&run);
        Ok(())
    }

    /// Adds text of a run, and sends complete lines.
    pub(crate) fn log(&self, run: u64, stream: Stream, text: &[u8]) -> Result<(), FrameError> {
        let mut state = self.lock();
        for piece in text.chunks(LINE_BYTES_MAX) {
            let mut line = state.lines.remove(&(run, stream)).unwrap_or_default();
            line.extend_from_slice(piece);
            let rest = line.split_off(sendable(&line));
            if !line.is_empty() {
                state.send_log(run, stream, &line)?;
            }
            if !rest.is_empty() {
                state.lines.insert((run, stream), rest);
            }
        }
        Ok(())
    }

    /// Sends the incomplete line of a run.
    pub(crate) fn flush(&self, run: u64) -> Result<(), FrameError> {
        self.lock().flush(run)
    }

    /// Sends a run's progress, immediately or slightly delayed.
    pub(crate) fn progress(&self, run: u64, fraction: f64, message: String) -> Result<(), FrameError> {
        let mut state = self.lock();
        let now = Instant::now();
        match state.pace.get_mut(&run) {
            Some(pace) if now < pace.open_at() => {
                pace.waiting = Some((fraction, message));
                self.put_off.notify_one();
                Ok(())
            }
            _ => state.send_progress(run, fraction, message, now),
        }
    }

    /// Waits until `until`, or until a delayed progress report is due, and sends the report.
    pub(crate) fn wait(&self, until: Instant) -> Result<(), FrameError> {
        let state = self.lock();
        let due = state.pace.values().filter(|pace| pace.waiting.is_some()).map(Pace::open_at).min();
        let wake = due.map_or(until, |due| due.min(until));
        let timeout = wake.saturating_duration_since(Instant::now());
        let (mut state, _) = self.put_off.wait_timeout(state, timeout).unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let due = |pace: &Pace| pace.waiting.is_some() && pace.open_at() <= now;
        let runs: Vec<u64> = state.pace.iter().filter(|(_, pace)| due(pace)).map(|(run, _)| *run).collect();
        runs.into_iter().try_for_each(|run| state.flush_progress(run))
    }

    /// Reports why the runner is broken, and ends the process.
    pub(crate) fn fatal(&self, message: &str) -> ! {
        // If this fails, the worker cannot be informed.
        let _ = self.send(&Report::Fatal { message: message.to_owned() });
        exit::now(exit::BROKEN)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn send(&mut self, report: &Report, body: &[u8]) -> Result<(), FrameError> {
        self.frame.clear();
        encode(report, body, &mut self.frame)?;
        if (&*self.socket).write_all(&self.frame).is_err() {
            exit::orphaned();
        }
        if self.frame.capacity() > FRAME_BYTES_KEPT {
            self.frame = Vec::new();
        }
        Ok(())
    }

    fn send_log(&mut self, run: u64, stream: Stream, text: &[u8]) -> Result<(), FrameError> {
        self.send(&Report::Log { run, stream }, String::from_utf8_lossy(text).as_bytes())
    }

    fn send_progress(&mut self, run: u64, fraction: f64, message: String, now: Instant) -> Result<(), FrameError> {
        let next = self.pace.get(&run).map_or(now, |pace| pace.next.max(now)) + PROGRESS_EVERY;
        self.pace.insert(run, Pace { next, waiting: None });
        self.send(&Report::Progress { run, fraction, message }, &[])
    }

    fn flush(&mut self, run: u64) -> Result<(), FrameError> {
        for stream in [Stream::Stdout, Stream::Stderr] {
            if let Some(line) = self.lines.remove(&(run, stream)) {
                self.send_log(run, stream, &line)?;
            }
        }
        self.flush_progress(run)
    }

    fn flush_progress(&mut self, run: u64) -> Result<(), FrameError> {
        match self.pace.get_mut(&run).and_then(|pace| pace.waiting.take()) {
            Some((fraction, message)) => self.send_progress(run, fraction, message, Instant::now()),
            None => Ok(()),
        }
    }
}

/// Length of the part of `text` to send now: up to its last newline or, if it has none and is long, up to its last
/// complete character.
fn sendable(text: &[u8]) -> usize {
    match text.iter().rposition(|byte| *byte == b'\n') {
        Some(newline) => newline + 1,
        None if text.len() < LINE_BYTES_MAX => 0,
        None => match text.utf8_chunks().last() {
            // Up to three bytes of an incomplete character.
            Some(chunk) if chunk.invalid().len() < 4 => text.len() - chunk.invalid().len(),
            _ => text.len(),
        },
    }
}
