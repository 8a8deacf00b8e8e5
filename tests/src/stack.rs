//! The whole stack, as a user starts it: `stoke dev`, its Redis, its store, its worker.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::temp_links::TempLinks;
use crate::{process, topology};

/// Options of the start.
#[derive(Debug, Clone, Default)]
pub struct StackOptions {
    /// Arguments of `stoke dev` in addition to the data directory and the address.
    pub args: Vec<String>,
    /// Environment variables.
    pub env: Vec<(String, String)>,
}

/// A running `stoke dev`. Dropping it kills it and everything that it started.
pub struct Stack {
    child: Child,
    data: PathBuf,
    log: Arc<Log>,
    /// URL of the API.
    pub url: String,
    /// A token with every scope.
    pub token: String,
    _links: TempLinks,
}

/// Timeout of [`Stack::line`].
const LINE_TIMEOUT: Duration = Duration::from_secs(30);

/// The output of `stoke dev` and its children so far, by line.
#[derive(Default)]
struct Log {
    lines: Mutex<Vec<String>>,
    grown: Condvar,
}

impl Log {
    fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        self.lines.lock().expect("no panic happens under this lock")
    }

    fn push(&self, line: String) {
        self.lines().push(line);
        self.grown.notify_all();
    }

    fn wait_for<T>(&self, mut find: impl FnMut(&str) -> Option<T>) -> Option<T> {
        let (mut found, mut read) = (None, 0);
        let is_missing = |lines: &mut Vec<String>| {
            found = lines[read..].iter().find_map(|line| find(line));
            read = lines.len();
            found.is_none()
        };
        let _ = self.grown.wait_timeout_while(self.lines(), LINE_TIMEOUT, is_missing);
        found
    }
}

/// The built `stoke`: `STOKE_BIN`, else the one beside the test's own binary.
///
/// # Panics
/// If it has not been built.
#[must_use]
pub fn stoke_binary() -> PathBuf {
    if let Some(path) = std::env::var_os("STOKE_BIN") {
        return path.into();
    }
    let test = std::env::current_exe().expect("a test knows its own path");
    let binary = test.ancestors().nth(2).map(|dir| dir.join("stoke")).filter(|path| path.exists());
    binary.unwrap_or_else(|| panic!("no `stoke` beside {}: run `cargo build -p stokehold-cli` first", test.display()))
}

impl Stack {
    /// Starts `stoke dev` with its data under `data` and waits until it is ready. The same directory again brings the
    /// same stack back.
    ///
    /// # Panics
    /// If it does not come up. The message contains its output.
    #[must_use]
    pub fn start(data: &Path, options: &StackOptions) -> Self {
        Self::start_as(&[], data, options)
    }

    /// Starts the stack as another user: `prefix` is a program with its arguments that switches to a user and executes
    /// the following program.
    ///
    /// # Panics
    /// If it does not come up. The message contains its output.
    #[must_use]
    pub fn start_as(prefix: &[String], data: &Path, options: &StackOptions) -> Self {
        let credentials = data.join("credentials.json");
        let mut command = match prefix {
            [] => Command::new(stoke_binary()),
            [program, arguments @ ..] => {
                let mut command = Command::new(program);
                command.args(arguments).arg(stoke_binary());
                command
            }
        };
        if let Some(redis) = topology::redis(data).filter(|_| !options.args.iter().any(|arg| arg == "--redis")) {
            command
                .env("STOKE_REDIS_URL", redis.url)
                .env("STOKE_REDIS_PREFIX", redis.prefix)
                .env("STOKE_REDIS_SHARDS", redis.shards.to_string());
        }
        let mut child = command
            .args(["dev", "--data"])
            .arg(data)
            .args(["--listen", "127.0.0.1:0"])
            .args(&options.args)
            .env("STOKE_CREDENTIALS", &credentials)
            // Tests and handlers share files.
            .env("STOKE_SANDBOX", "L0")
            .envs(options.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("stoke starts");
        let log = Arc::new(Log::default());
        let (sender, ready) = std::sync::mpsc::channel();
        let streams: [Box<dyn std::io::Read + Send>; 2] =
            [Box::new(child.stdout.take().expect("piped")), Box::new(child.stderr.take().expect("piped"))];
        for stream in streams {
            let (log, sender) = (Arc::clone(&log), sender.clone());
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    if line.trim() == "ready" {
                        let _ = sender.send(());
                    }
                    log.push(line);
                }
            });
        }
        drop(sender);
        if ready.recv_timeout(Duration::from_secs(120)).is_err() {
            let _ = child.kill();
            panic!("stoke dev did not come up:\n{}", log.lines().join("\n"));
        }
        let credentials = fs::read_to_string(&credentials).expect("stoke dev has written credentials");
        let credentials: Value = serde_json::from_str(&credentials).expect("they are JSON");
        let text =
            |name: &str| credentials[name].as_str().unwrap_or_else(|| panic!("credentials hold {name}")).to_owned();
        let _links = TempLinks(data.to_owned());
        Self { child, data: data.to_owned(), log, url: text("url"), token: text("token"), _links }
    }

    /// The command `stoke` with these arguments against this stack, not yet started.
    #[must_use]
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(stoke_binary());
        command
            .args(args)
            .env("STOKE_URL", &self.url)
            .env("STOKE_TOKEN", &self.token)
            .env("STOKE_CREDENTIALS", self.data.join("credentials.json"))
            .stdin(Stdio::null());
        command
    }

    /// Runs `stoke` with these arguments against this stack.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn stoke(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("stoke starts")
    }

    /// Runs `stoke` to success. Returns its standard output as text.
    ///
    /// # Panics
    /// If it fails. The message contains its error output.
    #[must_use]
    pub fn stoke_ok(&self, args: &[&str]) -> String {
        let output = self.stoke(args);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "stoke {args:?}: {}\n{}\n{}",
            output.status,
            text(&output.stderr),
            self.log_tail()
        );
        text(&output.stdout)
    }

    /// The last lines that `stoke dev` and its children printed.
    ///
    /// # Panics
    /// Never: the lock is only held to push a line.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let lines = self.log.lines();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    /// All lines of that output.
    ///
    /// # Panics
    /// Never: the lock is only held to push a line.
    #[must_use]
    pub fn log(&self) -> String {
        self.log.lines().join("\n")
    }

    /// Waits for a line of the log for which `find` returns a value, and returns that value. Two threads read the two
    /// output streams, so a line of standard error may arrive after the `ready` of standard output that `stoke dev`
    /// printed later.
    ///
    /// # Panics
    /// If there is none within [`LINE_TIMEOUT`]. The message contains the last lines.
    #[must_use]
    pub fn line<T>(&self, what: &str, find: impl FnMut(&str) -> Option<T>) -> T {
        self.log.wait_for(find).unwrap_or_else(|| panic!("{what} was not printed:\n{}", self.log_tail()))
    }

    /// URL of its fake Vast.ai.
    ///
    /// # Panics
    /// If it was started without `--fake-vast`.
    #[must_use]
    pub fn fake_vast(&self) -> String {
        self.line("the address of the fake Vast.ai", |line| {
            let (address, _) = line.strip_prefix("fake Vast.ai")?.trim().split_once(',')?;
            Some(address.to_owned())
        })
    }

    /// The process id of `stoke dev`.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ids of the processes of this stack whose command line contains `part`.
    #[must_use]
    pub fn children(&self, part: &str) -> Vec<u32> {
        let descendants = process::descendants(self.pid());
        descendants.into_iter().filter(|(_, command)| command.contains(part)).map(|(pid, _)| pid).collect()
    }

    /// Ids of its workers.
    #[must_use]
    pub fn workers(&self) -> Vec<u32> {
        self.children("stoke worker")
    }

    /// Ids of the runners of its workers.
    #[must_use]
    pub fn runners(&self) -> Vec<u32> {
        self.children("stokehold.runner serve")
    }

    /// kill -9 of all processes at once.
    pub fn kill_everything(mut self) {
        self.kill();
    }

    /// Starts another worker beside the stack's own, with these environment variables.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start_worker(&self, name: &str, env: &[(&str, &str)]) -> Worker {
        let token = self.stoke_ok(&["token", "create", "--kind", "join", "--name", name, "--json"]);
        let token: Value = serde_json::from_str(&token).expect("--json prints JSON");
        let log = self.data.join(format!("{name}.log"));
        let child = Command::new(stoke_binary())
            .args(["worker", "--name", name])
            .env("STOKE_GATEWAY_URL", &self.url)
            .env("STOKE_JOIN_TOKEN", token["token"].as_str().expect("a token was made"))
            .env("STOKE_DATA_DIR", self.data.join(name))
            .env("STOKE_SANDBOX", "L0")
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).expect("the data directory can be written"))
            .spawn()
            .expect("stoke worker starts");
        Worker { child, log }
    }

    /// Starts another replica of the API beside the stack's own, on the same Redis and S3, and waits until it serves.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    pub fn start_replica(&self, env: &[(&str, &str)]) -> Replica {
        let read = |file: &str| -> Value {
            let text = fs::read_to_string(self.data.join(file)).expect("stoke dev has written it");
            serde_json::from_str(&text).expect("it is JSON")
        };
        let (secrets, stack) = (read("secrets.json"), read("stack.json"));
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let mut command = Command::new(stoke_binary());
        if let Some(redis) = topology::redis(&self.data) {
            command.env("STOKE_REDIS_SHARDS", redis.shards.to_string());
        }
        let mut child = command
            .args(["api", "--listen", "127.0.0.1:0"])
            .env("STOKE_PUBLIC_URL", &self.url)
            .env("STOKE_TOKEN_KEY", text(&secrets["token_key"]))
            .env("STOKE_REDIS_URL", text(&stack["redis_url"]))
            .env("STOKE_REDIS_PREFIX", text(&stack["redis_prefix"]))
            .env("STOKE_S3_ENDPOINT_URL", format!("http://127.0.0.1:{}", stack["store_port"]))
            .env("STOKE_S3_ACCESS_KEY_ID", text(&secrets["s3_access_key_id"]))
            .env("STOKE_S3_SECRET_ACCESS_KEY", text(&secrets["s3_secret_access_key"]))
            .env("STOKE_S3_PATH_STYLE", "true")
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("stoke api starts");
        let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let mut said = Vec::new();
        let url = loop {
            let Ok(line) = receiver.recv_timeout(Duration::from_secs(60)) else {
                let _ = child.kill();
                panic!("a replica did not come up:\n{}", said.join("\n"));
            };
            let address = line.split("127.0.0.1:").nth(1).filter(|_| line.contains("the API is listening"));
            if let Some(rest) = address {
                let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
                break format!("http://127.0.0.1:{port}");
            }
            said.push(line);
        };
        Replica { child, url }
    }

    fn kill(&mut self) {
        let children = process::descendants(self.pid());
        let _ = self.child.kill();
        for (pid, _) in &children {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
        }
        let _ = self.child.wait();
        // A server that still holds its socket would prevent the next start on the same data directory.
        while children.iter().any(|(pid, _)| process::alive(*pid)) {
            std::thread::yield_now();
        }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Another replica of the API. Dropping it sends SIGKILL.
pub struct Replica {
    child: Child,
    /// Its URL.
    pub url: String,
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A worker of the test. Dropping it sends SIGKILL.
pub struct Worker {
    child: Child,
    log: PathBuf,
}

impl Worker {
    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its log so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Ids of its runners.
    #[must_use]
    pub fn runners(&self) -> Vec<u32> {
        let descendants = process::descendants(self.pid()).into_iter();
        descendants.filter(|(_, command)| command.contains("stokehold.runner serve")).map(|(pid, _)| pid).collect()
    }

    /// Sends a signal to it and its runners.
    pub fn signal_all(&self, what: Signal) {
        for (pid, _) in process::descendants(self.pid()) {
            process::signal(pid, what);
        }
        process::signal(self.pid(), what);
    }

    /// Waits for its exit.
    ///
    /// # Panics
    /// If it cannot be waited for.
    #[must_use]
    pub fn wait(mut self) -> std::process::ExitStatus {
        self.child.wait().expect("a child can be waited for")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
