//! A bare machine: a Debian that boots its own systemd, in separate namespaces, on this machine's network.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use stokehold_tests::process;

const BOOT_LIMIT: Duration = Duration::from_secs(120);
/// Timeout of a block of commands; the longest one installs packages.
const BLOCK_LIMIT: &str = "600";

/// The user that enters commands.
const USER: &str = "ada";

/// A running machine. Dropping it cuts its power.
pub(crate) struct Machine {
    nspawn: Child,
    /// Its first process.
    leader: u32,
    root: PathBuf,
}

/// Creates the machine's disk from an unpacked distribution, with a user that may use sudo.
pub(crate) fn furnish(bare: &Path, root: &Path, hosts: &str, authority: &str) {
    run("cp", &["-a", text(bare), text(root)]);
    run("chroot", &[text(root), "useradd", "--create-home", "--shell", "/bin/bash", USER]);
    let write = |path: &str, text: &str| fs::write(root.join(path), text).unwrap();
    write("etc/sudoers.d/ada", "ada ALL=(ALL) NOPASSWD:ALL\n");
    write("etc/hosts", hosts);
    write("etc/hostname", "machine\n");
    write("usr/local/share/ca-certificates/test-authority.crt", authority);
    run("chroot", &[text(root), "update-ca-certificates"]);
}

/// The home of the user.
pub(crate) fn home(root: &Path) -> PathBuf {
    root.join("home").join(USER)
}

impl Machine {
    /// Boots it, and waits until everything has started.
    pub(crate) fn boot(root: &Path) -> Self {
        let log = fs::File::options().create(true).append(true).open(root.with_extension("log")).unwrap();
        let mut nspawn = Command::new("systemd-nspawn");
        nspawn
            .args(["--boot", "--register=no", "--keep-unit", "--link-journal=no", "--directory"])
            .arg(root)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .process_group(0);
        let nspawn = nspawn.spawn().unwrap();
        let deadline = Instant::now() + BOOT_LIMIT;
        let leader = loop {
            let below = process::descendants(nspawn.id());
            if let Some((leader, _)) =
                below.iter().find(|(_, command)| command.contains("systemd") && !command.contains("nspawn"))
            {
                break *leader;
            }
            assert!(
                Instant::now() < deadline,
                "it does not boot: {}",
                fs::read_to_string(root.with_extension("log")).unwrap()
            );
            // A boot cannot be awaited from here.
            std::thread::sleep(Duration::from_millis(50));
        };
        let machine = Self { nspawn, leader, root: root.to_owned() };
        loop {
            let state = machine.enter(&["systemctl", "is-system-running", "--wait"]);
            match String::from_utf8_lossy(&state.stdout).trim() {
                "running" => return machine,
                "degraded" => panic!("{}", String::from_utf8_lossy(&machine.enter(&["systemctl", "--failed"]).stdout)),
                _ => assert!(Instant::now() < deadline, "it does not start: {}", machine.said()),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Runs commands as the user, in the shell with the variables and the folder of the previous commands.
    ///
    /// # Panics
    /// If a command fails. The message contains the output.
    pub(crate) fn types(&self, commands: &str) -> String {
        let script =
            format!("cd; if [ -e .shell ]; then . ./.shell; fi; set -eu\n{commands}\nexport -p >\"$HOME/.shell\"\n");
        let output = self.enter(&[
            "runuser",
            "--login",
            USER,
            "--command",
            &format!("exec timeout {BLOCK_LIMIT} bash -c {} 2>&1", quoted(&script)),
        ]);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{commands}\n{printed}\n{}", String::from_utf8_lossy(&output.stderr));
        printed
    }

    /// Runs a program there as root.
    fn enter(&self, arguments: &[&str]) -> Output {
        let leader = self.leader.to_string();
        Command::new("nsenter")
            .args(["--target", &leader, "--mount", "--uts", "--ipc", "--pid", "--root", "env", "-i"])
            .arg("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// The output of the boot.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(self.root.with_extension("log")).unwrap_or_default()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The end of the first process ends all others there first; with nspawn alone it does not.
        if process::alive(self.leader) {
            process::signal(self.leader, Signal::SIGKILL);
        }
        let _ = self.nspawn.kill();
        let _ = self.nspawn.wait();
        while process::alive(self.leader) {
            std::thread::yield_now();
        }
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Runs a program to its end.
///
/// # Panics
/// If it fails. The message contains its error output.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
