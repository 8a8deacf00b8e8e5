//! Leaving at once, from a thread that holds no GIL and may wait for nobody.

/// Exit code of a runner whose worker is gone (`EX_UNAVAILABLE`); nobody is left to read it but a person.
const ORPHANED: i32 = 69;

/// Exit code of a runner that is itself broken (`EX_SOFTWARE`), after a `fatal` report.
pub(crate) const BROKEN: i32 = 70;

/// Ends the process without running a single exit handler: those may wait for the GIL, a GPU or a thread that never comes.
#[expect(unsafe_code, reason = "std's exit runs exit handlers")]
pub(crate) fn now(code: i32) -> ! {
    // SAFETY: takes an integer and does not return.
    unsafe { libc::_exit(code) }
}

/// Ends a process whose worker is gone, and what its handler has started: nobody else is left to do that.
#[expect(unsafe_code, reason = "nix has no use here but this")]
pub(crate) fn orphaned() -> ! {
    // SAFETY: they take integers, and touch no memory.
    unsafe {
        // A worker gives each runner a group of its own; another one's group is not ours to end.
        if libc::getpgrp() == libc::getpid() {
            libc::kill(0, libc::SIGKILL);
        }
    }
    now(ORPHANED)
}

/// Ends the process when dropped: held by a thread without which the runner would hang for ever.
pub(crate) struct ExitOnDrop;

impl Drop for ExitOnDrop {
    fn drop(&mut self) {
        now(BROKEN);
    }
}
