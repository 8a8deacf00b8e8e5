//! States that a client requests: values of `state`, `target_state`, `intended_status` and `cur_state`.

/// The container runs, or will run as soon as it can.
pub const RUNNING: &str = "running";
/// The container does not run; its disk is kept and charged for.
pub const STOPPED: &str = "stopped";
