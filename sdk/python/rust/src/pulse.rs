//! The heartbeat.

use std::time::{Duration, Instant};

use nix::unistd::{Pid, getppid};
use stokehold_wire::Report;

use crate::exit::{self, ExitOnDrop};
use crate::inbox::Inbox;
use crate::memory::Memory;
use crate::outbox::Outbox;

const EVERY: Duration = Duration::from_secs(1);

/// Sends heartbeats until the process ends.
///
/// Also checks that the worker is still the parent, in case another process has a copy of the worker's end of the
/// socket, which hides the worker's exit. A parent-death signal is not suitable: it is sent when the *thread* that
/// started the runner ends, and the worker's threads are short-lived.
pub(crate) fn beat(inbox: &Inbox, outbox: &Outbox, worker: Pid) {
    let _a_runner_that_does_not_beat_looks_dead = ExitOnDrop;
    let mut next = Instant::now() + EVERY;
    loop {
        let sent = outbox.wait(next).and_then(|()| {
            if Instant::now() < next {
                return Ok(());
            }
            next = Instant::now() + EVERY;
            if getppid() != worker {
                exit::orphaned();
            }
            inbox.interrupt_again();
            let memory = Memory::of_this_process();
            let running = inbox.running();
            outbox.send(&Report::Heartbeat { rss_bytes: memory.rss, peak_rss_bytes: memory.peak, running })
        });
        if let Err(error) = sent {
            outbox.fatal(&error.to_string());
        }
    }
}
