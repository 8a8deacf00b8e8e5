//! Exits immediately, from a thread that does not hold the GIL and must not block.

/// Exit code of a runner whose worker has exited (`EX_UNAVAILABLE`).
const ORPHANED: i32 = 69;

/// Exit code of a broken runner (`EX_SOFTWARE`), after a `fatal` report.
pub(crate) const BROKEN: i32 = 70;

/// Ends the process without running exit handlers, which may wait forever for the GIL, a GPU or a thread.
#[expect(unsafe_code, reason = "std's exit runs exit handlers")]
pub(crate) fn now(code: i32) -> ! {
    // SAFETY: takes an integer and does not return.
    unsafe { libc::_exit(code) }
}

/// Ends a process whose worker has exited, and the processes that its handler started.
#[expect(unsafe_code, reason = "nix has no use here but this")]
pub(crate) fn orphaned() -> ! {
    // SAFETY: they take integers, and touch no memory.
    unsafe {
        // A worker gives each runner its own process group; do not kill another one's group.
        if libc::getpgrp() == libc::getpid() {
            libc::kill(0, libc::SIGKILL);
        }
    }
    now(ORPHANED)
}

/// Ends the process when dropped. Held by threads without which the runner would hang.
pub(crate) struct ExitOnDrop;

impl Drop for ExitOnDrop {
    fn drop(&mut self) {
        now(BROKEN);
    }
}
