//! `make test-worker-dist`: the archive of `make worker-dist` makes a worker of an older distribution, by the line that the documentation gives. The
//! distribution is one that debootstrap has unpacked; it gets mounts and processes of its own, which are gone with the test. Needs root.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test that prints figures"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use stokehold_tests::process;
use stokehold_tests::stack::{Stack, StackOptions};

const PATIENCE: Duration = Duration::from_secs(120);

/// In mount and process namespaces of its own, `$1` becomes the root and `$2` runs there. Not chroot: bubblewrap makes namespaces, and the kernel
/// lets nobody do that who has only changed his root.
const ENTER: &str = r#"set -eu
mount --bind "$1" "$1"
mount --rbind /dev "$1/dev"
mount --rbind /sys "$1/sys"
mount -t proc proc "$1/proc"
cd "$1"
mkdir -p .host
pivot_root . .host
umount -l /.host
exec /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root STOKE_JOIN_TOKEN="$STOKE_JOIN_TOKEN" /bin/sh -c "$2"
"#;

/// A machine: what runs on it ends with it.
struct Machine {
    init: Child,
    log: PathBuf,
}

impl Machine {
    fn start(root: &Path, line: &str, token: &str) -> Self {
        let log = root.with_extension("log");
        let file = fs::File::create(&log).unwrap();
        let init = Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER, "sh"])
            .arg(root)
            .arg(line)
            .env("STOKE_JOIN_TOKEN", token)
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Self { init, log }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let left = process::descendants(self.init.id());
        let _ = self.init.kill();
        let _ = self.init.wait();
        while left.iter().any(|(pid, _)| process::alive(*pid)) {
            std::thread::yield_now();
        }
    }
}

fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_bare_host_of_an_older_distribution_becomes_a_worker_by_one_line() {
    let older = PathBuf::from(
        std::env::var_os("STOKE_TEST_OLDER").expect("`make test-worker-dist` says where the distribution is"),
    );
    if !nix::unistd::Uid::effective().is_root() || !older.join("etc/os-release").exists() {
        eprintln!("SKIPPED: this needs root, and a distribution at {}", older.display());
        return;
    }
    let dist = PathBuf::from(
        std::env::var_os("STOKE_WORKER_DIST").expect("`make test-worker-dist` says where the archive is"),
    );
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("machine");
    let _ = output("cp", &["-a", older.to_str().unwrap(), root.to_str().unwrap()]);
    let args = ["--workers", "0"].map(str::to_owned).to_vec();
    let env = vec![("STOKE_WORKER_DIST".to_owned(), dist.to_str().unwrap().to_owned())];
    let stack = Stack::start(&dir.path().join("stack"), &StackOptions { args, env });
    let echo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk/examples/echo");
    let _ = stack.stoke_ok(&["deploy", echo.to_str().unwrap()]);
    let token: Value =
        serde_json::from_str(&stack.stoke_ok(&["token", "create", "--kind", "join", "--name", "older", "--json"]))
            .unwrap();
    let token = token["token"].as_str().unwrap();

    let begun = Instant::now();
    let line = format!("curl -fsSL {}/v1/worker/install.sh | sh", stack.url);
    let mut machine = Machine::start(&root, &line, token);
    let worker = loop {
        let workers: Value = serde_json::from_str(&stack.stoke_ok(&["worker", "list", "--json"])).unwrap();
        if let Some(worker) = workers["workers"].as_array().and_then(|workers| workers.first()) {
            break worker.clone();
        }
        let ended = machine.init.try_wait().unwrap();
        assert!(ended.is_none() && begun.elapsed() < PATIENCE, "no worker has joined ({ended:?}):\n{}", machine.log());
        // A join is no signal that reaches here.
        std::thread::sleep(Duration::from_millis(50));
    };
    let joined = begun.elapsed();
    let printed = stack.stoke_ok(&["submit", "echo", "--input", r#"{"text":"hi"}"#, "--wait"]);
    let first = begun.elapsed();
    assert_eq!(serde_json::from_str::<Value>(&printed).unwrap()["text"], "hi", "{printed}");

    let commands: Vec<String> =
        process::descendants(machine.init.id()).into_iter().map(|(_, command)| command).collect();
    assert!(commands.iter().any(|command| command.contains("stokehold.runner")), "it ran there: {commands:?}");
    assert!(commands.iter().all(|command| !command.contains(token)), "the token is on no command line");
    let glibc = output("chroot", &[root.to_str().unwrap(), "getconf", "GNU_LIBC_VERSION"]);
    println!("{}\n", machine.log());
    println!(
        "{}, sandbox {}: joined {:.1} s after the line was typed, the first job ended after {:.1} s",
        glibc.trim(),
        worker["sandbox"],
        joined.as_secs_f64(),
        first.as_secs_f64()
    );
}
