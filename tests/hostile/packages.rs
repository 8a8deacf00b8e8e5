//! Packages: archives that a worker unpacks with its own rights, before any sandbox.

use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::json;

use crate::attacks;
use crate::report::{Outcome, Promise, Report};
use crate::stage::{self, CANARY, Stage, Who};

const SURFACE: &str = "packages";

/// An archive written by `packages/make.py`.
#[derive(Deserialize)]
struct Package {
    name: String,
    path: PathBuf,
    sha256: String,
    size: u64,
}

struct Target {
    stage: Stage,
    /// The worker's cache.
    cache: tempfile::TempDir,
    /// A folder that no package may reach.
    outside: PathBuf,
    packages: Vec<Package>,
}

pub(crate) async fn run(report: &mut Report) {
    for (name, level, who, is_quick) in [("L1 root", "L1", Who::Root, true), ("L1 user", "L1", Who::User, false)] {
        if !is_quick && !stage::is_full() {
            continue;
        }
        if let Some(why) = who.lacks() {
            report.skip(SURFACE, name, &why);
            continue;
        }
        let target = Target::start(level, who);
        attacks!(report, SURFACE, name, Promise::Holds, &target, [unpack_nowhere_else, leave_nothing_that_leads_out]);
    }
}

impl Target {
    fn start(level: &str, who: Who) -> Self {
        // A separate cache, because the test inspects the unpacked packages.
        let cache = tempfile::tempdir().unwrap();
        std::fs::set_permissions(cache.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        who.give(cache.path());
        let env = [("STOKE_SANDBOX", level), ("STOKE_CACHE_DIR", cache.path().to_str().unwrap())];
        let stage = Stage::start(who, &["--slots", "2"], &env);
        let outside = stage.dir.path().join("outside");
        let made = stage.dir.path().join("made");
        for folder in [&outside, &made] {
            std::fs::create_dir(folder).unwrap();
        }
        std::fs::write(outside.join("canary.txt"), CANARY).unwrap();
        who.give(&outside);
        who.give(&outside.join("canary.txt"));
        let many = stage::size(2_000, 100_001).to_string();
        let arguments = [made.to_str().unwrap(), outside.to_str().unwrap(), &many];
        let packages = serde_json::from_value(stage::python("packages/make.py", &arguments)).unwrap();
        Self { stage, cache, outside, packages }
    }

    /// Deploys a package and submits a job to it. Returns the job's id.
    async fn submitted(&self, number: usize, package: &Package) -> String {
        let api = &self.stage.api;
        let bytes = std::fs::read(&package.path).unwrap();
        if package.size == 0 {
            // The store accepts no empty package; there is nothing to run either.
            return String::new();
        }
        stage::put_package(api, &package.sha256, bytes).await;
        let name = format!("pack-{number}");
        let version = stage::version(
            &name,
            json!({"package_sha256": package.sha256, "package_size_bytes": package.size, "entry": "main.py:packed", "max_attempts": 1}),
        );
        let answer = api.request("POST", "/v1/endpoints").json(&version).send().await.unwrap();
        assert!(answer.status().is_success(), "{}: {}", package.name, answer.text().await.unwrap());
        api.submit(&name, json!({})).await
    }

    /// New files outside.
    fn escaped(&self) -> Vec<String> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.outside).unwrap().flatten() {
            let is_canary = entry.file_name() == "canary.txt";
            if !is_canary || std::fs::read(entry.path()).unwrap() != CANARY.as_bytes() {
                found.push(entry.path().display().to_string());
                let _ = std::fs::remove_file(entry.path());
                std::fs::write(self.outside.join("canary.txt"), CANARY).unwrap();
            }
        }
        found
    }
}

async fn unpack_nowhere_else(target: &Target) -> Outcome {
    let step = stage::size(16, 1);
    let mut outcome = Outcome::default();
    let chosen: Vec<(usize, &Package)> = target.packages.iter().enumerate().step_by(step).collect();
    // A few at a time: the worker runs two.
    for some in chosen.chunks(8) {
        let mut jobs = Vec::new();
        for (number, package) in some {
            jobs.push((package, target.submitted(*number, package).await));
        }
        for (package, job) in jobs.iter().filter(|(_, job)| !job.is_empty()) {
            let ended = target.stage.api.ended(job).await;
            if package.name == "plain" {
                assert_eq!(ended["state"], "succeeded", "{ended}");
            }
            outcome.open_if(ended["state"] == "running", || format!("{} never ends", package.name));
        }
        let names = || jobs.iter().map(|(package, _)| package.name.as_str()).collect::<Vec<_>>().join(", ");
        for escaped in target.escaped() {
            outcome.tried(Some(format!("{escaped} was written by one of: {}", names())));
        }
    }
    let again = target.submitted(0, &target.packages[0]).await;
    let again = target.stage.api.ended(&again).await;
    outcome.open_if(again["state"] != "succeeded", || {
        format!("a package that is none of these does not run any more: {again}")
    });
    outcome
}

/// Checks the worker's copies: no permissions that were not granted, no links to outside, only files and folders.
async fn leave_nothing_that_leads_out(target: &Target) -> Outcome {
    let mut outcome = Outcome::default();
    let unpacked = unpacked_in(&target.cache.path().join("packages"));
    assert!(!unpacked.is_empty(), "the worker keeps what it has unpacked");
    for package in unpacked {
        let package = package.canonicalize().unwrap();
        for path in below(&package) {
            let found = path.symlink_metadata().unwrap();
            let kind = found.file_type();
            let leads = kind.is_symlink().then(|| path.canonicalize().ok()).flatten();
            let is_odd = kind.is_fifo() || kind.is_socket() || kind.is_block_device() || kind.is_char_device();
            let has_rights = kind.is_file() && found.permissions().mode() & 0o6022 != 0;
            outcome.open_if(is_odd || has_rights, || {
                format!("{} is {kind:?} {:o}", path.display(), found.permissions().mode())
            });
            outcome.open_if(leads.as_ref().is_some_and(|to| !to.starts_with(&package)), || {
                format!("{} leads to {leads:?}", path.display())
            });
        }
    }
    outcome
}

/// Folders of unpacked packages, wherever the worker stores them: their names begin with a SHA-256.
fn unpacked_in(data: &Path) -> Vec<PathBuf> {
    let is_hash = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.len() >= 64 && name.bytes().take(64).all(|byte| byte.is_ascii_hexdigit())
    };
    below(data).into_iter().filter(|path| is_hash(path) && path.is_dir() && !path.is_symlink()).collect()
}

/// Everything below a folder, without following links.
fn below(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut next) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = next.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            found.push(entry.path());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                next.push(entry.path());
            }
        }
    }
    found
}
