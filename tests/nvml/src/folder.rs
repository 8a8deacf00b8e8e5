//! What the stand-in says, as files: the library reads them at every call, a test rewrites them.

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

/// A machine's cards.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct FakeGpus {
    /// What `nvmlInit` answers: a code of `nvmlReturn_t`.
    pub init: u32,
    /// The driver's version.
    pub driver: String,
    /// CUDA's, as 12040.
    pub cuda: i32,
    /// The cards, by index.
    pub cards: Vec<FakeGpu>,
}

impl Default for FakeGpus {
    fn default() -> Self {
        Self { init: 0, driver: "570.86.10".to_owned(), cuda: 12_080, cards: Vec::new() }
    }
}

/// A card.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct FakeGpu {
    /// Model name.
    pub name: String,
    /// UUID.
    pub uuid: String,
    /// All of its memory.
    pub total_mib: u64,
    /// What is in use beside the claims: a foreign process, or memory that nobody gives back.
    pub foreign_mib: u64,
    /// Degrees.
    pub temperature_c: u32,
    /// From where on it slows itself down.
    pub slowdown_c: u32,
    /// Percent.
    pub utilisation_percent: u32,
    /// Watts.
    pub power_w: u32,
    /// As 8, 9.
    pub compute_capability: (i32, i32),
    /// Uncorrected ECC errors since the driver was loaded; a card without ECC has none to tell.
    pub ecc_uncorrected: Option<u64>,
    /// It is cut into MIG instances.
    pub mig: bool,
    /// What every call about it answers: a code of `nvmlReturn_t`.
    pub answer: u32,
    /// What CUDA answers to a process that wants to use it: a code of `CUresult`.
    pub cuda: i32,
    /// Memory stays in use when the process that held it is gone.
    pub keeps_dead: bool,
    /// It does not tell of processes, as in a container.
    pub hides_processes: bool,
    /// The latest critical Xid, and how many there were.
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
    /// A card of this size.
    #[must_use]
    pub fn of_mib(total_mib: u64) -> Self {
        Self { name: format!("Stand-in {}", total_mib / 1024), total_mib, ..Self::default() }
    }
}

/// A folder with the stand-in and its cards, until dropped.
pub struct StandIn {
    dir: TempDir,
}

impl StandIn {
    /// These cards, each with a UUID of its own.
    ///
    /// # Errors
    /// When the folder cannot be made.
    ///
    /// # Panics
    /// When the library does not lie beside the running test, where Cargo puts it.
    pub fn new(cards: impl IntoIterator<Item = FakeGpu>) -> io::Result<Self> {
        let dir = tempfile::tempdir()?;
        let test = std::env::current_exe()?;
        let built = test.ancestors().skip(1).map(|dir| dir.join("libstokehold_nvml.so")).find(|path| path.exists());
        let Some(built) = built else { panic!("libstokehold_nvml.so lies nowhere above {}", test.display()) };
        // A copy: the loader takes two names of one file for one library, which has one folder.
        for name in [LIBRARY, CUDA] {
            fs::copy(&built, dir.path().join(name))?;
        }
        let claims = dir.path().join(CLAIMS);
        fs::create_dir(&claims)?;
        // Whoever uses the cards may have a user of its own.
        fs::set_permissions(&claims, fs::Permissions::from_mode(0o777))?;
        let this = Self { dir };
        let named = |(index, card)| FakeGpu { uuid: format!("GPU-stand-in-{index}"), ..card };
        this.write(&FakeGpus { cards: cards.into_iter().enumerate().map(named).collect(), ..FakeGpus::default() })?;
        Ok(this)
    }

    /// What goes into the worker's `LD_LIBRARY_PATH`.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The library itself.
    #[must_use]
    pub fn library(&self) -> PathBuf {
        self.dir.path().join(LIBRARY)
    }

    /// Where processes say what they hold.
    #[must_use]
    pub fn claims(&self) -> PathBuf {
        self.dir.path().join(CLAIMS)
    }

    /// Changes what it says from now on.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn change(&self, change: impl FnOnce(&mut FakeGpus)) -> io::Result<()> {
        let mut cards = read(self.path())?;
        change(&mut cards);
        self.write(&cards)
    }

    /// A process claims memory.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn claim(&self, pid: u32, card: usize, mib: u64) -> io::Result<()> {
        replace(&self.claims().join(format!("{pid}.{card}")), mib.to_string().as_bytes())
    }

    /// What live processes claim of a card, also beyond what it has.
    ///
    /// # Errors
    /// When the files cannot be read.
    pub fn claimed_mib(&self, card: usize) -> io::Result<u64> {
        let live = claims(self.path(), card).into_iter().filter(|claim| claim.is_alive);
        Ok(live.map(|claim| claim.mib).sum())
    }

    /// What is in use on a card.
    ///
    /// # Errors
    /// When the files cannot be read.
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

/// The claims on a card; one that is half written is none yet.
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

/// A zombie holds nothing any more.
fn is_alive(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// Whoever reads sees the old text or the new one.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, bytes)?;
    fs::rename(new, path)
}
