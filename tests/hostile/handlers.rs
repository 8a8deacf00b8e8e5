//! Handlers that try to exceed their rights, at each level, as root and as an ordinary user with and without user
//! namespaces.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::attacks;
use crate::report::{Outcome, Promise, Report};
use crate::stage::{self, CANARY, Stage, Who};

const SURFACE: &str = "handlers";

/// The environment of an attack by handlers.
struct Cell {
    name: &'static str,
    /// The value of `STOKE_SANDBOX`.
    ordered: &'static str,
    /// The level that the worker must report and provide.
    level: &'static str,
    who: Who,
    /// Whether it is part of the quick run, which has the cells that differ most.
    is_quick: bool,
}

const fn cell(name: &'static str, ordered: &'static str, level: &'static str, who: Who, is_quick: bool) -> Cell {
    Cell { name, ordered, level, who, is_quick }
}

/// The levels, and the user of the worker. Without namespaces, `auto` must result in L1.
const CELLS: [Cell; 10] = [
    cell("L0 root", "L0", "L0", Who::Root, true),
    cell("L1 root", "L1", "L1", Who::Root, true),
    cell("L2 root", "L2", "L2", Who::Root, true),
    cell("L0 root, no namespaces", "L0", "L0", Who::RootWithoutNamespaces, false),
    cell("L1 root, no namespaces", "auto", "L1", Who::RootWithoutNamespaces, false),
    cell("L0 user", "L0", "L0", Who::User, false),
    cell("L1 user", "L1", "L1", Who::User, true),
    cell("L2 user", "auto", "L2", Who::User, false),
    cell("L0 user, no namespaces", "L0", "L0", Who::UserWithoutNamespaces, false),
    cell("L1 user, no namespaces", "auto", "L1", Who::UserWithoutNamespaces, false),
];

/// A stack with hostile handlers, and their targets.
struct Prison {
    stage: Stage,
    level: &'static str,
    /// A folder outside every handler's, with `canary.txt` in it.
    victim: PathBuf,
    /// A listener, until it is dropped, that handlers must not reach.
    _abstract: UnixListener,
    abstract_name: String,
}

pub(crate) async fn run(report: &mut Report) {
    for Cell { name, ordered, level, who, is_quick } in CELLS {
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
        let prison = Prison::start(ordered, level, who);
        prison.is_shut_in_as_said().await;
        if level == "L0" {
            at_l0(report, name, who, &prison).await;
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
    for (name, who, best) in BEST {
        says_its_level(report, name, who, best);
    }
}

/// The best level for each user of a worker.
const BEST: [(&str, Who, &str); 4] = [
    ("any level, root", Who::Root, "L2"),
    ("any, root, no namespaces", Who::RootWithoutNamespaces, "L1"),
    ("any level, user", Who::User, "L2"),
    ("any, user, no namespaces", Who::UserWithoutNamespaces, "L1"),
];

/// A level that the machine lacks is not claimed: `stoke worker check` reports the best level and rejects a higher one,
/// and a worker that requires that level does not start.
fn says_its_level(report: &mut Report, name: &str, who: Who, best: &str) {
    if let Some(why) = who.lacks() {
        report.skip(SURFACE, name, &why);
        return;
    }
    if !stage::has_bwrap() {
        report.skip(SURFACE, name, &format!("there is no bubblewrap at {}", stage::bwrap()));
        return;
    }
    let dir = stage::worker_folder(who);
    let mut outcome = Outcome::default();
    for ordered in ["auto", "L0", "L1", "L2"] {
        let checked = stage::worker_command(who, dir.path(), ordered, &["check", "--json"]).output().unwrap();
        let said = String::from_utf8_lossy(&checked.stdout).into_owned();
        let checks: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{checked:?}"));
        let sandbox = checks["checks"].as_array().unwrap().iter().find(|check| check["what"] == "sandbox").unwrap();
        let found = sandbox["found"].as_str().unwrap();
        let is_there = ordered == "auto" || ordered <= best;
        let expected = if ordered == "auto" { best } else { ordered };
        let is_said = if is_there {
            sandbox["verdict"] != "fail" && found.starts_with(&format!("{expected};"))
        } else {
            sandbox["verdict"] == "fail" && found.contains(&format!("requires {ordered}"))
        };
        outcome.open_if(!is_said, || format!("{ordered}: {sandbox}"));
        if !is_there {
            let started = stage::worker_command(who, dir.path(), ordered, &["--name", "claims"]).output().unwrap();
            let said = String::from_utf8_lossy(&started.stderr);
            let is_refused = !started.status.success() && said.contains(&format!("requires {ordered}"));
            outcome.open_if(!is_refused, || format!("{ordered}: it ended with {}: {said}", started.status));
        }
    }
    report.note(SURFACE, name, Promise::Holds, "claims_a_level_that_is_not_there", &outcome);
}

/// L0 restricts nothing, but denies handlers the rights of a root worker.
async fn at_l0(report: &mut Report, name: &str, who: Who, prison: &Prison) {
    attacks!(report, SURFACE, name, Promise::Open, prison, [reads_files, reaches_the_network]);
    if who.is_root() {
        attacks!(report, SURFACE, name, Promise::Holds, prison, [writes_files, poisons_code, has_no_right_of_roots]);
    } else {
        attacks!(report, SURFACE, name, Promise::Open, prison, [writes_files]);
    }
}

impl Prison {
    fn start(ordered: &str, level: &'static str, who: Who) -> Self {
        let stage = Stage::start(who, &["--slots", "2"], &[("STOKE_SANDBOX", ordered)]);
        let victim = stage.dir.path().join("victim");
        std::fs::create_dir(&victim).unwrap();
        let canary = victim.join("canary.txt");
        std::fs::write(&canary, CANARY).unwrap();
        who.give(&victim);
        who.give(&canary);
        let abstract_name = format!("stokehold-hostile-{}-{level}", std::process::id());
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let _ = stage.stack.stoke_ok(&["deploy", &stage::own("handlers")]);
        Self { stage, level, victim, _abstract: listener, abstract_name }
    }

    /// What an attack obtained from inside.
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

    /// Checks the level that the worker reports; a lower one than requested would make the following tests vacuous.
    async fn is_shut_in_as_said(&self) {
        let workers = self.stage.api.get("/v1/workers").await;
        let said = &workers["workers"][0]["sandbox"];
        assert_eq!(said, self.level, "{workers}");
        let job = self.got("nothing", &[]).await;
        assert_eq!(job["state"], "succeeded", "{job}\n{}", self.stage.stack.log_tail());
    }

    /// Content of a folder, without following links.
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

    /// Files of the installation with content that no handler may read, each with the canary's position in it.
    fn secrets(&self) -> Vec<String> {
        let data = self.stage.data();
        // In addition to the stack's own files: a file with the canary in each folder of its data.
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
    // Checked from outside, too.
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
    prison.tried("rights", &["filter".to_owned()]).await
}

/// The same, where no filter of system calls is promised.
async fn has_no_right_of_roots(prison: &Prison) -> Outcome {
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
        // The store refuses such a name, and the worker retries for a while: the end of the attempt is sufficient.
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

/// Files of these names anywhere below a folder.
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
