//! Containers as process groups of this machine, so that workers of `stoke dev` come and go as on rented machines.
//!
//! Each container has a home folder, which outlives a stop and is deleted with the instance. Of the environment it
//! inherits only `PATH` and `LANG`. A container that is taken away gets no signal that it could handle. Every container
//! ends with this process, however that ends: a watchdog holds a pipe of this process and kills when it closes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, PipeReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use stokehold_vast::env;

use crate::instances::{Runtype, Started};
use crate::server::Machines;

/// Size of the kept output; at most twice as much is kept.
const LOG_BYTES: u64 = 1 << 20;
/// A killed process may still write for a moment into the folder that is being deleted.
const REMOVE_TRIES: u32 = 20;
const REMOVE_AGAIN_AFTER: Duration = Duration::from_millis(25);
/// Kills a process group once its input ends.
const WATCHDOG: &str = "read -r _; kill -s KILL -- \"-$1\"";

/// Additional environment variables of a container, which describe its GPUs.
pub type Hardware = Box<dyn Fn(&Started) -> Vec<(String, String)> + Send + Sync>;

/// Containers as process groups of this machine.
pub struct Processes {
    shared: Arc<Shared>,
    hardware: Hardware,
}

struct Shared {
    root: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: BTreeMap<u64, Running>,
    /// Containers that exited by themselves and were not reported yet.
    ended: Vec<u64>,
}

struct Running {
    /// Reaped only by [`Running::end`], so that its process ID is not reused before.
    child: Child,
    pid: Pid,
    starts: u32,
    /// Kills the container if this process ends; stopped with the container.
    watchdog: Child,
}

impl Processes {
    /// Creates a runner. Each instance has a folder below `root`, named by its ID.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn new(root: &Path, hardware: Hardware) -> io::Result<Self> {
        fs::create_dir_all(root)?;
        Ok(Self { shared: Arc::new(Shared { root: fs::canonicalize(root)?, state: Mutex::default() }), hardware })
    }

    /// Home folder of an instance.
    #[must_use]
    pub fn home(&self, instance: u64) -> PathBuf {
        self.shared.folder(instance).join("home")
    }

    /// Process IDs of running containers.
    #[must_use]
    pub fn pids(&self) -> Vec<i32> {
        self.shared.lock().running.values().map(|one| one.pid.as_raw()).collect()
    }

    fn command(&self, started: &Started, home: &Path) -> Option<Command> {
        let (program, args) = match started.runtype {
            Runtype::Args => {
                let words = started.onstart.iter().chain(&started.args);
                let mut words = words.map(OsString::from);
                (words.next()?, words.collect::<Vec<_>>())
            }
            Runtype::Shell => {
                let script = started.onstart.clone().unwrap_or_default();
                (OsString::from("sh"), vec!["-c".into(), script.into()])
            }
        };
        let mut command = Command::new(program);
        command.args(args).current_dir(home).process_group(0).env_clear().stdin(Stdio::null());
        for name in ["PATH", "LANG"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        command.envs(started.env.iter().filter(|(name, _)| !name.starts_with('-')).map(|(name, value)| (name, value)));
        command.env("HOME", home).env(env::CONTAINER_ID, started.instance.to_string());
        command.env(env::CONTAINER_API_KEY, &started.key).env("PUBLIC_IPADDR", &started.public_ip);
        command.env("VAST_CONTAINERLABEL", format!("C.{}", started.instance));
        command.envs((self.hardware)(started));
        Some(command)
    }

    fn spawn(&self, started: &Started) -> io::Result<()> {
        let instance = started.instance;
        let home = self.home(instance);
        fs::create_dir_all(&home)?;
        let mut command = self.command(started, &home).ok_or_else(|| io::Error::other("nothing to run is named"))?;
        let (reader, writer) = io::pipe()?;
        command.stdout(writer.try_clone()?).stderr(writer);
        let mut child = command.spawn()?;
        // Its ends of the pipe are closed here, so that the log ends with the container.
        drop(command);
        let pid = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
        let watchdog = match watch(pid) {
            Ok(watchdog) => watchdog,
            Err(error) => {
                take_away(pid);
                child.wait()?;
                return Err(error);
            }
        };
        let starts = started.starts;
        let replaced = self.shared.lock().running.insert(instance, Running { child, pid, starts, watchdog });
        if let Some(before) = replaced {
            before.end();
        }
        let log = self.shared.log(instance);
        thread::spawn(move || keep(reader, &log));
        // A machine that one logs in to stays up when its script is through.
        if started.runtype == Runtype::Args {
            let shared = Arc::clone(&self.shared);
            thread::spawn(move || shared.notice(pid, instance, starts));
        }
        Ok(())
    }
}

impl Machines for Processes {
    fn start(&self, started: &Started) {
        if let Err(error) = self.spawn(started) {
            let line = format!("cannot start the container: {error}\n");
            tracing::warn!(instance.id = started.instance, %error, "cannot start a container");
            // Where even this cannot be written there is nothing to read.
            let _ = fs::write(self.shared.log(started.instance), line);
            self.shared.lock().ended.push(started.instance);
        }
    }

    fn halt(&self, instance: u64) {
        let mut state = self.shared.lock();
        if let Some(running) = state.running.remove(&instance) {
            running.end();
        }
    }

    fn destroy(&self, instance: u64) {
        self.halt(instance);
        let folder = self.shared.folder(instance);
        if !is_removed(&folder) {
            thread::spawn(move || {
                for _ in 0..REMOVE_TRIES {
                    thread::sleep(REMOVE_AGAIN_AFTER);
                    if is_removed(&folder) {
                        break;
                    }
                }
            });
        }
    }

    fn ended(&self) -> Vec<u64> {
        std::mem::take(&mut self.shared.lock().ended)
    }

    fn log(&self, instance: u64) -> Option<String> {
        let log = self.shared.log(instance);
        let read = |path: &Path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let older = read(&older(&log)).unwrap_or_default();
        read(&log).ok().map(|newer| older + &newer)
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        let running = std::mem::take(&mut self.shared.lock().running);
        running.into_values().for_each(Running::end);
    }
}

impl Running {
    fn end(mut self) {
        take_away(self.pid);
        let _ = self.child.wait();
        // Its group is gone: what it would kill might be another's by then.
        let _ = self.watchdog.kill();
        let _ = self.watchdog.wait();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn folder(&self, instance: u64) -> PathBuf {
        self.root.join(instance.to_string())
    }

    fn log(&self, instance: u64) -> PathBuf {
        self.folder(instance).join("container.log")
    }

    /// Waits until a container exits by itself.
    fn notice(&self, pid: Pid, instance: u64, starts: u32) {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        while waitid(Id::Pid(pid), flags) == Err(nix::errno::Errno::EINTR) {}
        let mut state = self.lock();
        if state.running.get(&instance).is_some_and(|one| one.starts == starts) {
            if let Some(running) = state.running.remove(&instance) {
                running.end();
            }
            state.ended.push(instance);
        }
    }
}

fn is_removed(folder: &Path) -> bool {
    match fs::remove_dir_all(folder) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Kills a process, its group and all its descendants at once.
fn take_away(pid: Pid) {
    let below = descendants(pid.as_raw());
    let _ = killpg(pid, Signal::SIGKILL);
    for one in below {
        let _ = kill(Pid::from_raw(one), Signal::SIGKILL);
    }
}

/// All descendants of a process, including those in other groups.
fn descendants(of: i32) -> Vec<i32> {
    let numbers =
        fs::read_dir("/proc").into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let parents: Vec<(i32, i32)> = numbers.filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut found = vec![of];
    let mut at = 0;
    while let Some(above) = found.get(at).copied() {
        found.extend(parents.iter().filter(|(_, parent)| *parent == above).map(|(pid, _)| *pid));
        at += 1;
    }
    found.split_off(1)
}

fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may hold anything, come the state and the parent.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn watch(pid: Pid) -> io::Result<Child> {
    let mut command = Command::new("sh");
    command.args(["-c", WATCHDOG, "sh", &pid.to_string()]).env_clear().process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

fn older(log: &Path) -> PathBuf {
    log.with_extension("log.1")
}

/// Copies the output of a container to its log, which drops the oldest part.
fn keep(mut from: PipeReader, log: &Path) {
    let mut buffer = vec![0; 64 << 10];
    let mut file = File::options().append(true).create(true).open(log);
    let mut length = fs::metadata(log).map_or(0, |meta| meta.len());
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        if length >= LOG_BYTES {
            let _ = fs::rename(log, older(log));
            (file, length) = (File::create(log), 0);
        }
        if let Ok(file) = &mut file {
            // What cannot be written down is still taken, so that the container goes on.
            let _ = file.write_all(&buffer[..read]);
        }
        length += read as u64;
    }
}
