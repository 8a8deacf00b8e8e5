//! Scans pickle files for dangerous calls with picklescan, in an environment that the caller provides.
//!
//! picklescan detects dangerous calls but cannot prove harmlessness: it is the second of three defences, after the
//! explicit permission for pickles and before the sandbox.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use tokio::process::Command;

use super::Error;
use crate::environment::{self, child};

/// Requirements of the scan's environment. They need a Python of [`PICKLESCAN_PYTHON`].
pub(crate) const PICKLESCAN_REQUIREMENTS: &str = "picklescan==1.0.5 \\
    --hash=sha256:1e220fc0e7eb2021eeb59ee71ce22d6a889ffb9f4d86d6f8272b8defe83ab9dd \\
    --hash=sha256:2abb3d4959a7ee9ccb1e1296db7c56f624bf6d345b93a0a9cf4185bc650dc2fd
";

/// Minimum Python version of picklescan.
pub(crate) const PICKLESCAN_PYTHON: &str = "3.11";

const SCRIPT: &str = include_str!("scan.py");

/// Timeout of a scan. The pickle is small compared to its tensors, which are not read; ten million parts take about a
/// minute.
const SCAN_LIMIT: Duration = Duration::from_secs(5 * 60);

/// Output of the script.
#[derive(Deserialize)]
struct Found {
    dangerous: Vec<String>,
    failed: Option<String>,
}

/// Scans pickle files, named relative to `folder`, one after the other. `python` starts the Python of an environment
/// with [`PICKLESCAN_REQUIREMENTS`] in the sandbox, because the files are not trusted.
///
/// # Errors
/// [`Error::Dangerous`] names the dangerous calls, [`Error::Unscanned`] why a file could not be scanned.
pub(crate) async fn scan(
    python: &(dyn Fn() -> io::Result<Command> + Send + Sync),
    folder: &Path,
    names: &[String],
) -> Result<(), Error> {
    for name in names {
        let mut command = python().map_err(environment::Error::io("start the scan"))?;
        command.args(["-I", "-c", SCRIPT]).arg(folder.join(name));
        let unscanned = |why: String| Error::Unscanned { path: name.clone(), why };
        let answer = match child::run("scanning a pickle file", command, SCAN_LIMIT).await {
            Ok(answer) => answer,
            Err(error @ environment::Error::TimedOut { .. }) => return Err(unscanned(error.to_string())),
            Err(error) => return Err(error.into()),
        };
        let found: Found = serde_json::from_str(answer.trim()).map_err(|error| unscanned(error.to_string()))?;
        if !found.dangerous.is_empty() {
            return Err(Error::Dangerous { path: name.clone(), globals: found.dangerous.join(", ") });
        }
        if let Some(why) = found.failed {
            return Err(unscanned(why));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uv::{Install, ensure_uv};
    use crate::weights::format::is_pickle;

    /// Writes the files that a test scans: a clean pickle in every format, and malicious ones in every disguise.
    const SEED: &str = r#"
import collections, gzip, io, os, pickle, sys, zipfile
os.chdir(sys.argv[1])
class Wicked:
    def __reduce__(self):
        return os.system, ("touch wicked-ran",)
clean = collections.OrderedDict(weight=[1.0, 2.0])
def write(name, *parts):
    with open(name, "wb") as file:
        file.write(b"".join(parts))
def saved(value, raw=b"\0" * 64):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(value, 2))
        archive.writestr("archive/data/0", raw)
        archive.writestr("archive/version", "3\n")
    return file.getvalue()
def saved_long_ago(value):
    parts = (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, value, ["0"])
    return b"".join(pickle.dumps(part, 2) for part in parts) + b"\xff\x00raw" * 64
write("clean.pkl", pickle.dumps(clean))
write("clean-text.bin", pickle.dumps(clean, 0))
write("clean.pt", saved(clean))
write("clean-tensor.pt", saved(clean, b"\x80\x02\xff\xfe\xfd" * 20))
write("clean-old.pt", saved_long_ago(clean))
write("wicked.pkl", pickle.dumps(Wicked()))
write("wicked-text.bin", pickle.dumps(Wicked(), 0))
write("wicked.pt", saved(Wicked()))
write("wicked-old.ckpt", saved_long_ago(Wicked()))
write("wicked-before-a-zip.pkl", pickle.dumps(Wicked()), saved(clean))
write("wicked-second.pkl", pickle.dumps(clean), pickle.dumps(Wicked()))
write("hidden.joblib", gzip.compress(pickle.dumps(Wicked())))
write("noise.bin", b"\x80\x04" + bytes(range(200, 256)) * 9)
"#;

    #[tokio::test]
    async fn clean_pickles_pass_and_wicked_ones_are_named_and_never_run() {
        let folder = tempfile::tempdir().unwrap();
        let (venv, lock) = (folder.path().join("venv"), folder.path().join("lock.txt"));
        let uv = ensure_uv(None, &std::env::temp_dir().join("stokehold-tests")).await.unwrap();
        let base = uv.find_python(&format!(">={PICKLESCAN_PYTHON}")).await.unwrap();
        uv.venv(&base, &venv).await.unwrap();
        std::fs::write(&lock, PICKLESCAN_REQUIREMENTS).unwrap();
        let sync = Install { venv: &venv, lock: &lock, require_hashes: true, wheels_only: true };
        uv.sync(uv.plain(), sync).await.unwrap();
        let (python, files) = (venv.join("bin").join("python"), folder.path().join("files"));
        std::fs::create_dir(&files).unwrap();
        let mut seed = Command::new(&python);
        seed.args(["-I", "-c", SEED]).arg(&files);
        child::run("seeding pickles", seed, Duration::from_secs(60)).await.unwrap();

        let mut names: Vec<String> =
            std::fs::read_dir(&files).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names.len(), 13);
        for name in &names {
            assert!(is_pickle(&files.join(name), name).unwrap(), "{name}");
            let outcome = scan(&|| Ok(Command::new(&python)), &files, std::slice::from_ref(name)).await;
            match (name.split(['-', '.']).next().unwrap(), outcome) {
                ("clean", Ok(())) | ("hidden" | "noise", Err(Error::Unscanned { .. })) => {}
                ("wicked", Err(Error::Dangerous { path, globals })) => {
                    assert_eq!((&path, globals.as_str()), (name, "posix.system"));
                }
                (_, outcome) => panic!("{name}: {outcome:?}"),
            }
        }
        assert!(!files.join("wicked-ran").exists());
    }
}
