//! Attacks of a handler on its machine: permissions and owners, servers on Unix sockets, the worker's log, and the
//! folders in which the worker stores the files of other runs.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::attacks;
use crate::report::{Outcome, Promise, Report};
use crate::stage::{self, CANARY, Stage, Who};

const SURFACE: &str = "host";

/// The levels that confine handlers, and cells where only the handler's user restricts it.
const LEVELS: [(&str, &str, Who, bool); 7] = [
    ("L0 root", "L0", Who::Root, true),
    ("L1 root", "L1", Who::Root, true),
    ("L2 root", "L2", Who::Root, true),
    ("L1 root, no namespaces", "L1", Who::RootWithoutNamespaces, false),
    ("L1 user", "L1", Who::User, true),
    ("L2 user", "L2", Who::User, false),
    ("L1 user, no namespaces", "L1", Who::UserWithoutNamespaces, false),
];

struct Target {
    stage: Stage,
    /// A folder whose modes allow every user to read and write.
    open: PathBuf,
    listener: UnixListener,
    receiver: UnixDatagram,
}

pub(crate) async fn run(report: &mut Report) {
    for (name, level, who, is_quick) in LEVELS {
        if !is_quick && !stage::is_full() {
            continue;
        }
        if let Some(why) = who.lacks() {
            report.skip(SURFACE, name, &why);
            continue;
        }
        if level == "L2" && !stage::has_bwrap() {
            report.skip(SURFACE, name, &format!("there is no bubblewrap at {}", stage::bwrap()));
            continue;
        }
        let target = Target::start(level, who);
        if stage::is_root() && (level != "L0" || who.is_root()) {
            attacks!(report, SURFACE, name, Promise::Holds, &target, [reads_what_is_roots]);
        }
        if level == "L0" {
            attacks!(report, SURFACE, name, Promise::Holds, &target, [changes_rights_of_roots]);
            continue;
        }
        // At L1, a handler that runs as the worker's user owns the worker's files: docs/explanation/security.md.
        if who.is_root() || level == "L2" {
            attacks!(report, SURFACE, name, Promise::Holds, &target, [changes_rights]);
        }
        attacks!(
            report,
            SURFACE,
            name,
            Promise::Holds,
            &target,
            [reaches_sockets_by_name, forges_lines_of_the_log, leads_others_files_out]
        );
    }
}

impl Target {
    fn start(level: &str, who: Who) -> Self {
        let stage = Stage::start(who, &["--slots", "2"], &[("STOKE_SANDBOX", level)]);
        let open = stage.dir.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::write(open.join("canary.txt"), CANARY).unwrap();
        let listener = UnixListener::bind(open.join("stream")).unwrap();
        let receiver = UnixDatagram::bind(open.join("datagram")).unwrap();
        for name in ["", "canary.txt", "stream", "datagram"] {
            std::fs::set_permissions(open.join(name), std::fs::Permissions::from_mode(0o777)).unwrap();
            who.give(&open.join(name));
        }
        let _ = stage.stack.stoke_ok(&["deploy", &stage::own("host/host.py")]);
        Self { stage, open, listener, receiver }
    }

    fn path(&self, name: &str) -> String {
        self.open.join(name).to_str().unwrap().to_owned()
    }

    async fn got(&self, attack: &str, targets: &[String]) -> Value {
        let id = self.stage.api.submit("host", json!({"attack": attack, "targets": targets})).await;
        self.stage.api.ended(&id).await
    }

    async fn tried(&self, attack: &str, targets: &[String]) -> Outcome {
        let job = self.got(attack, targets).await;
        assert_eq!(job["state"], "succeeded", "{attack}: {job}");
        let got = job["result"]["got"].as_array().unwrap().iter().map(|got| got.as_str().unwrap().to_owned());
        Outcome::counted(usize::try_from(job["result"]["attempted"].as_u64().unwrap()).unwrap(), got.collect())
    }
}

async fn reads_what_is_roots(target: &Target) -> Outcome {
    let files = [
        "/etc/shadow",
        "/etc/gshadow",
        "/etc/shadow-",
        "/etc/sudoers",
        "/etc/ssh/ssh_host_ed25519_key",
        "/etc/stokehold/api.env",
        "/root/.bashrc",
        "/proc/1/environ",
    ];
    target.tried("system_secrets", &files.map(str::to_owned)).await
}

async fn changes_rights_of_roots(target: &Target) -> Outcome {
    target.tried("rights", &identified(roots(target))).await
}

/// Replaces each path by its identity outside, whatever has its name in a sandbox.
fn identified(paths: Vec<String>) -> Vec<String> {
    let named = |path: String| {
        let real = std::fs::metadata(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        format!("{}:{}:{path}", real.dev(), real.ino())
    };
    paths.into_iter().map(named).collect()
}

/// Files that belong to root, or to the user of the stack, and are not writable for every user.
fn roots(target: &Target) -> Vec<String> {
    let data = target.stage.data();
    let mut paths: Vec<String> =
        ["/", "/usr", "/usr/bin/true", "/etc", "/etc/passwd", "/tmp", "/var"].map(str::to_owned).into();
    paths.extend(
        ["", "secrets.json", "stack.json", "redis", "credentials.json"]
            .map(|name| data.join(name).to_str().unwrap().trim_end_matches('/').to_owned()),
    );
    paths
}

async fn changes_rights(target: &Target) -> Outcome {
    let mut paths = roots(target);
    paths.extend(
        [target.path(""), target.path("canary.txt"), target.path("stream")]
            .map(|path| path.trim_end_matches('/').to_owned()),
    );
    target.tried("rights", &identified(paths)).await
}

async fn reaches_sockets_by_name(target: &Target) -> Outcome {
    let redis = target.stage.data().join("redis/redis.sock").to_str().unwrap().to_owned();
    let mut outcome = target.tried("sockets", &[target.path("stream"), target.path("datagram"), redis]).await;
    target.receiver.set_nonblocking(true).unwrap();
    target.listener.set_nonblocking(true).unwrap();
    outcome.open_if(target.receiver.recv(&mut [0; 16]).is_ok(), || "something was sent".to_owned());
    outcome.open_if(target.listener.accept().is_ok(), || "something connected".to_owned());
    outcome
}

/// Line ends of every kind, and control sequences of terminals.
async fn forges_lines_of_the_log(target: &Target) -> Outcome {
    let mut outcome = Outcome::default();
    let line = "2026-01-01T00:00:00.000000Z  INFO stokehold: forged";
    for ends in [
        "\n",
        "\r\n",
        "\r",
        "\u{b}",
        "\u{c}",
        "\u{85}",
        "\u{2028}",
        "\u{2029}",
        "\u{1b}[2K\u{1b}[1G",
        "\u{9b}2K",
        "\0",
        "\u{8}",
        "\u{202e}",
    ] {
        let failed = target.got("forge", &[format!("{ends}{line}")]).await;
        assert_eq!(failed["state"], "failed", "{failed}");
        let log = target.stage.stack.log();
        let is_forged =
            log.contains(&format!("{ends}{line}")) || log.lines().any(|logged| logged.trim_start().starts_with(line));
        outcome.open_if(is_forged, || format!("a line after {ends:?}"));
    }
    outcome
}

/// Swaps the folders of other runs while the worker fetches their files.
async fn leads_others_files_out(target: &Target) -> Outcome {
    let text = target.stage.dir.path().join("text");
    std::fs::write(&text, "of the input").unwrap();
    let file = format!("file={}", text.display());
    let said =
        target.stage.stack.stoke_ok(&["submit", "host", "--input", r#"{"attack": ""}"#, "--file", &file, "--wait"]);
    assert_eq!(said.trim(), r#""of the input""#);
    let jobs = target.stage.api.get("/v1/jobs").await;
    let id = jobs["jobs"][0]["input"]["file"]["$file"].as_str().unwrap_or_else(|| panic!("{jobs}")).to_owned();
    let (seconds, runs) = (stage::size(4, 20), stage::size(8, 40));
    let mut outcome = Outcome::default();
    for (n, kind) in ["symlink", "hard link", "link"].into_iter().enumerate() {
        let written = target.stage.dir.path().join(format!("written-{n}"));
        let aim = if kind == "hard link" { target.path("canary.txt") } else { written.to_str().unwrap().to_owned() };
        let input = json!({"attack": "exchange", "targets": [kind, id, aim, seconds.to_string()]});
        let attack = target.stage.api.submit("host", input).await;
        for _ in 0..runs {
            let run = target.stage.api.submit("host", json!({"attack": "", "file": {"$file": id}})).await;
            let _ = target.stage.api.ended(&run).await;
            let canary = std::fs::read_to_string(target.open.join("canary.txt")).unwrap();
            outcome.open_if(written.exists() || canary != CANARY, || format!("the worker wrote through a {kind}"));
        }
        let _ = target.stage.api.ended(&attack).await;
    }
    outcome
}
