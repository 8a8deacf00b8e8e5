//! Stop signals.

use anyhow::Result;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A stream of SIGINT and SIGTERM.
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// Starts to handle the signals. They no longer end the process.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for the next signal.
    pub(crate) async fn recv(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => (),
            _ = self.terminate.recv() => (),
        }
    }
}
