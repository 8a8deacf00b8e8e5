//! The cards of this machine: what they are, how they are, and whether they may take work. By NVML, or declared for tests, or none.

mod health;
pub(crate) mod nvml;
mod probe;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::unistd::{Pid, getpgid};
use nvml_wrapper::Nvml;
use stokehold_ledger::{Ledger, Verdict};
use stokehold_queue::gateway::{Gpu, GpuHealth, GpuReading};
use stokehold_supervise::guard_blocking;
use tokio::sync::watch;
use tokio::time::timeout;

use health::Health;
use nvml::Look;

/// How often each card is looked at.
const EVERY: Duration = Duration::from_millis(500);

/// A look that takes longer hangs in the driver, and with it whatever wants to use a card.
const LOOK_MAX: Duration = Duration::from_secs(20);

/// How long a wait for Xids lasts before it asks whether it is still wanted.
const XID_WAIT_MS: u32 = 1_000;

/// Below this, memory in use without a process is the driver's own.
const DRIVER_MIB: u64 = 1_024;

/// The cards, and what was last seen of each. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Cards(Arc<Inner>);

struct Inner {
    gpus: Vec<Gpu>,
    driver: Option<String>,
    cuda: Option<String>,
    nvml: Option<Nvml>,
    ledger: Ledger,
    known: Mutex<Known>,
    /// Moves when a card is short of memory, or has changed its mind about taking work.
    changed: watch::Sender<()>,
    /// Looks so far.
    looks: watch::Sender<u64>,
    /// Asks for a look before its time.
    nudge: SyncSender<()>,
    nudged: Mutex<Option<Receiver<()>>>,
    stopped: AtomicBool,
}

struct Known {
    cards: Vec<Card>,
    /// When the look under way began, or the first of several that panicked; `None` after one that ended.
    looking_since: Option<Instant>,
}

#[derive(Default)]
struct Card {
    health: Health,
    look: Option<Look>,
    /// MiB more in use than what is held and free.
    short_mib: u64,
    /// Probes under way: until they have ended, nothing begins here.
    probes: u32,
}

impl Card {
    fn is_open(&self) -> bool {
        self.probes == 0 && self.health.verdict().0 == GpuHealth::Well
    }
}

/// Whether this system has the device file of a card, or of their driver.
pub(crate) fn have_devices() -> bool {
    ["/dev/nvidiactl", "/dev/nvidia0"].iter().any(|path| Path::new(path).exists())
}

impl Cards {
    /// Looks for cards. A machine without an NVIDIA driver is a CPU worker.
    pub(crate) fn find(declared_mib: Option<&[u64]>, library: Option<&Path>) -> Self {
        if let Some(sizes) = declared_mib {
            return Self::new(declared(sizes), None);
        }
        match nvml::open(library) {
            Ok(nvml) => Self::new(nvml::cards(&nvml), Some(nvml)),
            Err(error) => {
                tracing::info!(%error, "no NVIDIA driver: this worker takes CPU jobs only");
                Self::new(Vec::new(), None)
            }
        }
    }

    fn new(gpus: Vec<Gpu>, nvml: Option<Nvml>) -> Self {
        let (driver, cuda) = nvml.as_ref().map(nvml::versions).unwrap_or_default();
        let cards = gpus.iter().map(|_| Card::default()).collect();
        let known = Mutex::new(Known { cards, looking_since: None });
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
            looks: watch::Sender::new(0),
            nudge,
            nudged: Mutex::new(Some(nudged)),
            stopped: AtomicBool::new(false),
        }))
    }

    pub(crate) fn gpus(&self) -> &[Gpu] {
        &self.0.gpus
    }

    /// How CUDA is told of these cards: by their indices, or by names that mean the same where others cannot be seen.
    pub(crate) fn names(&self, cards: &[u32], by_uuid: bool) -> Vec<String> {
        let by_uuid = by_uuid && self.0.nvml.is_some();
        let name = |index: &u32| match self.0.gpus.iter().find(|gpu| gpu.index == *index) {
            Some(gpu) if by_uuid => gpu.uuid.clone(),
            _ => index.to_string(),
        };
        cards.iter().map(name).collect()
    }

    /// The device files of these cards, and those that a driver has for all of them.
    pub(crate) fn devices(&self, cards: &[u32]) -> Vec<PathBuf> {
        let Some(nvml) = self.0.nvml.as_ref().filter(|_| !cards.is_empty()) else { return Vec::new() };
        let own = cards.iter().map(|index| format!("/dev/nvidia{}", nvml::minor(nvml, *index)));
        let shared = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"];
        own.map(PathBuf::from).chain(shared.map(PathBuf::from)).collect()
    }

    /// The driver's version, and the newest CUDA that it serves.
    pub(crate) fn versions(&self) -> (Option<String>, Option<String>) {
        (self.0.driver.clone(), self.0.cuda.clone())
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.0.ledger
    }

    /// Moves when a card is short of memory, or has changed its mind about taking work.
    pub(crate) fn changed(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    /// Looks at the cards until [`Self::stop`], on threads of its own: a call into a driver may take its time, or never return.
    pub(crate) fn watch(&self) -> std::io::Result<()> {
        if self.0.nvml.is_none() {
            return Ok(());
        }
        let Some(nudged) = self.0.nudged.lock().unwrap_or_else(PoisonError::into_inner).take() else { return Ok(()) };
        let cards = self.clone();
        let look_on = move || {
            while !cards.0.stopped.load(Ordering::Relaxed) {
                match nudged.recv_timeout(EVERY) {
                    // After a panic the next look follows; without one that ends, the cards are fenced after [`LOOK_MAX`].
                    Ok(()) | Err(RecvTimeoutError::Timeout) => drop(guard_blocking("cards", || cards.look())),
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        };
        std::thread::Builder::new().name("cards".to_owned()).spawn(look_on)?;
        for place in 0..self.0.gpus.len() {
            let cards = self.clone();
            let listen_on = move || {
                while guard_blocking("xids", || cards.listen(place)).is_err() {
                    std::thread::sleep(EVERY);
                }
            };
            std::thread::Builder::new().name("xids".to_owned()).spawn(listen_on)?;
        }
        Ok(())
    }

    /// Ends the watch, some time later.
    pub(crate) fn stop(&self) {
        self.0.stopped.store(true, Ordering::Relaxed);
    }

    /// Looks now, and waits for what it shows. `false`: it took too long.
    pub(crate) async fn look_again(&self) -> bool {
        if self.0.nvml.is_none() {
            return true;
        }
        let next = self.next_look();
        let _ = self.0.nudge.try_send(());
        next.await
    }

    /// Waits for the next look from now on. `false`: it took too long.
    fn next_look(&self) -> impl Future<Output = bool> + use<> {
        let mut looks = self.0.looks.subscribe();
        async move { matches!(timeout(LOOK_MAX, looks.changed()).await, Ok(Ok(()))) }
    }

    /// One look at every card.
    fn look(&self) {
        let Some(nvml) = &self.0.nvml else { return };
        self.lock().looking_since.get_or_insert_with(Instant::now);
        for (place, gpu) in self.0.gpus.iter().enumerate() {
            let look = nvml::look(nvml, gpu.index);
            let Verdict { short_mib, stuck_mib } = look.as_ref().map_or_else(
                |_| Verdict::default(),
                |look| {
                    let groups = look.processes.as_deref().and_then(|processes| groups(processes, look.used_mib));
                    self.0.ledger.observe(gpu.index, look.used_mib, groups.as_deref())
                },
            );
            self.update(place, |card| {
                card.health.see(look.as_ref().map(|look| look.signs).map_err(Clone::clone));
                if stuck_mib > 0 {
                    card.health.fence(format!("{stuck_mib} MiB are in use though the process that held them is gone"));
                }
                card.look = look.ok().or_else(|| card.look.take());
                card.short_mib = short_mib;
            });
        }
        self.lock().looking_since = None;
        self.0.looks.send_modify(|looks| *looks += 1);
    }

    fn listen(&self, place: usize) {
        let (Some(nvml), Some(gpu)) = (&self.0.nvml, self.0.gpus.get(place)) else { return };
        nvml::xids(nvml, gpu.index, XID_WAIT_MS, |xid| {
            if let Some(xid) = xid {
                tracing::warn!(gpu.index = gpu.index, gpu.uuid = %gpu.uuid, xid, "the driver reports an Xid");
                self.update(place, |card| {
                    card.health.xid(xid);
                });
            }
            !self.0.stopped.load(Ordering::Relaxed)
        });
    }

    /// Why a card was given up.
    pub(crate) fn fenced(&self, index: u32) -> Option<String> {
        let place = self.0.gpus.iter().position(|gpu| gpu.index == index)?;
        match self.lock().cards.get(place)?.health.verdict() {
            (GpuHealth::Fenced, why) => why.map(str::to_owned),
            (GpuHealth::Well | GpuHealth::Hot, _) => None,
        }
    }

    /// Whether cards were given up: their models are to go.
    pub(crate) fn are_fenced(&self) -> bool {
        self.lock().cards.iter().any(|card| card.health.verdict().0 == GpuHealth::Fenced)
    }

    /// Changes what is known of a card, and what follows from it.
    fn update(&self, place: usize, change: impl FnOnce(&mut Card)) {
        let (Some(gpu), mut known) = (self.0.gpus.get(place), self.lock()) else { return };
        let Some(card) = known.cards.get_mut(place) else { return };
        let (before, was_open) = (card.health.verdict().0, card.is_open());
        change(card);
        let is_open = card.is_open();
        let (after, why) = card.health.verdict();
        let is_short = card.short_mib > 0;
        if after != before {
            let why = why.unwrap_or_default();
            match after {
                GpuHealth::Fenced => {
                    tracing::error!(gpu.index = gpu.index, gpu.uuid = %gpu.uuid, why, "a card is fenced off: it takes no work until this worker starts again");
                }
                GpuHealth::Hot => tracing::warn!(gpu.index = gpu.index, "a card is too hot to take work"),
                GpuHealth::Well => tracing::info!(gpu.index = gpu.index, "a card takes work again"),
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

    /// Tries these cards out: a process on them was killed, or could not use them any more. Nothing begins there until it has ended; one
    /// that does not work is fenced off.
    pub(crate) fn try_out(&self, cards: &[u32], python: &Path) {
        if self.0.nvml.is_none() || cards.is_empty() {
            return;
        }
        let (this, cards, python) = (self.clone(), cards.to_vec(), python.to_owned());
        this.each(&cards, |card| card.probes += 1);
        tokio::spawn(async move {
            // First its memory is to be gone.
            while this.0.ledger.is_clearing(&cards) && this.next_look().await {}
            let fault = probe::fault(&python, &cards).await;
            this.each(&cards, |card| {
                card.probes -= 1;
                if let Some(why) = &fault {
                    card.health.fence(format!("it does not work: {why}"));
                }
            });
        });
    }

    /// Waits until none of these cards is being tried out. `false`: none was.
    pub(crate) async fn tried(&self, cards: &[u32]) -> bool {
        let mut was = false;
        loop {
            let mut changed = self.changed();
            changed.mark_unchanged();
            let places = self.places(cards);
            let is_tried = places.iter().any(|place| self.lock().cards.get(*place).is_some_and(|card| card.probes > 0));
            if !is_tried || changed.changed().await.is_err() {
                return was;
            }
            was = true;
        }
    }

    fn each(&self, cards: &[u32], change: impl Fn(&mut Card)) {
        self.places(cards).into_iter().for_each(|place| self.update(place, &change));
    }

    fn places(&self, cards: &[u32]) -> Vec<usize> {
        let placed = self.0.gpus.iter().enumerate().filter(|(_, gpu)| cards.contains(&gpu.index));
        placed.map(|(place, _)| place).collect()
    }

    /// How each card is, for the heartbeat.
    pub(crate) fn readings(&self) -> Vec<GpuReading> {
        self.give_up_hung();
        let known = self.lock();
        let reading = |(gpu, card): (&Gpu, &Card)| {
            let line = self.0.ledger.line(gpu.index)?;
            let (health, why) = card.health.verdict();
            let signs = card.look.as_ref().map(|look| look.signs);
            Some(GpuReading {
                index: gpu.index,
                vram_used_mib: card.look.as_ref().map(|look| look.used_mib),
                vram_held_mib: line.held_mib,
                vram_free_mib: line.free_mib,
                vram_foreign_mib: line.foreign_mib,
                temperature_c: signs.and_then(|signs| signs.temperature_c),
                utilisation_pct: card.look.as_ref().and_then(|look| look.utilisation_pct),
                power_w: card.look.as_ref().and_then(|look| look.power_w),
                ecc_uncorrected: signs.and_then(|signs| signs.ecc_uncorrected),
                health,
                why: why.map(str::to_owned),
            })
        };
        self.0.gpus.iter().zip(&known.cards).filter_map(reading).collect()
    }

    /// Cards by how much they are short of memory.
    pub(crate) fn short(&self) -> Vec<(u32, u64)> {
        let known = self.lock();
        let cards = self.0.gpus.iter().zip(&known.cards).filter(|(_, card)| card.short_mib > 0);
        cards.map(|(gpu, card)| (gpu.index, card.short_mib)).collect()
    }

    /// A driver that hangs answers about no card.
    fn give_up_hung(&self) {
        let hangs = self.lock().looking_since.is_some_and(|since| since.elapsed() > LOOK_MAX);
        for place in 0..if hangs { self.0.gpus.len() } else { 0 } {
            let why = format!("NVML has not answered for {} s", LOOK_MAX.as_secs());
            self.update(place, |card| card.health.fence(why));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What each process group uses. `None` where processes cannot be told apart: in a container the driver tells of processes by numbers
/// that mean nothing here, or of none though memory is in use.
fn groups(processes: &[(u32, u64)], used_mib: u64) -> Option<Vec<(u32, u64)>> {
    let group = |(pid, mib): &(u32, u64)| {
        let group = getpgid(Some(Pid::from_raw(pid.cast_signed()))).ok()?;
        Some((group.as_raw().cast_unsigned(), *mib))
    };
    let found: Vec<(u32, u64)> = processes.iter().filter_map(group).collect();
    let is_told = if processes.is_empty() { used_mib < DRIVER_MIB } else { !found.is_empty() };
    is_told.then_some(found)
}

/// Cards without hardware behind them.
fn declared(sizes_mib: &[u64]) -> Vec<Gpu> {
    let card = |(index, vram_mib): (u32, &u64)| Gpu {
        index,
        uuid: format!("fake-{index}"),
        name: "fake card".to_owned(),
        vram_mib: *vram_mib,
        ..Gpu::default()
    };
    (0..).zip(sizes_mib).map(card).collect()
}
