//! Handlers that want more than their jobs, at each level, as root and as an ordinary user with and without user namespaces.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::attacks;
use crate::report::{Outcome, Promise, Report};
use crate::stage::{self, CANARY, Stage, Who};

const SURFACE: &str = "handlers";

/// The levels, and who runs the worker there. At quick size those that differ most.
const LEVELS: [(&str, &str, Who, bool); 7] = [
    ("L0 root", "L0", Who::Root, false),
    ("L1 root", "L1", Who::Root, true),
    ("L2 root", "L2", Who::Root, true),
    ("L0 user", "L0", Who::User, false),
    ("L1 user", "L1", Who::User, true),
    ("L2 user", "L2", Who::User, false),
    ("L1 user, no namespaces", "L1", Who::UserWithoutNamespaces, false),
];

/// A stack with hostile handlers, and what they are after.
struct Prison {
    stage: Stage,
    level: &'static str,
    /// A folder that is no handler's, with `canary.txt` in it.
    victim: PathBuf,
    /// Listens until it is dropped, for handlers that should not reach it.
    _abstract: UnixListener,
    abstract_name: String,
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
        let prison = Prison::start(level, who);
        prison.is_shut_in_as_said().await;
        if level == "L0" {
            attacks!(report, SURFACE, name, Promise::Open, &prison, [reads_files, writes_files, reaches_the_network]);
            continue;
        }
        attacks!(
            report,
            SURFACE,
            name,
            Promise::Holds,
            &prison,
            [
                reads_files,
                writes_files,
                poisons_code,
                looks_into_processes,
                makes_system_calls,
                gains_rights,
                reaches_the_network,
                commands_redis,
                returns_others_files,
                returns_odd_names,
            ]
        );
    }
    without_namespaces(report);
}

/// L2 needs user namespaces where the worker is not root: a worker that was told to give it does not start without them.
fn without_namespaces(report: &mut Report) {
    let (who, level) = (Who::UserWithoutNamespaces, "L2 user, no namespaces");
    if let Some(why) = who.lacks() {
        report.skip(SURFACE, level, &why);
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    who.give(dir.path());
    let stoke = stokehold_tests::stack::stoke_binary();
    let mut worker = who.command(stoke.to_str().unwrap());
    worker.args(["worker", "--name", "claims-l2"]).current_dir(dir.path());
    worker.env("STOKE_GATEWAY_URL", "http://127.0.0.1:9").env("STOKE_JOIN_TOKEN", format!("jt_{CANARY}"));
    worker.env("STOKE_DATA_DIR", dir.path()).env("HOME", dir.path()).env("STOKE_CACHE_DIR", dir.path());
    worker.env("STOKE_SANDBOX", "L2").env("STOKE_BWRAP", stage::bwrap());
    let output = worker.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let is_refused = !output.status.success() && said.contains("asks for L2");
    let mut outcome = Outcome::default();
    outcome.open_if(!is_refused, || format!("it ended with {}: {said}", output.status));
    report.note(SURFACE, level, Promise::Holds, "claims_a_level_that_is_not_there", &outcome);
}

impl Prison {
    fn start(level: &'static str, who: Who) -> Self {
        let stage = Stage::start(who, &["--slots", "2"], &[("STOKE_SANDBOX", level)]);
        let victim = stage.dir.path().join("victim");
        std::fs::create_dir(&victim).unwrap();
        let canary = victim.join("canary.txt");
        std::fs::write(&canary, CANARY).unwrap();
        who.give(&victim);
        who.give(&canary);
        let abstract_name = format!("stokehold-hostile-{}-{level}", std::process::id());
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let _ = stage.stack.stoke_ok(&["deploy", &stage::own("handlers/inside.py")]);
        Self { stage, level, victim, _abstract: listener, abstract_name }
    }

    /// What an attack got from inside.
    async fn got(&self, attack: &str, targets: &[String]) -> Value {
        let input = json!({"attack": attack, "targets": targets, "canary": CANARY});
        let id = self.stage.api.submit("inside", input).await;
        self.stage.api.ended(&id).await
    }

    async fn tried(&self, attack: &str, targets: &[String]) -> Outcome {
        let job = self.got(attack, targets).await;
        assert_eq!(job["state"], "succeeded", "{attack} at {}: {job}", self.level);
        let got = job["result"]["got"].as_array().unwrap().iter().map(|got| got.as_str().unwrap().to_owned());
        Outcome::counted(usize::try_from(job["result"]["attempted"].as_u64().unwrap()).unwrap(), got.collect())
    }

    /// The worker says which level it gives; a lower one than was asked for would make all that follows vacuous.
    async fn is_shut_in_as_said(&self) {
        let workers = self.stage.api.get("/v1/workers").await;
        let said = &workers["workers"][0]["sandbox"];
        assert!(said == self.level || said.is_null(), "{workers}");
        let job = self.got("nothing", &[]).await;
        assert_eq!(job["state"], "succeeded", "{job}\n{}", self.stage.stack.log_tail());
    }

    /// What lies in a folder, links not followed.
    fn content(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let mut content = Vec::new();
            if entry.file_type().unwrap().is_file() {
                std::fs::File::open(entry.path()).unwrap().read_to_end(&mut content).unwrap();
            }
            found.insert(entry.path(), content);
        }
        found
    }

    /// Files of the installation that hold what no handler may know, each with the canary's place in it.
    fn secrets(&self) -> Vec<String> {
        let data = self.stage.data();
        // Beside what the stack keeps itself: a file with the canary in each folder of its data.
        let mut targets = vec![self.victim.join("canary.txt")];
        for folder in ["", "redis", "worker", "worker-1", "packages"] {
            let folder = data.join(folder);
            if folder.is_dir() {
                let path = folder.join("canary.txt");
                std::fs::write(&path, CANARY).unwrap();
                targets.push(path);
            }
        }
        targets.into_iter().map(|path| path.to_str().unwrap().to_owned()).collect()
    }
}

async fn reads_files(prison: &Prison) -> Outcome {
    prison.tried("reads", &prison.secrets()).await
}

async fn writes_files(prison: &Prison) -> Outcome {
    let before = Prison::content(&prison.victim);
    let mut outcome = prison.tried("writes", &[prison.victim.to_str().unwrap().to_owned()]).await;
    // Seen from outside, too.
    let after = Prison::content(&prison.victim);
    outcome.open_if(before != after, || "the folder is not as it was".to_owned());
    for (path, content) in before {
        std::fs::write(path, content).unwrap();
    }
    outcome
}

async fn poisons_code(prison: &Prison) -> Outcome {
    prison.tried("poison", &[]).await
}

async fn looks_into_processes(prison: &Prison) -> Outcome {
    let mut pids = prison.stage.stack.workers();
    pids.extend([std::process::id(), prison.stage.stack.pid()]);
    pids.extend(prison.stage.stack.children("redis-server"));
    let targets: Vec<String> = pids.iter().map(u32::to_string).collect();
    prison.tried("processes", &targets).await
}

async fn makes_system_calls(prison: &Prison) -> Outcome {
    prison.tried("calls", &[]).await
}

async fn gains_rights(prison: &Prison) -> Outcome {
    prison.tried("rights", &[]).await
}

async fn reaches_the_network(prison: &Prison) -> Outcome {
    let api = prison.stage.stack.url.trim_start_matches("http://").to_owned();
    let port = api.rsplit(':').next().unwrap().to_owned();
    let mut targets =
        vec![api, format!("0.0.0.0:{port}"), format!("[::1]:{port}"), format!("[::ffff:127.0.0.1]:{port}")];
    targets.extend(["169.254.169.254:80", "1.1.1.1:53", "[2606:4700:4700::1111]:53", "224.0.0.1:9"].map(str::to_owned));
    targets.push(format!("@{}", prison.abstract_name));
    prison.tried("network", &targets).await
}

async fn commands_redis(prison: &Prison) -> Outcome {
    let socket = prison.stage.data().join("redis/redis.sock");
    assert!(socket.exists(), "stoke dev's own Redis listens there");
    prison.tried("redis", &[socket.to_str().unwrap().to_owned()]).await
}

async fn returns_others_files(prison: &Prison) -> Outcome {
    let target = prison.victim.join("canary.txt").to_str().unwrap().to_owned();
    let ways = [
        "symlink",
        "symlink to a symlink",
        "symlinked folder",
        "hard link",
        "fifo",
        "socket",
        "folder",
        "descriptor",
        "root of init",
        "outside",
        "dots",
        "nothing",
    ];
    let mut outcome = Outcome::default();
    for way in ways.into_iter().step_by(stage::size(2, 1)) {
        let job = prison.got("result", &[way.to_owned(), target.clone()]).await;
        let mut got = (job["state"] != "failed").then(|| format!("{way}: {}", job["state"]));
        if job["state"] == "succeeded" {
            let id = job["id"].as_str().unwrap();
            let file =
                prison.stage.api.request("GET", &format!("/v1/jobs/{id}/files/picture.png")).send().await.unwrap();
            let content = file.text().await.unwrap_or_default();
            got = content.contains(CANARY).then(|| format!("{way}: the file itself"));
        }
        outcome.tried(got);
    }
    outcome
}

async fn returns_odd_names(prison: &Prison) -> Outcome {
    let names = [
        "../escape.txt",
        "/etc/escape.txt",
        "a/../../b.txt",
        "..",
        ".",
        "",
        "a\\..\\b",
        "nul\0byte",
        "line\nend",
        "\u{1b}]0;title\u{7}",
        "\u{9b}31m",
        "\u{202e}gnp.exe",
        "\u{2066}x\u{2069}",
        "output.json",
        "OUTPUT.JSON",
        "%2e%2e%2fx",
        "\u{ff0e}\u{ff0e}\u{ff0f}x",
        "a?b#c",
    ];
    let mut outcome = Outcome::default();
    for name in names.into_iter().step_by(stage::size(4, 1)) {
        let input = json!({"attack": "names", "targets": [name], "canary": CANARY});
        let id = prison.stage.api.submit("inside", input).await;
        // The store refuses such a name, and the worker tries again for a while: that the attempt is over is enough.
        let job = prison.stage.api.get(&format!("/v1/jobs/{id}?wait_s=4")).await;
        let written = written_as(prison.stage.dir.path(), &["escape.txt", "b.txt", "b"]);
        outcome.open_if(!written.is_empty(), || format!("{name:?} was written as {written:?}"));
        let is_odd = name.chars().any(char::is_control) || name.contains('/') || name.is_empty();
        outcome.open_if(is_odd && job["state"] == "succeeded", || {
            format!("{name:?} is a file of a result: {}", job["result"])
        });
        let cancel = prison.stage.api.request("POST", &format!("/v1/jobs/{id}/cancel"));
        cancel.send().await.unwrap();
    }
    outcome
}

/// Files of these names, wherever they are below a folder.
fn written_as(folder: &Path, names: &[&str]) -> Vec<PathBuf> {
    let (mut found, mut next) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = next.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                next.push(entry.path());
            } else if names.iter().any(|name| entry.file_name() == *name) {
                found.push(entry.path());
            }
        }
    }
    found
}
