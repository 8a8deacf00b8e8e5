//! A runner: one Python process per loaded endpoint version, and the runs it is given.

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
use stokehold_ledger::Reservation;
use stokehold_wire::{Failure, OutputFile};
use tokio::sync::{mpsc, oneshot};

use crate::messages::Messages;
pub(crate) use process::{Launch, Vram, environment, kill_group};

/// How long a runner that was told to stop may take before its process group is killed.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// The code of a failure that says: this process cannot use its GPUs any more.
pub(crate) const CUDA_ERROR: &str = "cuda_error";

/// A loaded runner. Dropping it kills the process group.
pub(crate) struct Runner {
    commands: mpsc::Sender<driver::Command>,
    /// Process id, for logs.
    pub(crate) pid: u32,
    /// How long the process took to start, and its handler to load.
    pub(crate) boot: Duration,
    pub(crate) load: Duration,
    /// Several runs are one call of the handler: none of them is worth ending the others for.
    pub(crate) is_batched: bool,
    /// A Python with the runner and no package of anybody else, which tries its GPUs out.
    pub(crate) ours: PathBuf,
    /// It ended badly, and its GPUs were tried out for that.
    pub(crate) is_tried: AtomicBool,
    /// Runs that somebody waits for.
    awaited: AtomicUsize,
}

/// A run that is waited for, until dropped.
pub(crate) struct Awaited<'a>(&'a AtomicUsize);

impl Awaited<'_> {
    /// Whether nobody waits for another run of this runner.
    pub(crate) fn is_last(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 1
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Why a runner did not load.
#[derive(Debug)]
pub(crate) enum StartError {
    /// The process could not be started: this machine's trouble.
    Spawn(String),
    /// The import or `setup()` raised.
    Setup(Failure, String),
    /// It took too long.
    TooSlow(Duration),
    /// The process ended, or talked nonsense, before it was ready.
    Ended(RunEnd),
}

impl StartError {
    /// Whether the process could not use its GPUs.
    pub(crate) fn is_cuda_fault(&self) -> bool {
        match self {
            Self::Setup(failure, _) => failure.code == CUDA_ERROR,
            Self::Ended(RunEnd::Crashed { .. }) => true,
            Self::Spawn(_) | Self::TooSlow(_) | Self::Ended(_) => false,
        }
    }
}

/// What a run needs.
pub(crate) struct RunRequest {
    pub(crate) job: String,
    pub(crate) attempt: u32,
    pub(crate) scratch: PathBuf,
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) input: Box<RawValue>,
    /// Its place in the job's trace.
    pub(crate) traceparent: Option<String>,
    /// Where its messages go.
    pub(crate) messages: Arc<Messages>,
    /// Told when the handler has it.
    pub(crate) begun: Arc<Begun>,
}

/// When the runner took a run out of its inbox, as far as is known here, and with how many others.
#[derive(Default)]
pub(crate) struct Begun {
    first: OnceLock<(Instant, u32)>,
    /// With how many runs it has shared its process on average, thousandths; known when it has ended.
    sharers_milli: OnceLock<u32>,
}

impl Begun {
    pub(crate) fn at(&self) -> Option<Instant> {
        self.first.get().map(|(at, _)| *at)
    }

    /// Runs of the same call of the handler, this one among them; 0 where the handler takes one at a time.
    pub(crate) fn batch_size(&self) -> u32 {
        self.first.get().map_or(0, |(_, size)| *size)
    }

    /// With how many runs it has shared its process on average, itself among them, thousandths; 0 while that is not known.
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

/// How a run ended.
#[derive(Debug)]
pub(crate) enum RunEnd {
    /// With a result.
    Done { result: Vec<u8>, files: Vec<OutputFile>, run_ms: u64 },
    /// The handler raised, or gave what cannot be sent.
    Failed { failure: Failure, run_ms: u64, stderr: String },
    /// The process exited by itself.
    Exited { code: i32, stderr: String },
    /// The process died of a signal.
    Crashed { signal: String, stderr: String },
    /// The kernel killed the process, since the machine had no memory left.
    OutOfMemory { stderr: String },
    /// The process broke the wire's protocol and was killed.
    Broken { why: String, stderr: String },
    /// It wrote more log than a job may, and was killed.
    Flooded { limit_bytes: u64, stderr: String },
    /// It left more on the disk than it may, and was killed.
    Overfull { limit_bytes: u64, stderr: String },
    /// The process ended while the run waited in its inbox.
    NotBegun,
    /// The process was told to stop and did not wait for the run: by nobody's fault.
    Stopped,
}

impl RunEnd {
    /// Whether the process is gone, by whatever.
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
    /// Starts a process and loads its handler. The reservation is given back when the process is gone.
    pub(crate) async fn start(
        launch: &Launch,
        reservation: Option<Reservation>,
        load_timeout: Duration,
    ) -> Result<Self, StartError> {
        driver::start(launch, reservation, load_timeout).await
    }

    /// Gives it a run. The number is for [`Self::cancel`]; the receiver gets the end, always.
    pub(crate) async fn run(&self, number: u64, request: RunRequest) -> oneshot::Receiver<RunEnd> {
        let (end, ended) = oneshot::channel();
        // A driver that is gone drops the sender; whoever waits learns of it by the closed channel.
        let _ = self.commands.send(driver::Command::Run { number, request, end }).await;
        ended
    }

    /// Counts a run as waited for.
    pub(crate) fn awaits(&self) -> Awaited<'_> {
        self.awaited.fetch_add(1, Ordering::SeqCst);
        Awaited(&self.awaited)
    }

    /// Asks a run to stop.
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

    /// Lets it finish what it runs, then exit; killed after a grace.
    pub(crate) async fn stop(&self) {
        let (stopped, done) = oneshot::channel();
        let _ = self.commands.send(driver::Command::Stop(stopped)).await;
        let _ = done.await;
    }

    /// Kills the process group, and waits until it is gone.
    pub(crate) async fn end(&self) {
        self.kill().await;
        self.commands.closed().await;
    }

    /// Whether its process has ended.
    pub(crate) fn is_gone(&self) -> bool {
        self.commands.is_closed()
    }
}
