//! A runner: one Python process of a loaded endpoint version, and its runs.

mod batch;
mod driver;
mod fill;
mod process;
mod shared;
mod strays;
mod streams;
mod tail;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use stokehold_vram::Reservation;
use stokehold_wire::{Failure, OutputFile};
use tokio::sync::{mpsc, oneshot};

use crate::messages::Messages;
pub(crate) use process::{Launch, Vram, environment, kill_group};

/// Grace period of a runner that was asked to stop, before its process group is killed.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Failure code of a process that can no longer use its GPUs.
pub(crate) const CUDA_ERROR: &str = "cuda_error";

/// A loaded runner. Dropping it kills the process group.
pub(crate) struct Runner {
    commands: mpsc::Sender<driver::Command>,
    /// Process id, for logs.
    pub(crate) pid: u32,
    /// Time to start the process, and time to load the handler.
    pub(crate) boot: Duration,
    pub(crate) load: Duration,
    /// Whether several runs share one call of the handler, so that none may be stopped at the others' expense.
    pub(crate) is_batched: bool,
    /// Whether the next batched call waits for more runs.
    is_gathering: Arc<AtomicBool>,
    /// A Python that has only the runner installed, to test GPUs.
    pub(crate) ours: PathBuf,
    /// Whether its GPUs were tested after it failed.
    pub(crate) is_tested: AtomicBool,
    /// Number of awaited runs.
    awaited: AtomicUsize,
}

/// Counts an awaited run until dropped.
pub(crate) struct Awaited<'a>(&'a AtomicUsize);

impl Awaited<'_> {
    /// Whether no other run of this runner is awaited.
    pub(crate) fn is_last(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 1
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Why a runner failed to load.
#[derive(Debug)]
pub(crate) enum StartError {
    /// The process could not be started; an error of this machine.
    Spawn(String),
    /// The import or `setup()` raised.
    Setup(Failure, String),
    /// The load took too long.
    TooSlow(Duration),
    /// The process exited, or broke the protocol, before it was ready.
    Ended(RunEnd),
}

impl StartError {
    /// Whether the cause may be that the process could not use its GPUs.
    pub(crate) fn is_cuda_fault(&self) -> bool {
        match self {
            Self::Setup(failure, _) => failure.code == CUDA_ERROR,
            Self::Ended(RunEnd::Crashed { .. }) => true,
            Self::Spawn(_) | Self::TooSlow(_) | Self::Ended(_) => false,
        }
    }
}

/// The parameters of a run.
pub(crate) struct RunRequest {
    pub(crate) job: String,
    pub(crate) attempt: u32,
    pub(crate) scratch: PathBuf,
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) input: Box<RawValue>,
    /// Parent span in the job's trace.
    pub(crate) traceparent: Option<String>,
    /// Destination of its messages.
    pub(crate) messages: Arc<Messages>,
    /// Records when the handler starts the run.
    pub(crate) begun: Arc<Begun>,
}

/// When the runner started a run, as far as known here, and the number of runs that it shared a call with.
#[derive(Default)]
pub(crate) struct Begun {
    first: OnceLock<(Instant, u32)>,
    /// Average number of runs that shared the process, in thousandths; known after the end.
    sharers_milli: OnceLock<u32>,
}

impl Begun {
    pub(crate) fn at(&self) -> Option<Instant> {
        self.first.get().map(|(at, _)| *at)
    }

    /// Number of runs in the same batched call, including this one; 0 if the handler is not batched.
    pub(crate) fn batch_size(&self) -> u32 {
        self.first.get().map_or(0, |(_, size)| *size)
    }

    /// Average number of runs that shared the process, including this one, in thousandths; 0 while unknown.
    pub(crate) fn sharers_milli(&self) -> u32 {
        self.sharers_milli.get().copied().unwrap_or_default()
    }

    fn now(&self, batch_size: u32) {
        let _ = self.first.set((Instant::now(), batch_size));
    }

    fn shared(&self, sharers_milli: u32) {
        let _ = self.sharers_milli.set(sharers_milli);
    }
}

/// The end of a run.
#[derive(Debug)]
pub(crate) enum RunEnd {
    /// The handler returned a result.
    Done { result: Vec<u8>, files: Vec<OutputFile>, run_ms: u64 },
    /// The handler raised an exception, or its result cannot be sent.
    Failed { failure: Failure, run_ms: u64, stderr: String },
    /// The process exited by itself.
    Exited { code: i32, stderr: String },
    /// The process was killed by a signal.
    Crashed { signal: String, stderr: String },
    /// The kernel killed the process because the machine ran out of memory.
    OutOfMemory { stderr: String },
    /// The process violated the protocol and was killed.
    Broken { why: String, stderr: String },
    /// The job exceeded its log limit and the process was killed.
    Flooded { limit_bytes: u64, stderr: String },
    /// The process exceeded its scratch space and was killed.
    Overfull { limit_bytes: u64, stderr: String },
    /// The process exited before the run started.
    NotBegun,
    /// The process was stopped by the worker before the run ended.
    Stopped,
}

impl RunEnd {
    /// Whether the process has exited.
    pub(crate) fn ended_process(&self) -> bool {
        match self {
            Self::Done { .. } | Self::Failed { .. } | Self::NotBegun => false,
            Self::Exited { .. }
            | Self::Crashed { .. }
            | Self::OutOfMemory { .. }
            | Self::Broken { .. }
            | Self::Flooded { .. }
            | Self::Overfull { .. }
            | Self::Stopped => true,
        }
    }
}

impl Runner {
    /// Starts a process and loads its handler. The reservation is released when the process has exited.
    pub(crate) async fn start(
        launch: &Launch,
        reservation: Option<Reservation>,
        load_timeout: Duration,
    ) -> Result<Self, StartError> {
        driver::start(launch, reservation, load_timeout).await
    }

    /// Starts a run. `number` identifies it for [`Self::cancel`]; the receiver always gets the end.
    pub(crate) async fn run(&self, number: u64, request: RunRequest) -> oneshot::Receiver<RunEnd> {
        let (end, ended) = oneshot::channel();
        // A driver that has ended drops the sender, which closes the receiver.
        let _ = self.commands.send(driver::Command::Run { number, request, end }).await;
        ended
    }

    /// Counts a run as waited for.
    pub(crate) fn awaits(&self) -> Awaited<'_> {
        self.awaited.fetch_add(1, Ordering::SeqCst);
        Awaited(&self.awaited)
    }

    /// Cancels a run.
    pub(crate) async fn cancel(&self, number: u64) {
        let _ = self.commands.send(driver::Command::Cancel(number)).await;
    }

    /// Sends the process group a SIGTERM.
    pub(crate) async fn terminate(&self) {
        let _ = self.commands.send(driver::Command::Terminate).await;
    }

    /// Kills the process group now; its runs end as crashed.
    pub(crate) async fn kill(&self) {
        let _ = self.commands.send(driver::Command::Kill).await;
    }

    /// Lets the process finish its runs and exit; kills it after a grace period.
    pub(crate) async fn stop(&self) {
        let (stopped, done) = oneshot::channel();
        let _ = self.commands.send(driver::Command::Stop(stopped)).await;
        let _ = done.await;
    }

    /// Kills the process group and waits until it has exited.
    pub(crate) async fn end(&self) {
        self.kill().await;
        self.commands.closed().await;
    }

    /// Whether its next batched call waits for more runs.
    pub(crate) fn is_gathering(&self) -> bool {
        self.is_gathering.load(Ordering::SeqCst)
    }

    /// Whether the process has exited.
    pub(crate) fn is_gone(&self) -> bool {
        self.commands.is_closed()
    }
}
