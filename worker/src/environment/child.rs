//! Runs a helper program to its end, with a timeout and limited output, and leaves no processes behind.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use super::Error;
use crate::config::SECRETS;

/// Maximum size of the standard output: a lock of a thousand packages with all hashes is about 3 MiB.
const STDOUT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes of standard error to keep, and number of its last lines to show in errors.
const STDERR_BYTES_KEPT: usize = 64 * 1024;
const STDERR_LINES_SHOWN: usize = 20;

/// Shown in place of an empty standard error.
pub(super) const NOTHING: &str = "(no output)";

/// Timeout of remaining output after the program has exited: a grandchild may keep the pipe open forever.
const OUTPUT_GRACE: Duration = Duration::from_secs(5);

/// Runs `command` and returns its standard output. `what` names the step in errors.
pub(crate) async fn run(what: &'static str, mut command: Command, limit: Duration) -> Result<String, Error> {
    // A separate process group, so that build backends are killed with it.
    command.process_group(0).kill_on_drop(true);
    // Builds run code of the package's authors.
    for name in SECRETS {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(Error::io(format!("start {:?}", command.as_std().get_program())))?;
    let mut group = Group(child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw));

    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let (stdout_pipe, stderr_pipe) = (child.stdout.take(), child.stderr.take());
    let status: Option<std::io::Result<ExitStatus>> = {
        let output = async {
            tokio::join!(
                read_last(stdout_pipe, STDOUT_BYTES_MAX + 1, &mut stdout),
                read_last(stderr_pipe, STDERR_BYTES_KEPT, &mut stderr),
            )
        };
        tokio::pin!(output);
        let ended = tokio::time::timeout(limit, async {
            tokio::select! {
                status = child.wait() => {
                    let _ = tokio::time::timeout(OUTPUT_GRACE, &mut output).await;
                    status
                }
                _ = &mut output => child.wait().await,
            }
        });
        ended.await.ok()
    };

    let Some(status) = status else {
        return Err(Error::TimedOut { what, limit, output: last_lines(&stderr) });
    };
    group.0 = None;
    let status = status.map_err(Error::io(format!("wait for {:?}", command.as_std().get_program())))?;
    if !status.success() {
        return Err(Error::Failed { what, status, output: last_lines(&stderr) });
    }
    let answer = |text: &str| Error::Answer { what, answer: text.chars().take(200).collect() };
    if stdout.len() > STDOUT_BYTES_MAX {
        return Err(answer(&format!("more than {STDOUT_BYTES_MAX} bytes")));
    }
    String::from_utf8(stdout).map_err(|error| answer(&String::from_utf8_lossy(error.as_bytes())))
}

/// A process group that is killed unless its leader has exited: on a timeout, and if the caller is cancelled.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // The group may already be gone.
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

/// Reads to the end and keeps the last `max` bytes.
async fn read_last(pipe: Option<impl AsyncRead + Unpin>, max: usize, into: &mut Vec<u8>) {
    let Some(mut pipe) = pipe else { return };
    let mut piece = vec![0; 8 * 1024];
    while let Ok(count @ 1..) = pipe.read(&mut piece).await {
        into.extend_from_slice(&piece[..count]);
        if into.len() > 2 * max {
            into.drain(..into.len() - max);
        }
    }
}

fn last_lines(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let lines: Vec<&str> = text.trim_end().lines().collect();
    if lines.is_empty() {
        return NOTHING.to_owned();
    }
    lines[lines.len().saturating_sub(STDERR_LINES_SHOWN)..].join("\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[tokio::test]
    async fn the_answer_is_standard_output() {
        let answer = run("echoing", shell("echo yes; echo no >&2"), Duration::from_secs(20)).await.unwrap();
        assert_eq!(answer, "yes\n");
    }

    #[tokio::test]
    async fn what_it_runs_sees_none_of_the_workers_secrets() {
        let mut command = shell("echo ${CONTAINER_API_KEY-no} ${STOKE_JOIN_TOKEN-no} $STOKE_SLOTS");
        command.envs([
            ("CONTAINER_API_KEY", "verysecret"),
            ("STOKE_JOIN_TOKEN", "jt_verysecret"),
            ("STOKE_SLOTS", "2"),
        ]);
        assert_eq!(run("echoing", command, Duration::from_secs(20)).await.unwrap(), "no no 2\n");
    }

    #[tokio::test]
    async fn a_failure_shows_the_last_lines() {
        let script = "for i in $(seq 1 30); do echo line $i >&2; done; exit 3";
        let error = run("counting", shell(script), Duration::from_secs(20)).await.unwrap_err().to_string();
        assert!(error.starts_with("counting failed (exit status: 3):\nline 11\n"), "{error}");
        assert!(error.ends_with("line 30"), "{error}");
    }

    #[tokio::test]
    async fn what_takes_too_long_is_stopped() {
        let error = run("hanging", shell("echo here >&2; sleep 600"), Duration::from_millis(500)).await.unwrap_err();
        assert!(matches!(&error, Error::TimedOut { output, .. } if output == "here"), "{error}");
    }
}
