//! State of the host (disk, memory, network), for display only: no decision depends on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::statvfs::statvfs;
use parking_lot::Mutex;
use stokehold_protocol::gateway::HostStatus;

use crate::environment::Environments;
use crate::weights::Weights;

const READ_INTERVAL: Duration = Duration::from_secs(10);

/// The last reading of the host. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Host(Arc<Mutex<Known>>);

struct Known {
    data_dir: PathBuf,
    environments: Environments,
    weights: Weights,
    status: HostStatus,
    /// Start of the last reading.
    read_at: Option<Instant>,
    is_reading: bool,
}

impl Host {
    pub(crate) fn new(data_dir: &Path, environments: Environments, weights: Weights) -> Self {
        let status = HostStatus::default();
        let data_dir = data_dir.to_owned();
        Self(Arc::new(Mutex::new(Known { data_dir, environments, weights, status, read_at: None, is_reading: false })))
    }

    /// The last reading. Starts a new one on another thread if it is outdated, because a disk may hang.
    pub(crate) fn status(&self) -> HostStatus {
        let mut known = self.0.lock();
        if !known.is_reading && known.read_at.is_none_or(|read_at| read_at.elapsed() >= READ_INTERVAL) {
            known.is_reading = true;
            known.read_at = Some(Instant::now());
            let (this, data_dir) = (self.clone(), known.data_dir.clone());
            let (environments, weights) = (known.environments.clone(), known.weights.clone());
            tokio::task::spawn_blocking(move || {
                let status = read_status(&data_dir, &environments, &weights);
                let mut known = this.0.lock();
                known.status = status;
                known.is_reading = false;
            });
        }
        known.status.clone()
    }
}

#[expect(clippy::useless_conversion, reason = "the fields' types differ between systems")]
fn read_status(data_dir: &Path, environments: &Environments, weights: &Weights) -> HostStatus {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let (memory, network) = (read("/proc/meminfo"), read("/proc/net/dev"));
    let (received_bytes, sent_bytes) = network_bytes(&network);
    let disk = statvfs(data_dir).ok();
    let disk_bytes = |blocks: Option<u64>| {
        blocks.unwrap_or(0).saturating_mul(disk.as_ref().map_or(0, |disk| u64::from(disk.fragment_size())))
    };
    HostStatus {
        disk_free_bytes: disk_bytes(disk.as_ref().map(|disk| u64::from(disk.blocks_available()))),
        disk_total_bytes: disk_bytes(disk.as_ref().map(|disk| u64::from(disk.blocks()))),
        environments_bytes: environments.bytes(),
        weights_bytes: weights.bytes(),
        memory_free_bytes: memory_bytes(&memory, "MemAvailable"),
        memory_total_bytes: memory_bytes(&memory, "MemTotal"),
        received_bytes,
        sent_bytes,
    }
}

/// Bytes of one line of /proc/meminfo.
fn memory_bytes(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib: u64 = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0);
    kib * 1024
}

/// Bytes received and sent by all interfaces except loopback, from /proc/net/dev.
fn network_bytes(text: &str) -> (u64, u64) {
    let interface = |line: &str| {
        let (name, numbers) = line.split_once(':')?;
        let numbers: Vec<u64> = numbers.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        (name.trim() != "lo").then_some((*numbers.first()?, *numbers.get(8)?))
    };
    text.lines().filter_map(interface).fold((0, 0), |(received, sent), (r, s)| (received + r, sent + s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_network_are_read() {
        let memory = "MemTotal:       24576 kB\nMemFree:  100 kB\nMemAvailable:    2048 kB\n";
        assert_eq!(
            (memory_bytes(memory, "MemTotal"), memory_bytes(memory, "MemAvailable")),
            (24_576 << 10, 2_048 << 10)
        );
        assert_eq!(memory_bytes("", "MemTotal"), 0);
        let network = "Inter-|   Receive                            |  Transmit\n face |bytes    packets errs drop\n\
                       \x20   lo: 900 1 0 0 0 0 0 0 900 1 0 0 0 0 0 0\n  eth0: 100 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\n\
                       \x20 eth1: 5 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n";
        assert_eq!(network_bytes(network), (105, 27));
    }
}
