//! The state of the stand-in in files: the library reads them at every call, a test rewrites them.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tempfile::TempDir;

const LIBRARY: &str = "libnvidia-ml.so.1";
const CUDA: &str = "libcuda.so.1";
const CARDS: &str = "cards.json";
const CLAIMS: &str = "claims";

/// The GPUs of a machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct FakeGpus {
    /// Return code of `nvmlInit`, an `nvmlReturn_t`.
    pub init: u32,
    /// The driver's version.
    pub driver: String,
    /// CUDA's version, e.g. 12040.
    pub cuda: i32,
    /// The GPUs, by index.
    pub cards: Vec<FakeGpu>,
}

impl Default for FakeGpus {
    fn default() -> Self {
        Self { init: 0, driver: "570.86.10".to_owned(), cuda: 12_080, cards: Vec::new() }
    }
}

/// A GPU.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct FakeGpu {
    /// Model name.
    pub name: String,
    /// UUID.
    pub uuid: String,
    /// Total memory.
    pub total_mib: u64,
    /// Memory in use in addition to the claims: a foreign process, or memory that is never released.
    pub foreign_mib: u64,
    /// Temperature in degrees Celsius.
    pub temperature_c: u32,
    /// Temperature from which it slows itself down.
    pub slowdown_c: u32,
    /// Utilization in percent.
    pub utilisation_percent: u32,
    /// Power in watts.
    pub power_w: u32,
    /// Compute capability, e.g. (8, 9).
    pub compute_capability: (i32, i32),
    /// Uncorrected ECC errors since the driver was loaded; `None` for a GPU without ECC.
    pub ecc_uncorrected: Option<u64>,
    /// Whether it is split into MIG instances.
    pub mig: bool,
    /// Return code of every call about it, an `nvmlReturn_t`.
    pub answer: u32,
    /// Return code of CUDA for a process that uses it, a `CUresult`.
    pub cuda: i32,
    /// Whether memory stays in use after its process has ended.
    pub keeps_dead: bool,
    /// Whether it reports no processes, as in a container.
    pub hides_processes: bool,
    /// The latest critical Xid, and their number.
    pub xid: (u64, u64),
}

impl Default for FakeGpu {
    fn default() -> Self {
        Self {
            name: "Stand-in 24".to_owned(),
            uuid: String::new(),
            total_mib: 24_576,
            foreign_mib: 0,
            temperature_c: 40,
            slowdown_c: 90,
            utilisation_percent: 0,
            power_w: 60,
            compute_capability: (8, 9),
            ecc_uncorrected: Some(0),
            mig: false,
            answer: 0,
            cuda: 0,
            keeps_dead: false,
            hides_processes: false,
            xid: (0, 0),
        }
    }
}

impl FakeGpu {
    /// A GPU of this size.
    #[must_use]
    pub fn of_mib(total_mib: u64) -> Self {
        Self { name: format!("Stand-in {}", total_mib / 1024), total_mib, ..Self::default() }
    }
}

/// A folder with the stand-in and its GPUs, until it is dropped.
pub struct StandIn {
    dir: TempDir,
}

impl StandIn {
    /// A stand-in with these GPUs, each with its own UUID.
    ///
    /// # Errors
    /// If the folder cannot be created.
    ///
    /// # Panics
    /// If the library is not beside the running test, where Cargo puts it.
    pub fn new(cards: impl IntoIterator<Item = FakeGpu>) -> io::Result<Self> {
        let dir = tempfile::tempdir()?;
        let test = std::env::current_exe()?;
        let built = test.ancestors().skip(1).map(|dir| dir.join("libstokehold_nvml.so")).find(|path| path.exists());
        let Some(built) = built else { panic!("libstokehold_nvml.so lies nowhere above {}", test.display()) };
        // A copy: the loader treats two names of one file as one library, which has one folder.
        for name in [LIBRARY, CUDA] {
            fs::copy(&built, dir.path().join(name))?;
        }
        let claims = dir.path().join(CLAIMS);
        fs::create_dir(&claims)?;
        // Processes that use the GPUs may run as another user.
        fs::set_permissions(&claims, fs::Permissions::from_mode(0o777))?;
        let this = Self { dir };
        let named = |(index, card)| FakeGpu { uuid: format!("GPU-stand-in-{index}"), ..card };
        this.write(&FakeGpus { cards: cards.into_iter().enumerate().map(named).collect(), ..FakeGpus::default() })?;
        Ok(this)
    }

    /// The value for the worker's `LD_LIBRARY_PATH`.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Path of the library.
    #[must_use]
    pub fn library(&self) -> PathBuf {
        self.dir.path().join(LIBRARY)
    }

    /// Folder in which processes record the memory that they hold.
    #[must_use]
    pub fn claims(&self) -> PathBuf {
        self.dir.path().join(CLAIMS)
    }

    /// Changes its state from now on.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn change(&self, change: impl FnOnce(&mut FakeGpus)) -> io::Result<()> {
        let mut cards = read(self.path())?;
        change(&mut cards);
        self.write(&cards)
    }

    /// Records that a process holds memory.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn claim(&self, pid: u32, card: usize, mib: u64) -> io::Result<()> {
        replace(&self.claims().join(format!("{pid}.{card}")), mib.to_string().as_bytes())
    }

    /// Memory of a GPU that live processes claim, which may exceed the GPU's total.
    ///
    /// # Errors
    /// If the files cannot be read.
    pub fn claimed_mib(&self, card: usize) -> io::Result<u64> {
        let live = claims(self.path(), card).into_iter().filter(|claim| claim.is_alive);
        Ok(live.map(|claim| claim.mib).sum())
    }

    /// Memory in use on a GPU.
    ///
    /// # Errors
    /// If the files cannot be read.
    pub fn used_mib(&self, card: usize) -> io::Result<u64> {
        let cards = read(self.path())?;
        let claims = claims(self.path(), card);
        Ok(cards.cards.get(card).map_or(0, |card| used(card, &claims)))
    }

    fn write(&self, cards: &FakeGpus) -> io::Result<()> {
        replace(&self.path().join(CARDS), &serde_json::to_vec(cards)?)
    }
}

/// A process's memory on a card.
pub(crate) struct Claim {
    pub(crate) pid: u32,
    pub(crate) mib: u64,
    pub(crate) is_alive: bool,
}

pub(crate) fn read(dir: &Path) -> io::Result<FakeGpus> {
    Ok(serde_json::from_slice(&fs::read(dir.join(CARDS))?)?)
}

/// The claims on a GPU; a partly written one is ignored.
pub(crate) fn claims(dir: &Path, card: usize) -> Vec<Claim> {
    let entries = fs::read_dir(dir.join(CLAIMS)).into_iter().flatten().flatten();
    let claim = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let (pid, on) = name.split_once('.')?;
        let (pid, on): (u32, usize) = (pid.parse().ok()?, on.parse().ok()?);
        let mib = fs::read_to_string(entry.path()).ok()?.trim().parse().ok()?;
        (on == card).then(|| Claim { pid, mib, is_alive: is_alive(pid) })
    };
    entries.filter_map(claim).collect()
}

pub(crate) fn used(card: &FakeGpu, claims: &[Claim]) -> u64 {
    let held = claims.iter().filter(|claim| claim.is_alive || card.keeps_dead);
    (card.foreign_mib + held.map(|claim| claim.mib).sum::<u64>()).min(card.total_mib)
}

/// Whether a process is alive. A zombie holds no memory.
fn is_alive(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// Replaces a file atomically: readers see the old text or the new one.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, bytes)?;
    fs::rename(new, path)
}
