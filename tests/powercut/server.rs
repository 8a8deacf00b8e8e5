//! A Redis on a disk whose power can be cut.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use stokehold_tests::redis_server::free_port;

use crate::disk::Disk;

/// A running server, in a process group of its own with whatever it forks.
pub(crate) struct Server {
    child: Child,
    port: u16,
}

impl Server {
    pub(crate) fn start(disk: &mut Disk, fsync: &str) -> Self {
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
        assert!(up, "Redis does not come up again:\n{}", log.join("\n"));
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, port }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// Kills it and whatever it forked, all at once: none of them writes a byte more.
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
