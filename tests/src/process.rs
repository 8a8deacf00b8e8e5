//! Processes as the tests see them: signals, descendants, CPU time. Linux.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Sends a signal.
///
/// # Panics
/// If the process no longer exists.
pub fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal)
        .unwrap_or_else(|error| panic!("cannot signal process {pid}: {error}"));
}

/// Whether the process exists and is not a zombie.
#[must_use]
pub fn alive(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| stat.state != 'Z')
}

/// All living descendants, each with its command line.
#[must_use]
pub fn descendants(pid: u32) -> Vec<(u32, String)> {
    let parents: Vec<(u32, u32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, stat(pid).filter(|stat| stat.state != 'Z')?.parent)))
        .collect();
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.iter().skip(1).map(|pid| (*pid, command_line(*pid))).collect()
}

fn command_line(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ").trim_end().to_owned()
}

/// CPU time of a process and of its ended children, user and system, in seconds.
///
/// The scheduler's own count per thread is exact, but omits threads that ended; the process's count includes all, in
/// ticks of 10 ms. The larger one is exact to a tick.
#[must_use]
pub fn cpu_s(pid: u32) -> f64 {
    /// `USER_HZ`: the unit of /proc, 100 on every Linux that this project runs on.
    const TICKS_PER_S: f64 = 100.0;
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let exact_ns: u64 = threads
        .filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok())
        .filter_map(|text| text.split_whitespace().next()?.parse::<u64>().ok())
        .sum();
    let (own, children) = stat(pid).map_or((0, 0), |stat| (stat.ticks, stat.children_ticks));
    (own as f64 / TICKS_PER_S).max(exact_ns as f64 / 1e9) + children as f64 / TICKS_PER_S
}

/// Peak memory of a process, MiB; 0 if it is gone.
#[must_use]
pub fn peak_mib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok());
    peak.map_or(0, |kib: u64| kib / 1024)
}

struct Stat {
    state: char,
    parent: u32,
    ticks: u64,
    /// Of children that have been waited for.
    children_ticks: u64,
}

/// `/proc/<pid>/stat`: the fields after the command's name, which may contain anything between its brackets.
fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |n: usize| fields.get(n)?.parse::<u64>().ok();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: u32::try_from(number(1)?).ok()?,
        ticks: number(11)? + number(12)?,
        children_ticks: number(13)? + number(14)?,
    })
}
