//! The task that owns a runner's process: the only reader and writer of its socket, and the only task that waits for
//! its exit.

mod end;
mod reports;
mod run;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use stokehold_protocol::endpoint::Runner as RunnerKind;
use stokehold_protocol::gateway::{JobMessage, Secrets};
use stokehold_vram::Reservation;
use stokehold_wire::{Control, Decoder, encode};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep_until, timeout};

use super::batch::Batch;
use super::process::{self, Launch, Process};
use super::shared::Shared;
use super::streams::{Source, Streams};
use super::tail::Tail;
use super::{RunEnd, RunRequest, Runner, STOP_GRACE, StartError};
use super::{fill, strays};
use crate::mask::{Mask, Masked};
use crate::turns::Turns;
use run::Running;

/// Longest silence of a runner. A healthy one sends a heartbeat every second, whatever its handler does.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// Idle time after which processes that runs left behind are killed.
const TIDY_AFTER: Duration = Duration::from_secs(1);

const COMMANDS: usize = 1_024;

pub(super) enum Command {
    Run { number: u64, request: RunRequest, end: oneshot::Sender<RunEnd> },
    Cancel(u64),
    Terminate,
    Kill,
    Overfull(u64),
    Stop(oneshot::Sender<()>),
}

pub(super) async fn start(
    launch: &Launch,
    reservation: Option<Reservation>,
    load_timeout: Duration,
) -> Result<Runner, StartError> {
    let started = Instant::now();
    let (process, writer, streams) = Process::spawn(launch).map_err(|error| StartError::Spawn(error.to_string()))?;
    let pid = process.pid;
    if let Some(reservation) = &reservation {
        reservation.belongs_to(pid);
    }
    let (commands, inbox) = mpsc::channel(COMMANDS);
    let (loaded, loading) = oneshot::channel();
    let load = Control::Load {
        kind: launch.spec.runner.kind().to_owned(),
        entry: launch.spec.entry.clone(),
        max_concurrency: launch.spec.max_concurrency,
    };
    let settings = Settings { runner: &launch.spec.runner, secrets: &launch.secrets };
    let settings = serde_json::to_vec(&settings).map_err(|error| StartError::Spawn(error.to_string()))?;
    let is_gathering = Arc::new(AtomicBool::new(false));
    let parts = Parts { process, writer, streams, inbox, loaded, reservation, is_gathering: Arc::clone(&is_gathering) };
    tokio::spawn(Driver::new(parts, launch).run(load, settings));
    tokio::spawn(fill::watch(launch.scratch.clone(), launch.scratch_bytes, commands.downgrade()));
    let is_batched = launch.spec.max_batch_size > 1;
    let runner = |boot, load| Runner {
        commands,
        pid,
        boot,
        load,
        is_batched,
        is_gathering,
        ours: launch.ours.clone(),
        is_tested: AtomicBool::new(false),
        awaited: AtomicUsize::new(0),
    };
    match timeout(load_timeout, loading).await {
        Ok(Ok(Ok(load))) => Ok(runner(started.elapsed().saturating_sub(load), load)),
        Ok(Ok(Err(error))) => Err(error),
        Ok(Err(_)) => Err(StartError::Spawn("the task that drives it has ended".to_owned())),
        // Dropping the sender of commands ends the driver, which kills the process.
        Err(_) => Err(StartError::TooSlow(load_timeout)),
    }
}

/// The body of a `load` message. It contains the secrets, because environment variables of the process can be read by
/// others.
#[derive(Serialize)]
struct Settings<'a> {
    #[serde(flatten)]
    runner: &'a RunnerKind,
    #[serde(skip_serializing_if = "Secrets::is_empty")]
    secrets: &'a Secrets,
}

/// Why the driver kills the process.
enum Fatal {
    Broken(String),
    Flooded(u64),
    Overfull(u64),
}

/// The parts of a driver.
struct Parts {
    process: Process,
    writer: OwnedWriteHalf,
    streams: Streams,
    inbox: mpsc::Receiver<Command>,
    loaded: oneshot::Sender<Result<Duration, StartError>>,
    reservation: Option<Reservation>,
    is_gathering: Arc<AtomicBool>,
}

struct Driver {
    process: Process,
    reservation: Option<Reservation>,
    writer: OwnedWriteHalf,
    streams: Streams,
    inbox: mpsc::Receiver<Command>,
    loaded: Option<oneshot::Sender<Result<Duration, StartError>>>,
    decoder: Decoder,
    /// In the order in which they were sent, which is the order in which the runner starts them.
    runs: BTreeMap<u64, Running>,
    /// Number of concurrent runs.
    max_concurrency: usize,
    /// For a batched handler: the runs of the next call, which are in `runs` too.
    batch: Batch,
    /// Set while the next batched call waits for more runs.
    is_gathering: Arc<AtomicBool>,
    /// Turns of its runs, which the process can limit.
    turns: Option<Arc<Turns>>,
    shared: Shared,
    /// Standard error outside any run.
    stderr: Tail,
    /// Masked output outside any run, by [`LogStream`], and its receiver.
    printed: [Masked; 2],
    output_to: Option<mpsc::UnboundedSender<JobMessage>>,
    mask: Mask,
    last_message_at: tokio::time::Instant,
    /// Whether to kill processes that runs leave behind; a server manages its own processes.
    is_tidied: bool,
    /// Detached processes that existed when the model was loaded; they belong to the model.
    spared: Arc<BTreeSet<u32>>,
    /// End of the last run; `None` once its leftovers were killed.
    idle_since: Option<tokio::time::Instant>,
    stopping: Option<(tokio::time::Instant, Vec<oneshot::Sender<()>>)>,
    /// The kernel's count of out-of-memory kills when the process started, and whether the worker killed the process.
    oom_kills: u64,
    is_killed: bool,
}

impl Driver {
    fn new(parts: Parts, launch: &Launch) -> Self {
        let Parts { process, writer, streams, inbox, loaded, reservation, is_gathering } = parts;
        let (spec, mask) = (&launch.spec, Mask::of(&launch.secrets));
        Self {
            process,
            reservation,
            writer,
            streams,
            inbox,
            loaded: Some(loaded),
            decoder: Decoder::default(),
            runs: BTreeMap::new(),
            max_concurrency: spec.max_concurrency.max(1) as usize,
            batch: Batch::new(spec.max_batch_size, spec.max_wait()),
            is_gathering,
            turns: launch.turns.clone(),
            shared: Shared::new(Instant::now()),
            stderr: Tail::default(),
            printed: [mask.stream(), mask.stream()],
            output_to: launch.output_to.clone(),
            mask,
            last_message_at: tokio::time::Instant::now(),
            is_tidied: matches!(spec.runner, RunnerKind::Python | RunnerKind::Cog | RunnerKind::Command { .. }),
            spared: Arc::default(),
            idle_since: None,
            stopping: None,
            oom_kills: process::oom_kills(),
            is_killed: false,
        }
    }

    async fn run(mut self, load: Control, settings: Vec<u8>) {
        let fatal = match self.send(&load, &settings).await {
            Ok(()) => self.serve().await.err(),
            Err(fatal) => Some(fatal),
        };
        self.inbox.close();
        self.end_runner(fatal).await;
    }

    /// Serves until the process has exited or must be killed.
    async fn serve(&mut self) -> Result<(), Fatal> {
        loop {
            let call_at = self.call().await?;
            self.is_gathering.store(call_at.is_some(), Ordering::SeqCst);
            let silence = self.last_message_at + SILENCE_MAX;
            let tidy_at = self.idle_since.filter(|_| self.runs.is_empty()).map(|since| since + TIDY_AFTER);
            let stop_by = self.stopping.as_ref().map(|(by, _)| *by);
            tokio::select! {
                chunk = self.streams.next() => match chunk {
                    Some((source, Some(bytes))) => self.take(source, &bytes)?,
                    // The socket or all streams are closed: the process is exiting.
                    Some((Source::Wire, None)) | None => return Ok(()),
                    Some((_, None)) => {}
                },
                command = self.inbox.recv() => match command {
                    Some(Command::Run { number, request, end }) => self.begin(number, request, end).await?,
                    Some(Command::Cancel(number)) if self.batch.remove(number) => {
                        self.runs.remove(&number);
                    }
                    Some(Command::Cancel(number)) => self.send(&Control::Cancel { run: number }, b"").await?,
                    Some(Command::Overfull(most)) => return Err(Fatal::Overfull(most)),
                    Some(Command::Terminate) => process::terminate_group(self.process.pid),
                    Some(Command::Stop(stopped)) => {
                        let by = tokio::time::Instant::now() + STOP_GRACE;
                        self.stopping.get_or_insert((by, Vec::new())).1.push(stopped);
                        self.send(&Control::Shutdown, b"").await?;
                    }
                    // Killed on request, or because all handles of the runner were dropped.
                    Some(Command::Kill) | None => {
                        self.kill();
                        return Ok(());
                    }
                },
                () = sleep_until(silence) => {
                    return Err(Fatal::Broken(format!("no heartbeat for {} s", SILENCE_MAX.as_secs())));
                }
                () = sleep_until(call_at.unwrap_or(silence)), if call_at.is_some() => {}
                () = sleep_until(tidy_at.unwrap_or(silence)), if tidy_at.is_some() => {
                    self.idle_since = None;
                    // On another thread, because a handler may have left thousands and this thread serves other
                    // runners.
                    let (pid, is_boxed, spared) = (self.process.pid, self.process.is_boxed, Arc::clone(&self.spared));
                    tokio::task::spawn_blocking(move || strays::end(pid, is_boxed, &spared));
                }
                () = sleep_until(stop_by.unwrap_or(silence)), if stop_by.is_some() => {
                    self.kill();
                    return Ok(());
                }
            }
        }
    }

    fn kill(&mut self) {
        self.is_killed = true;
        process::kill_group(self.process.pid);
    }

    async fn begin(&mut self, number: u64, request: RunRequest, end: oneshot::Sender<RunEnd>) -> Result<(), Fatal> {
        let RunRequest { job, attempt, scratch, files, input, traceparent, messages, begun } = request;
        if self.runs.len() < self.max_concurrency && !self.batch.is_on() {
            begun.now(0);
            self.shared.begin(number, Instant::now());
        }
        let printed = [self.mask.stream(), self.mask.stream()];
        let stderr = Tail::default();
        let running = Running { end, messages, begun, log_bytes: 0, cut: false, dropped: 0, stderr, printed };
        self.runs.insert(number, running);
        let scratch = scratch.to_string_lossy().into_owned();
        let control = Control::Run { run: number, job, attempt, scratch, files, more: 0, traceparent };
        if self.batch.is_on() {
            self.batch.push((number, control, input), Instant::now());
            return Ok(());
        }
        self.send(&control, input.get().as_bytes()).await
    }

    /// Sends the next batched call if none is running. Returns when to check again if nothing else happens.
    async fn call(&mut self) -> Result<Option<tokio::time::Instant>, Fatal> {
        if self.runs.len() > self.batch.len() || self.stopping.is_some() {
            return Ok(None);
        }
        let call = self.batch.take(Instant::now());
        if call.is_empty() {
            return Ok(self.batch.due().map(Into::into));
        }
        let size = u32::try_from(call.len()).unwrap_or(u32::MAX);
        for (number, control, input) in call {
            if let Some(running) = self.runs.get(&number) {
                running.begun.now(size);
                self.shared.begin(number, Instant::now());
            }
            self.send(&control, input.get().as_bytes()).await?;
        }
        Ok(None)
    }

    /// Handles the end of a run: the next one in the runner's inbox starts.
    fn ended(&mut self, run: u64) -> Option<Running> {
        let mut running = self.runs.remove(&run)?;
        running.ends();
        if let Some(sharers_milli) = self.shared.end(run, Instant::now()) {
            running.begun.shared(sharers_milli);
        }
        if self.runs.is_empty() && self.is_tidied {
            self.idle_since = Some(tokio::time::Instant::now());
        }
        if !self.batch.is_on()
            && let Some((number, next)) = self.runs.iter().nth(self.max_concurrency - 1)
        {
            next.begun.now(0);
            self.shared.begin(*number, Instant::now());
        }
        Some(running)
    }

    async fn send(&mut self, control: &Control, body: &[u8]) -> Result<(), Fatal> {
        let mut frame = Vec::with_capacity(256 + body.len());
        encode(control, body, &mut frame).map_err(|error| Fatal::Broken(error.to_string()))?;
        // A process that does not read is detected by its silence, and one that has exited by its exit.
        match timeout(SILENCE_MAX, self.writer.write_all(&frame)).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Fatal::Broken("it does not read its socket".to_owned())),
        }
    }
}
