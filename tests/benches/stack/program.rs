//! The programs of a system: the client, which the harness controls line by line, and workers, which it pauses and
//! kills.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::sys::signal::Signal;
use stokehold_tests::process;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Timeout for the start of a client, and for each of its replies.
const ANSWER_MAX: Duration = Duration::from_secs(180);
/// Timeout until a worker is ready.
const READY_MAX: Duration = Duration::from_secs(60);

/// A program to start: its words, folder and environment.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) words: Vec<String>,
    pub(crate) dir: PathBuf,
    pub(crate) env: Vec<(String, String)>,
}

impl Program {
    fn command(&self, env: &[(&str, String)]) -> anyhow::Result<Command> {
        let (first, rest) = self.words.split_first().context("a program without a name")?;
        let mut command = Command::new(first);
        command.args(rest).current_dir(&self.dir).kill_on_drop(true);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.envs(env.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }
}

/// How jobs are submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// The next job is sent once the previous one is acknowledged.
    One,
    /// 64 at a time.
    Many,
    /// As many per call as the system accepts, up to 1,000.
    Bulk,
}

/// Kind of job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Job {
    /// Does nothing: 194 bytes in, 55 bytes out.
    Noop,
    /// Takes 5 ms and writes its number into the journal before and after.
    Note,
}

/// A system's client.
pub(crate) struct Client {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    log: PathBuf,
}

impl Client {
    pub(crate) async fn start(program: &Program, env: &[(&str, String)], log: &Path) -> anyhow::Result<Self> {
        let mut command = program.command(env)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(log)?);
        let mut child = command.spawn().with_context(|| format!("cannot start {:?}", program.words))?;
        let stdin = child.stdin.take().context("piped")?;
        let lines = BufReader::new(child.stdout.take().context("piped")?).lines();
        let mut client = Self { child, stdin, lines, log: log.to_owned() };
        let said = client.line().await?;
        anyhow::ensure!(said == "ready", "the client said {said:?} instead of ready");
        Ok(client)
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Submits `count` jobs. Returns the duration.
    pub(crate) async fn submit(&mut self, how: How, job: Job, count: usize) -> anyhow::Result<Duration> {
        let how = match how {
            How::One => "one",
            How::Many => "many",
            How::Bulk => "bulk",
        };
        let job = match job {
            Job::Noop => "noop",
            Job::Note => "note",
        };
        let start = Instant::now();
        self.ask(&format!("submit {how} {job} {count}")).await?;
        Ok(start.elapsed())
    }

    /// Submits jobs one at a time and waits for each result. Returns the milliseconds of each.
    pub(crate) async fn round_trips(&mut self, count: usize) -> anyhow::Result<Vec<f64>> {
        let answer = self.ask(&format!("round_trips {count}")).await?;
        answer.split_whitespace().map(|sample| sample.parse().context("a sample is no number")).collect()
    }

    async fn ask(&mut self, request: &str) -> anyhow::Result<String> {
        self.stdin.write_all(format!("{request}\n").as_bytes()).await.with_context(|| log_tail(&self.log))?;
        let answer = self.line().await.with_context(|| format!("asked to {request}"))?;
        match answer.split_once(' ').unwrap_or((&answer, "")) {
            ("ok", rest) => Ok(rest.to_owned()),
            (_, rest) => bail!("asked to {request}: {rest}"),
        }
    }

    async fn line(&mut self) -> anyhow::Result<String> {
        let line = tokio::time::timeout(ANSWER_MAX, self.lines.next_line()).await;
        let line = line.with_context(|| format!("the client was silent for {} s", ANSWER_MAX.as_secs()))??;
        line.with_context(|| format!("the client ended: {}", log_tail(&self.log)))
    }
}

/// A worker with everything it started.
pub(crate) struct Worker {
    child: Child,
    pid: u32,
    log: PathBuf,
}

impl Worker {
    /// Starts one and waits until its output contains `ready`.
    pub(crate) async fn start(
        program: &Program,
        env: &[(&str, String)],
        ready: &str,
        log: &Path,
    ) -> anyhow::Result<Self> {
        let file = File::create(log)?;
        let mut command = program.command(env)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("cannot start {:?}", program.words))?;
        let pid = child.id().context("it has just been started")?;
        let worker = Self { child, pid, log: log.to_owned() };
        let until = Instant::now() + READY_MAX;
        while !fs::read_to_string(log)?.contains(ready) {
            anyhow::ensure!(process::alive(pid), "the worker ended before it was ready: {}", log_tail(log));
            anyhow::ensure!(Instant::now() < until, "the worker was not ready in time: {}", log_tail(log));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(worker)
    }

    pub(crate) fn alive(&self) -> bool {
        process::alive(self.pid)
    }

    pub(crate) fn log_tail(&self) -> String {
        log_tail(&self.log)
    }

    /// Itself and everything it started, with their command lines.
    pub(crate) fn processes(&self) -> Vec<(u32, String)> {
        let mut all = process::descendants(self.pid);
        all.push((self.pid, String::new()));
        all
    }

    pub(crate) fn signal(&self, what: Signal) {
        for (pid, _) in self.processes() {
            // One of them may have ended since the listing.
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.cast_signed()), what);
        }
    }

    /// kill -9 of all of its processes at one moment: they are stopped first, so that none of them sees another die.
    pub(crate) async fn kill(mut self) -> anyhow::Result<()> {
        self.signal(Signal::SIGSTOP);
        self.signal(Signal::SIGKILL);
        self.child.wait().await?;
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.alive() {
            self.signal(Signal::SIGSTOP);
            self.signal(Signal::SIGKILL);
        }
    }
}

fn log_tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join(" | ")
}
