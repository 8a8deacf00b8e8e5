//! Environments built by the real uv from the real package index: `STOKE_UV`, or a `uv` on PATH, or one that is
//! installed first.
#![allow(clippy::unwrap_used, missing_docs)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use stokehold_package::Unlocked;
use stokehold_worker::environment::{
    Builds, CAP_BYTES_DEFAULT, Environment, EnvironmentSpec, Environments, EnvironmentsConfig, Error, Phase,
    RunnerWheel,
};
use stokehold_worker::uv::{Uv, ensure_uv};

const SIX: &str = "six==1.17.0 \\
    --hash=sha256:4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274
";

async fn uv() -> Uv {
    ensure_uv(None, &std::env::temp_dir().join("stokehold-tests")).await.unwrap()
}

/// A wheel with one module and one console script, created with Python's zip module.
fn seed_wheel(folder: &Path) -> PathBuf {
    let path = folder.join("stokehold-9.9.9-py3-none-any.whl");
    if path.exists() {
        // A newly created wheel would contain other times and be a different wheel.
        return path;
    }
    let script = "
import sys, zipfile
info = 'stokehold-9.9.9.dist-info/'
with zipfile.ZipFile(sys.argv[1], 'w') as wheel:
    wheel.writestr('stokehold/__init__.py', 'def main():\\n    import sys\\n    print(sys.prefix)\\n')
    wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: stokehold\\nVersion: 9.9.9\\n')
    wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr(info + 'entry_points.txt', '[console_scripts]\\nstoke-where = stokehold:main\\n')
    wheel.writestr(info + 'RECORD', '')
";
    assert!(Command::new("python3").args(["-c", script]).arg(&path).status().unwrap().success());
    path
}

struct Bench {
    folder: tempfile::TempDir,
    environments: Environments,
    phases: Mutex<Vec<Phase>>,
}

impl Bench {
    async fn new(cap_bytes: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let environments = open(folder.path(), cap_bytes).await;
        Self { folder, environments, phases: Mutex::default() }
    }

    async fn get(&self, requirements_lock: &str) -> Result<Environment, Error> {
        let spec = EnvironmentSpec {
            tenant: String::new(),
            requirements_lock: requirements_lock.to_owned(),
            python: String::new(),
        };
        self.environments.get(&spec, &|phase| self.phases.lock().unwrap().push(phase)).await
    }

    fn builds(&self) -> usize {
        self.phases.lock().unwrap().iter().filter(|phase| **phase == Phase::Publishing).count()
    }

    fn envs(&self) -> PathBuf {
        self.folder.path().join("envs")
    }
}

async fn open(dir: &Path, cap_bytes: u64) -> Environments {
    let config = EnvironmentsConfig {
        dir: dir.to_owned(),
        uv: uv().await,
        runner_wheel: RunnerWheel::File(seed_wheel(dir)),
        builds: Builds::own(),
        cap_bytes,
    };
    Environments::open(config).unwrap()
}

fn output(program: &Path, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn built_once_it_is_there_for_all_who_ask() {
    let bench = Bench::new(CAP_BYTES_DEFAULT).await;
    let (one, two, three) = tokio::join!(bench.get(SIX), bench.get(SIX), bench.get(SIX));
    let (one, two, three) = (one.unwrap(), two.unwrap(), three.unwrap());
    assert_eq!((&one.hash, &one.hash), (&two.hash, &three.hash));
    assert_eq!(bench.builds(), 1);
    assert!(bench.phases.lock().unwrap().contains(&Phase::Waiting));
    assert!(bench.phases.lock().unwrap().contains(&Phase::Installing { packages: 1 }));

    // Another process: only the folder is shared. Comments do not change the environment.
    let other = Bench {
        folder: tempfile::tempdir().unwrap(),
        environments: open(bench.folder.path(), CAP_BYTES_DEFAULT).await,
        phases: Mutex::default(),
    };
    let again = other.get(&format!("# by hand\n{SIX}")).await.unwrap();
    assert_eq!((again.python.clone(), other.builds()), (one.python.clone(), 0));

    let prefix = one.python.parent().unwrap().parent().unwrap();
    let python = "import six, stokehold, sys; print(six.__version__, sys.prefix)";
    assert_eq!(output(&one.python, &["-c", python]), format!("1.17.0 {}", prefix.display()));
    // Console scripts survive the move into place.
    assert_eq!(output(&prefix.join("bin").join("stoke-where"), &[]), prefix.display().to_string());
}

#[tokio::test]
async fn what_shapes_it_names_it() {
    let bench = Bench::new(CAP_BYTES_DEFAULT).await;
    let (bare, six) = (bench.get("").await.unwrap(), bench.get(SIX).await.unwrap());
    assert_ne!(bare.hash, six.hash);
    let wheel = bench.folder.path().join("stokehold-9.9.9-py3-none-any.whl");
    std::fs::OpenOptions::new().append(true).open(wheel).unwrap().write_all(b"\0").unwrap();
    // A zip file may have bytes after its end: the same content under another hash, or rejected by uv, never the old
    // one.
    assert!(bench.get("").await.map_or(true, |changed| changed.hash != bare.hash));
}

#[tokio::test]
async fn requirements_that_cannot_be_met_fail_with_the_reason_and_leave_nothing() {
    let bench = Bench::new(CAP_BYTES_DEFAULT).await;
    let error = bench.get("six==0.0.987\n").await.unwrap_err();
    assert!(matches!(&error, Error::Failed { what: "installing the requirements", .. }), "{error:?}");
    assert!(error.to_string().contains("six==0.0.987"), "{error}");
    let forged = SIX.replace("4721f391", "00000000");
    let error = bench.get(&forged).await.unwrap_err().to_string();
    assert!(error.to_lowercase().contains("hash"), "{error}");
    // Except the one that contains only the runner.
    let ours = bench.get("").await.unwrap().hash;
    let left: Vec<_> = std::fs::read_dir(bench.envs()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(left.len() == 2 && left.iter().all(|name| name.to_str().unwrap().starts_with(&ours)), "{left:?}");
}

#[tokio::test]
async fn a_python_that_is_no_version_is_refused() {
    let bench = Bench::new(CAP_BYTES_DEFAULT).await;
    let spec = EnvironmentSpec { tenant: String::new(), requirements_lock: String::new(), python: "--help".to_owned() };
    let error = bench.environments.get(&spec, &|_| ()).await.unwrap_err();
    assert!(matches!(error, Error::PythonVersion(_)), "{error}");
}

#[tokio::test]
async fn a_half_built_one_is_swept_and_a_broken_one_rebuilt() {
    let bench = Bench::new(CAP_BYTES_DEFAULT).await;
    let ready = bench.get("").await.unwrap();
    let half = bench.envs().join(format!(".partial-{}-abc", ready.hash));
    std::fs::create_dir_all(half.join("lib")).unwrap();
    std::fs::write(half.join("lib").join("torn.py"), "x = ").unwrap();
    // In use: the leftover may belong to a running build.
    open(bench.folder.path(), CAP_BYTES_DEFAULT).await;
    assert!(half.exists());
    // Its base interpreter was removed.
    std::fs::remove_file(&ready.python).unwrap();
    drop(ready);
    open(bench.folder.path(), CAP_BYTES_DEFAULT).await;
    assert!(!half.exists());
    let rebuilt = bench.get("").await.unwrap();
    assert_eq!(output(&rebuilt.python, &["-c", "print(1)"]), "1");
    assert_eq!(bench.builds(), 2);
}

#[tokio::test]
async fn what_is_unused_goes_when_space_is_short() {
    let bench = Bench::new(1).await;
    let in_use = bench.get("").await.unwrap();
    let dropped = bench.get(SIX).await.unwrap();
    let gone = dropped.python.clone();
    drop(dropped);
    let newest = bench.get(&SIX.replace("six==1.17.0", "six==1.17.0 ; python_version >= '3.0'")).await.unwrap();
    assert!(!gone.exists());
    assert_eq!(output(&in_use.python, &["-c", "print(1)"]), "1");
    assert_eq!(output(&newest.python, &["-c", "import six; print(1)"]), "1");
}

#[tokio::test]
async fn requirements_are_locked_with_hashes() {
    let folder = tempfile::tempdir().unwrap();
    let requirements = folder.path().join("requirements.txt");
    std::fs::write(&requirements, "six==1.17.0\n").unwrap();
    let uv = uv().await;
    let lines = folder.path().join("lines.txt");
    let mut unlocked = Unlocked { files: vec![requirements.clone()], lines: vec!["idna==3.10".to_owned()] };
    std::fs::write(&lines, unlocked.lines_file().unwrap()).unwrap();
    let arguments = unlocked.uv_arguments("3.11", Some(&lines));
    let lock = uv.lock(&arguments, folder.path(), "3.11").await.unwrap();
    assert!(lock.starts_with("idna==3.10 \\\n    --hash=sha256:") && lock.contains("\nsix==1.17.0 \\\n"), "{lock}");
    unlocked.lines.clear();
    let arguments = unlocked.uv_arguments("", None);
    std::fs::write(&requirements, "").unwrap();
    assert_eq!(uv.lock(&arguments, folder.path(), "").await.unwrap().trim(), "");
    std::fs::write(&requirements, "six==0.0.987\n").unwrap();
    let error = uv.lock(&arguments, folder.path(), "").await.unwrap_err().to_string();
    assert!(error.contains("six==0.0.987"), "{error}");
}
