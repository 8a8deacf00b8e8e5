//! Memory of the process.

/// Resident memory in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Now.
    pub(crate) rss: u64,
    /// At its largest.
    pub(crate) peak: u64,
}

impl Memory {
    /// Reads it from `/proc`; without `/proc` (macOS), uses the peak for both.
    pub(crate) fn of_this_process() -> Self {
        std::fs::read_to_string("/proc/self/status").ok().and_then(|status| parse(&status)).unwrap_or_else(from_usage)
    }
}

fn parse(status: &str) -> Option<Memory> {
    let bytes = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    };
    Some(Memory { rss: bytes("VmRSS:")?, peak: bytes("VmHWM:")? })
}

/// `ru_maxrss` counts bytes on macOS and KiB elsewhere.
const MAX_RSS_UNIT: u64 = if cfg!(target_os = "macos") { 1 } else { 1024 };

fn from_usage() -> Memory {
    use nix::sys::resource::{UsageWho, getrusage};
    let peak = getrusage(UsageWho::RUSAGE_SELF).ok().and_then(|usage| u64::try_from(usage.max_rss()).ok()).unwrap_or(0);
    Memory { rss: peak * MAX_RSS_UNIT, peak: peak * MAX_RSS_UNIT }
}
