//! A Redis on a disk whose power can be cut.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use stokehold_tests::redis_server::free_port;

use crate::disk::Disk;

/// With `everysec` a rewrite begins a new file, and records it in the manifest, before the end of the previous file has
/// been fsynced. A power cut in between leaves a truncated file that is not the last one, which Redis 7.0 refuses.
const NOT_LAST: &str = "Fatal error: the truncated file is not the last file";

/// A running server, in a separate process group with its forks.
pub(crate) struct Server {
    child: Child,
    port: u16,
}

impl Server {
    /// Starts one on the content of the disk. Returns how often it needed the repair that docs/explanation/durability.md describes.
    pub(crate) fn start(disk: &mut Disk, fsync: &str) -> (Self, u64) {
        match Self::try_start(disk, fsync) {
            Ok(server) => (server, 0),
            Err(log) => {
                let broken = log.iter().find_map(|line| line.split("Truncating the AOF ").nth(1)?.split(' ').next());
                let named = broken.filter(|_| log.iter().any(|line| line.ends_with(NOT_LAST)));
                let broken = named.unwrap_or_else(|| panic!("Redis does not come up again:\n{}", log.join("\n")));
                disk.end_manifest_after(broken);
                let again = Self::try_start(disk, fsync);
                let server = again.unwrap_or_else(|log| panic!("not even after the repair:\n{}", log.join("\n")));
                (server, 1)
            }
        }
    }

    fn try_start(disk: &mut Disk, fsync: &str) -> Result<Self, Vec<String>> {
        let binary = std::env::var("STOKE_TEST_REDIS").unwrap_or_else(|_| "redis-server".to_owned());
        let port = free_port();
        let mut command = Command::new(&binary);
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir"]).arg(disk.data());
        command.args(["--save", "", "--appendonly", "yes", "--appendfsync", fsync]);
        command.args(["--maxmemory", "1gb", "--maxmemory-policy", "noeviction"]);
        command.stdout(Stdio::piped()).process_group(0);
        disk.arm(&mut command);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{binary} does not start: {error}"));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut log = Vec::new();
        let up = lines.any(|line| {
            log.push(line);
            log.last().is_some_and(|line| line.contains("Ready to accept connections"))
        });
        if !up {
            let _ = child.wait();
            return Err(log);
        }
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Self { child, port })
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// Kills it and its forks at once: none of them writes another byte.
    pub(crate) fn kill(&mut self) {
        let _ = killpg(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
