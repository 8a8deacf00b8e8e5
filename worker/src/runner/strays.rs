//! Detached processes that runs left behind: an idle runner does not need them.

use std::collections::BTreeSet;
use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The detached processes of a runner: those in other sessions, and orphans. Child processes, which frameworks keep, do
/// not count. `pid` is the process that was started for the runner; if it `is_boxed`, that process keeps its
/// namespaces. Blocks for some reads of `/proc`.
pub(super) fn of(pid: u32, is_boxed: bool) -> BTreeSet<u32> {
    let (runner, orphans) = if is_boxed {
        // Its only child is the first process in the namespace, which adopts orphans; the first child of that is the
        // runner.
        let mut below = children(pid).first().map(|first| children(*first)).unwrap_or_default().into_iter();
        (below.next(), below.collect())
    } else {
        (Some(pid), Vec::new())
    };
    let Some(runner) = runner else { return BTreeSet::new() };
    let session = session_of(runner);
    let away = descendants(runner).into_iter().filter(|process| session_of(*process) != session);
    let left = orphans.iter().flat_map(|orphan| descendants(*orphan));
    away.chain(left).chain(orphans.iter().copied()).collect()
}

/// Kills the detached processes of a runner, except `spared`.
pub(super) fn end(pid: u32, is_boxed: bool, spared: &BTreeSet<u32>) {
    for process in of(pid, is_boxed).difference(spared) {
        tracing::debug!(process, "left behind by a run");
        // The process may already have exited.
        let _ = kill(Pid::from_raw(process.cast_signed()), Signal::SIGKILL);
    }
}

fn descendants(process: u32) -> Vec<u32> {
    let mut found = children(process);
    let mut next = 0;
    while let Some(process) = found.get(next) {
        found.extend(children(*process));
        next += 1;
    }
    found
}

/// The children of all its threads, oldest first.
fn children(process: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let texts = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let mut found: Vec<u32> =
        texts.flat_map(|text| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect();
    found.sort_unstable_by_key(|pid| started(*pid));
    found
}

/// A field of /proc/PID/stat; see proc_pid_stat(5). The process name may contain any character and ends at the last
/// bracket.
fn field(process: u32, number: usize) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(number - 3)?.parse().ok()
}

fn session_of(process: u32) -> Option<u64> {
    field(process, 6)
}

fn started(process: u32) -> Option<u64> {
    field(process, 22)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn what_has_gone_away_ends_and_what_stays_beside_it_goes_on() {
        let script = "exec 2>/dev/null; sleep 600 & echo $!; setsid sleep 601 & echo $!; read wait";
        let mut shell =
            Command::new("bash").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(shell.stdout.take().unwrap()).lines();
        let pids: Vec<u32> = lines.take(2).map(|line| line.unwrap().parse().unwrap()).collect();
        // `setsid` has executed its program once that program leads its own session.
        while session_of(pids[1]) == session_of(shell.id()) {
            std::thread::yield_now();
        }
        let both = of(shell.id(), false);
        assert_eq!(both, BTreeSet::from([pids[1]]));
        end(shell.id(), false, &both);
        assert!(state(pids[1]).is_some_and(|state| state != 'Z'), "it was spared");
        end(shell.id(), false, &BTreeSet::new());
        while field(pids[1], 6).is_some() && state(pids[1]) != Some('Z') {
            std::thread::yield_now();
        }
        assert!(state(pids[0]).is_some_and(|state| state != 'Z'));
        kill(Pid::from_raw(pids[0].cast_signed()), Signal::SIGKILL).unwrap();
        shell.kill().unwrap();
        shell.wait().unwrap();
    }

    fn state(process: u32) -> Option<char> {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        stat.rsplit_once(')')?.1.trim().chars().next()
    }
}
