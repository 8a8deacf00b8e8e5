//! The GPUs of this machine: their properties, their health, and whether they accept work. Detected through NVML, or
//! declared for tests.

mod health;
pub(crate) mod nvml;
mod probe;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use nix::unistd::{Pid, getpgid};
use nvml_wrapper::Nvml;
use parking_lot::Mutex;
use stokehold_protocol::gateway::{Gpu, GpuHealth, GpuReading};
use stokehold_supervise::guard_blocking;
use stokehold_vram::{Ledger, Verdict};
use tokio::sync::watch;
use tokio::time::timeout;

use health::Health;
use nvml::Reading;

/// Interval of readings of each GPU.
const EVERY: Duration = Duration::from_millis(500);

/// Longest time of one reading. A longer one hangs in the driver, and so does every program that uses a GPU.
const READING_TIMEOUT: Duration = Duration::from_secs(20);

/// Timeout of one wait for Xids, after which the thread checks whether it should stop.
const XID_WAIT_MS: u32 = 1_000;

/// Memory in use without a process counts as the driver's own below this size.
const DRIVER_MIB: u64 = 1_024;

/// The GPUs with their last readings. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Gpus(Arc<Inner>);

struct Inner {
    gpus: Vec<Gpu>,
    driver: Option<String>,
    cuda: Option<String>,
    nvml: Option<Nvml>,
    ledger: Ledger,
    known: Mutex<Known>,
    /// A channel that changes when a GPU is short of memory, or starts or stops accepting work.
    changed: watch::Sender<()>,
    /// Number of completed readings.
    completed: watch::Sender<u64>,
    /// Requests an immediate reading.
    nudge: SyncSender<()>,
    nudged: Mutex<Option<Receiver<()>>>,
    stopped: AtomicBool,
}

struct Known {
    states: Vec<GpuState>,
    /// Start of the current reading, or of the first of several that panicked; `None` after one that ended.
    reading_since: Option<Instant>,
}

#[derive(Default)]
struct GpuState {
    health: Health,
    reading: Option<Reading>,
    /// MiB by which reserved and used memory exceed the GPU's memory.
    short_mib: u64,
    /// Number of running tests; no run starts on the GPU until they have ended.
    probes: u32,
}

impl GpuState {
    fn is_open(&self) -> bool {
        self.probes == 0 && self.health.verdict().0 == GpuHealth::Healthy
    }
}

/// Whether this system has a device file of an NVIDIA GPU or its driver.
pub(crate) fn have_devices() -> bool {
    ["/dev/nvidiactl", "/dev/nvidia0"].iter().any(|path| Path::new(path).exists())
}

impl Gpus {
    /// Detects the GPUs. Without an NVIDIA driver, the worker is a CPU worker.
    pub(crate) fn find(declared_mib: Option<&[u64]>, library: Option<&Path>) -> Self {
        if let Some(sizes) = declared_mib {
            return Self::new(declared(sizes), None);
        }
        match nvml::open(library) {
            Ok(nvml) => Self::new(nvml::gpus(&nvml), Some(nvml)),
            Err(error) => {
                tracing::info!(%error, "no NVIDIA driver found; this worker runs CPU jobs only");
                Self::new(Vec::new(), None)
            }
        }
    }

    fn new(gpus: Vec<Gpu>, nvml: Option<Nvml>) -> Self {
        let (driver, cuda) = nvml.as_ref().map(nvml::versions).unwrap_or_default();
        let states = gpus.iter().map(|_| GpuState::default()).collect();
        let known = Mutex::new(Known { states, reading_since: None });
        let ledger = Ledger::new(&gpus, nvml.is_some());
        let (nudge, nudged) = sync_channel(1);
        Self(Arc::new(Inner {
            gpus,
            driver,
            cuda,
            nvml,
            ledger,
            known,
            changed: watch::Sender::new(()),
            completed: watch::Sender::new(0),
            nudge,
            nudged: Mutex::new(Some(nudged)),
            stopped: AtomicBool::new(false),
        }))
    }

    pub(crate) fn list(&self) -> &[Gpu] {
        &self.0.gpus
    }

    /// The values of `CUDA_VISIBLE_DEVICES` for these GPUs: indices, or UUIDs, which stay valid where other GPUs are
    /// not visible.
    pub(crate) fn names(&self, gpus: &[u32], by_uuid: bool) -> Vec<String> {
        let by_uuid = by_uuid && self.0.nvml.is_some();
        let name = |index: &u32| match self.0.gpus.iter().find(|gpu| gpu.index == *index) {
            Some(gpu) if by_uuid => gpu.uuid.clone(),
            _ => index.to_string(),
        };
        gpus.iter().map(name).collect()
    }

    /// The device files of these GPUs, and those that the driver shares between all GPUs.
    pub(crate) fn devices(&self, gpus: &[u32]) -> Vec<PathBuf> {
        let Some(nvml) = self.0.nvml.as_ref().filter(|_| !gpus.is_empty()) else { return Vec::new() };
        let own = gpus.iter().map(|index| format!("/dev/nvidia{}", nvml::minor(nvml, *index)));
        let shared = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"];
        own.map(PathBuf::from).chain(shared.map(PathBuf::from)).collect()
    }

    /// The driver's version, and the newest CUDA version that it supports.
    pub(crate) fn versions(&self) -> (Option<String>, Option<String>) {
        (self.0.driver.clone(), self.0.cuda.clone())
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.0.ledger
    }

    /// A channel that changes when a GPU is short of memory, or starts or stops accepting work.
    pub(crate) fn changed(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    /// Reads the GPUs until [`Self::stop`], on separate threads because a call into the driver may be slow or never
    /// return.
    pub(crate) fn watch(&self) -> std::io::Result<()> {
        if self.0.nvml.is_none() {
            return Ok(());
        }
        let Some(nudged) = self.0.nudged.lock().take() else { return Ok(()) };
        let gpus = self.clone();
        let read_on = move || {
            while !gpus.0.stopped.load(Ordering::Relaxed) {
                match nudged.recv_timeout(EVERY) {
                    // After a panic the next reading follows. If none ends, the GPUs are marked faulty after
                    // [`READING_TIMEOUT`].
                    Ok(()) | Err(RecvTimeoutError::Timeout) => drop(guard_blocking("gpus", || gpus.read_all())),
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        };
        std::thread::Builder::new().name("gpus".to_owned()).spawn(read_on)?;
        for place in 0..self.0.gpus.len() {
            let gpus = self.clone();
            let listen = move || {
                while guard_blocking("xids", || gpus.listen(place)).is_err() {
                    std::thread::sleep(EVERY);
                }
            };
            std::thread::Builder::new().name("xids".to_owned()).spawn(listen)?;
        }
        Ok(())
    }

    /// Stops the threads of [`Self::watch`], with a delay.
    pub(crate) fn stop(&self) {
        self.0.stopped.store(true, Ordering::Relaxed);
    }

    /// Reads the GPUs now and waits for the result. `false` if that took too long.
    pub(crate) async fn read_now(&self) -> bool {
        if self.0.nvml.is_none() {
            return true;
        }
        let next = self.next_reading();
        let _ = self.0.nudge.try_send(());
        next.await
    }

    /// Waits for the next reading. `false` if it took too long.
    fn next_reading(&self) -> impl Future<Output = bool> + use<> {
        let mut completed = self.0.completed.subscribe();
        async move { matches!(timeout(READING_TIMEOUT, completed.changed()).await, Ok(Ok(()))) }
    }

    /// Reads every GPU once.
    fn read_all(&self) {
        let Some(nvml) = &self.0.nvml else { return };
        self.0.known.lock().reading_since.get_or_insert_with(Instant::now);
        for (place, gpu) in self.0.gpus.iter().enumerate() {
            let reading = nvml::read(nvml, gpu.index);
            let Verdict { short_mib, stuck_mib } = reading.as_ref().map_or_else(
                |_| Verdict::default(),
                |reading| {
                    let groups = reading.processes.as_deref().and_then(|processes| groups(processes, reading.used_mib));
                    self.0.ledger.observe(gpu.index, reading.used_mib, groups.as_deref())
                },
            );
            self.update(place, |state| {
                state.health.observe(reading.as_ref().map(|reading| reading.signs).map_err(Clone::clone));
                if stuck_mib > 0 {
                    state.health.mark_faulty(format!("{stuck_mib} MiB remain allocated after their process exited"));
                }
                state.reading = reading.ok().or_else(|| state.reading.take());
                state.short_mib = short_mib;
            });
        }
        self.0.known.lock().reading_since = None;
        self.0.completed.send_modify(|completed| *completed += 1);
    }

    fn listen(&self, place: usize) {
        let (Some(nvml), Some(gpu)) = (&self.0.nvml, self.0.gpus.get(place)) else { return };
        nvml::xids(nvml, gpu.index, XID_WAIT_MS, |xid| {
            if let Some(xid) = xid {
                tracing::warn!(gpu.index = gpu.index, gpu.uuid = %gpu.uuid, xid, "the driver reports an Xid");
                self.update(place, |state| {
                    state.health.xid(xid);
                });
            }
            !self.0.stopped.load(Ordering::Relaxed)
        });
    }

    /// Why a GPU is faulty; `None` if it is not.
    pub(crate) fn fault(&self, index: u32) -> Option<String> {
        let place = self.0.gpus.iter().position(|gpu| gpu.index == index)?;
        match self.0.known.lock().states.get(place)?.health.verdict() {
            (GpuHealth::Faulty, why) => why.map(str::to_owned),
            (GpuHealth::Healthy | GpuHealth::Hot, _) => None,
        }
    }

    /// Whether any GPU is faulty, so that its models must stop.
    pub(crate) fn any_faulty(&self) -> bool {
        self.0.known.lock().states.iter().any(|state| state.health.verdict().0 == GpuHealth::Faulty)
    }

    /// Updates the state of a GPU, and publishes what follows from it.
    fn update(&self, place: usize, change: impl FnOnce(&mut GpuState)) {
        let (Some(gpu), mut known) = (self.0.gpus.get(place), self.0.known.lock()) else { return };
        let Some(state) = known.states.get_mut(place) else { return };
        let (before, was_open) = (state.health.verdict().0, state.is_open());
        change(state);
        let is_open = state.is_open();
        let (after, why) = state.health.verdict();
        let is_short = state.short_mib > 0;
        if after != before {
            let why = why.unwrap_or_default();
            match after {
                GpuHealth::Faulty => {
                    tracing::error!(gpu.index = gpu.index, gpu.uuid = %gpu.uuid, why, "a GPU is faulty; it takes no work until this worker restarts");
                }
                GpuHealth::Hot => tracing::warn!(
                    gpu.index = gpu.index,
                    "a GPU is too hot; it takes no new work until it has cooled down"
                ),
                GpuHealth::Healthy => tracing::info!(gpu.index = gpu.index, "a GPU takes work again"),
            }
        }
        if is_open != was_open {
            self.0.ledger.set_open(gpu.index, is_open);
        }
        drop(known);
        if after != before || is_open != was_open || is_short {
            self.0.changed.send_replace(());
        }
    }

    /// Tests these GPUs after a process on them was killed or could no longer use them. No run starts there until the
    /// test has ended; a GPU that fails it is marked as faulty.
    pub(crate) fn test(&self, gpus: &[u32], python: &Path) {
        if self.0.nvml.is_none() || gpus.is_empty() {
            return;
        }
        let (this, gpus, python) = (self.clone(), gpus.to_vec(), python.to_owned());
        this.each(&gpus, |state| state.probes += 1);
        tokio::spawn(async move {
            // Wait until the process's memory is freed.
            while this.0.ledger.is_clearing(&gpus) && this.next_reading().await {}
            let fault = probe::fault(&python, &gpus).await;
            this.each(&gpus, |state| {
                state.probes -= 1;
                if let Some(why) = &fault {
                    state.health.mark_faulty(format!("the GPU test failed: {why}"));
                }
            });
        });
    }

    /// Waits until no test of these GPUs is running. `false` if none was.
    pub(crate) async fn await_tests(&self, gpus: &[u32]) -> bool {
        let mut was = false;
        loop {
            let mut changed = self.changed();
            changed.mark_unchanged();
            let places = self.places(gpus);
            let is_testing =
                places.iter().any(|place| self.0.known.lock().states.get(*place).is_some_and(|state| state.probes > 0));
            if !is_testing || changed.changed().await.is_err() {
                return was;
            }
            was = true;
        }
    }

    fn each(&self, gpus: &[u32], change: impl Fn(&mut GpuState)) {
        self.places(gpus).into_iter().for_each(|place| self.update(place, &change));
    }

    fn places(&self, gpus: &[u32]) -> Vec<usize> {
        let placed = self.0.gpus.iter().enumerate().filter(|(_, gpu)| gpus.contains(&gpu.index));
        placed.map(|(place, _)| place).collect()
    }

    /// The readings of all GPUs, for the heartbeat.
    pub(crate) fn readings(&self) -> Vec<GpuReading> {
        self.give_up_hung();
        let known = self.0.known.lock();
        let reading = |(gpu, state): (&Gpu, &GpuState)| {
            let line = self.0.ledger.line(gpu.index)?;
            let (health, why) = state.health.verdict();
            let signs = state.reading.as_ref().map(|reading| reading.signs);
            Some(GpuReading {
                index: gpu.index,
                vram_used_mib: state.reading.as_ref().map(|reading| reading.used_mib),
                vram_held_mib: line.held_mib,
                vram_free_mib: line.free_mib,
                vram_foreign_mib: line.foreign_mib,
                temperature_c: signs.and_then(|signs| signs.temperature_c),
                utilisation_pct: state.reading.as_ref().and_then(|reading| reading.utilisation_pct),
                power_w: state.reading.as_ref().and_then(|reading| reading.power_w),
                ecc_uncorrected: signs.and_then(|signs| signs.ecc_uncorrected),
                health,
                why: why.map(str::to_owned),
            })
        };
        self.0.gpus.iter().zip(&known.states).filter_map(reading).collect()
    }

    /// The GPUs that are short of memory, with the number of missing MiB.
    pub(crate) fn short(&self) -> Vec<(u32, u64)> {
        let known = self.0.known.lock();
        let gpus = self.0.gpus.iter().zip(&known.states).filter(|(_, state)| state.short_mib > 0);
        gpus.map(|(gpu, state)| (gpu.index, state.short_mib)).collect()
    }

    /// Marks all GPUs as faulty if the driver hangs.
    fn give_up_hung(&self) {
        let hangs = self.0.known.lock().reading_since.is_some_and(|since| since.elapsed() > READING_TIMEOUT);
        for place in 0..if hangs { self.0.gpus.len() } else { 0 } {
            let why = format!("NVML has not responded for {} s", READING_TIMEOUT.as_secs());
            self.update(place, |state| state.health.mark_faulty(why));
        }
    }
}

/// Memory of each process group. `None` if processes cannot be identified: in a container, the driver may report
/// process ids of another namespace, or none although memory is in use.
fn groups(processes: &[(u32, u64)], used_mib: u64) -> Option<Vec<(u32, u64)>> {
    let group = |(pid, mib): &(u32, u64)| {
        let group = getpgid(Some(Pid::from_raw(pid.cast_signed()))).ok()?;
        Some((group.as_raw().cast_unsigned(), *mib))
    };
    let found: Vec<(u32, u64)> = processes.iter().filter_map(group).collect();
    let are_reported = if processes.is_empty() { used_mib < DRIVER_MIB } else { !found.is_empty() };
    are_reported.then_some(found)
}

/// Fake GPUs of these sizes.
fn declared(sizes_mib: &[u64]) -> Vec<Gpu> {
    let gpu = |(index, vram_mib): (u32, &u64)| Gpu {
        index,
        uuid: format!("fake-{index}"),
        name: "fake GPU".to_owned(),
        vram_mib: *vram_mib,
        ..Gpu::default()
    };
    (0..).zip(sizes_mib).map(gpu).collect()
}
