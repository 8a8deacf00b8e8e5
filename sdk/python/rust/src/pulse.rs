//! The heartbeat.

use std::time::{Duration, Instant};

use nix::unistd::{Pid, getppid};
use stokehold_wire::Report;

use crate::exit::{self, ExitOnDrop};
use crate::inbox::Inbox;
use crate::memory::Memory;
use crate::outbox::Outbox;

const EVERY: Duration = Duration::from_secs(1);

/// Beats until the process ends.
///
/// It also looks whether the worker still is the parent, in case a copy of the worker's end of the socket lives on in another process
/// and hides its death. A parent-death signal would not do: it comes when the *thread* that started the runner ends, and a
/// worker's threads come and go.
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
