//! Judges the facts. Pure.

use std::path::Path;

use super::Finding;
use super::facts::{DriverError, Gpus, Pythons};
use crate::environment::RunnerWheel;
use crate::environment::interpreter::serves;
use crate::sandbox::Level;

/// Name of the finding about GPUs.
pub(super) const GPUS: &str = "GPUs";

/// Minimum glibc of worker archives. A `stoke` that was built elsewhere may require more, but then would not have
/// started.
const GLIBC_MIN: (u32, u32) = (2, 28);

/// The oldest CUDA that current builds of PyTorch, vLLM and similar frameworks run on, by minor version compatibility.
const CUDA_MIN: (u32, u32) = (12, 0);

/// Less free space causes a warning: the environment of a GPU framework is about 5 GB.
const DISK_COMFORT: u64 = 10 << 30;

/// A worker with less free space takes no jobs; see `disk.rs`.
const DISK_MIN: u64 = 64 << 20;

const CONTAINER: &str = "In a container, pass in the GPUs and the driver's libraries: docker run --gpus all (requires \
    nvidia-container-toolkit on the host). Outside a container, install the NVIDIA driver.";

pub(super) fn glibc(version: Option<&str>) -> Finding {
    const WHAT: &str = "glibc";
    match version.map(|version| (version, pair(version))) {
        Some((version, Some(numbers))) if numbers < GLIBC_MIN => Finding::fail(
            WHAT,
            format!("{version}, but worker archives require 2.28 or newer"),
            "Use a newer distribution or container image: Debian 10, Ubuntu 20.04, RHEL 8, or newer.",
        ),
        Some((version, _)) => Finding::ok(WHAT, version),
        None => Finding::ok(WHAT, "unknown version (getconf is not installed); this program runs on it"),
    }
}

pub(super) fn python(found: &Pythons) -> Finding {
    const WHAT: &str = "Python";
    match (&found.on_path, &found.other) {
        (Some(version), _) if serves(version) && found.problem.is_none() => Finding::ok(WHAT, version),
        (_, Some(other)) => Finding::ok(WHAT, other.display().to_string()),
        (old, None) => {
            let has = match (old, &found.problem) {
                (None, _) => "not found".to_owned(),
                (Some(version), None) => format!("{version}, which is too old"),
                (Some(version), Some(why)) => format!("{version}, which uv cannot use: {why}"),
            };
            Finding::warn(
                WHAT,
                format!("{has}; uv downloads one for the first job that needs it"),
                "If this machine cannot reach the download host, install Python 3.9 or newer as python3 on PATH (Debian and Ubuntu before Python 3.12: also python3-distutils).",
            )
        }
    }
}

pub(super) fn uv(found: Result<String, String>) -> Finding {
    const WHAT: &str = "uv";
    match found {
        Ok(found) => Finding::ok(WHAT, found),
        Err(why) => Finding::fail(WHAT, why, "Install it with `pip install uv`, or set STOKE_UV to the binary."),
    }
}

pub(super) fn wheel(wheel: &RunnerWheel) -> Finding {
    const WHAT: &str = "runner wheel";
    match wheel {
        RunnerWheel::File(path) if path.is_file() => Finding::ok(WHAT, path.display().to_string()),
        RunnerWheel::File(path) => Finding::fail(
            WHAT,
            format!("{} does not exist", path.display()),
            "Set STOKE_RUNNER_WHEEL to a stokehold wheel.",
        ),
        RunnerWheel::Requirement(requirement) => Finding::warn(
            WHAT,
            format!("none next to this program; {requirement} will be installed from the package index"),
            "In a checkout, run `make wheel`; otherwise set STOKE_RUNNER_WHEEL.",
        ),
    }
}

/// Judges the sandbox level, what handlers can still do, and why no higher level is available.
pub(super) fn sandbox(found: Result<(Level, &str, &str), &str>) -> Finding {
    const WHAT: &str = "sandbox";
    match found {
        Ok((Level::L0, remains, lacks)) => Finding::warn(
            WHAT,
            format!("L0; {remains}{}", because(lacks)),
            "Run only handlers that you trust, or use Linux 5.13 or newer and leave STOKE_SANDBOX unset.",
        ),
        Ok((level, remains, lacks)) => Finding::ok(WHAT, format!("{level}; {remains}{}", because(lacks))),
        Err(why) => {
            Finding::fail(WHAT, why, "Unset STOKE_SANDBOX to use the highest level that this machine supports.")
        }
    }
}

fn because(lacks: &str) -> String {
    if lacks.is_empty() { String::new() } else { format!("; no higher level is available: {lacks}") }
}

pub(super) fn gpus(found: &Gpus) -> Finding {
    let kernel = found.kernel.as_deref();
    let driver = match &found.nvml {
        Ok(driver) => driver,
        Err(error) => return without_driver(error, found.has_devices, kernel),
    };
    let cuda = driver.cuda.as_deref();
    let version = driver.version.as_deref().unwrap_or("unknown");
    let serves = cuda.map_or(String::new(), |cuda| format!(", CUDA {cuda}"));
    if driver.gpus.is_empty() {
        return Finding::warn(
            GPUS,
            format!("driver {version} is loaded but reports no GPU"),
            "In a container, start it with --gpus all and check NVIDIA_VISIBLE_DEVICES; otherwise make sure that `nvidia-smi` lists the GPUs.",
        );
    }
    let gpus = format!("{} (driver {version}{serves})", driver.gpus.join(", "));
    if !found.has_cuda_library {
        return Finding::fail(
            GPUS,
            format!("{gpus}, but libcuda.so.1 is missing: no program can compute on them"),
            "In a container, set NVIDIA_DRIVER_CAPABILITIES to `compute,utility`; otherwise install the driver's libcuda.",
        );
    }
    let newest = cuda.and_then(pair);
    if newest.is_some_and(|newest| newest < CUDA_MIN) {
        return Finding::warn(
            GPUS,
            format!(
                "{gpus}: this driver is too old for current builds of PyTorch and similar frameworks, which need CUDA 12"
            ),
            "Install driver 525 or newer.",
        );
    }
    match (found.image_cuda.as_deref().and_then(pair), newest) {
        // Within a major version, newer programs run on older drivers.
        (Some(image), Some(newest)) if image.0 > newest.0 => Finding::warn(
            GPUS,
            format!("{gpus}: this image contains CUDA {}.{}, which this driver does not support", image.0, image.1),
            format!("Install a newer driver, or use an image with CUDA {} or older.", newest.0),
        ),
        _ => Finding::ok(GPUS, gpus),
    }
}

fn without_driver(error: &DriverError, has_devices: bool, kernel: Option<&str>) -> Finding {
    let in_kernel = kernel.map_or(String::new(), |version| format!(" (loaded driver: {version})"));
    match error {
        DriverError::Mismatch => Finding::fail(
            GPUS,
            format!(
                "the driver's library and the driver loaded in the kernel have different versions{in_kernel}: the driver was updated but not reloaded"
            ),
            "Reboot, or stop every process that uses the GPUs and reload the module: rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia; modprobe nvidia.",
        ),
        DriverError::NoLibrary if has_devices => Finding::fail(
            GPUS,
            format!("this machine has GPUs, but libnvidia-ml.so.1 is missing{in_kernel}"),
            CONTAINER,
        ),
        DriverError::NotLoaded if has_devices => Finding::fail(
            GPUS,
            "GPU device files exist, but no driver is loaded in the kernel",
            "Load it with `modprobe nvidia`; if that fails, see `dmesg`.",
        ),
        DriverError::Other(why) if has_devices => Finding::fail(
            GPUS,
            format!("this machine has GPUs, but NVML fails: {why}{in_kernel}"),
            "Make sure that `nvidia-smi` works.",
        ),
        _ if kernel.is_some() => Finding::warn(
            GPUS,
            format!("none visible, but the host has an NVIDIA driver{in_kernel}: this worker would run CPU jobs only"),
            CONTAINER,
        ),
        _ => Finding::ok(GPUS, "none; this machine runs CPU endpoints only"),
    }
}

pub(super) fn disk(folder: &Path, free_bytes: Result<u64, String>) -> Finding {
    const WHAT: &str = "disk";
    const FIX: &str = "A GPU environment takes about 5 GB; set STOKE_CACHE_DIR to a folder with more space.";
    match free_bytes {
        Ok(free) => {
            let found =
                format!("{:.1} GiB free for environments in {}", free as f64 / (1_u64 << 30) as f64, folder.display());
            match free {
                ..DISK_MIN => Finding::fail(WHAT, found, FIX),
                DISK_MIN..DISK_COMFORT => Finding::warn(WHAT, found, FIX),
                _ => Finding::ok(WHAT, found),
            }
        }
        Err(why) => Finding::warn(WHAT, why, "Set STOKE_CACHE_DIR to a writable folder."),
    }
}

pub(super) fn gateway(url: &str, release: Result<String, String>) -> Finding {
    const WHAT: &str = "gateway";
    match release {
        Ok(release) if release == env!("CARGO_PKG_VERSION") => {
            Finding::ok(WHAT, format!("{url} runs release {release}"))
        }
        Ok(release) => Finding::warn(
            WHAT,
            format!("{url} runs release {release}, but this worker is release {}", env!("CARGO_PKG_VERSION")),
            "Install the worker release that this gateway provides, with its /v1/worker/install.sh.",
        ),
        Err(why) => Finding::fail(
            WHAT,
            why,
            "Check the address and firewalls; with https, also check this machine's clock and certificates (package ca-certificates).",
        ),
    }
}

/// Parses the first two numbers of e.g. `12.8` or `12.8.1`.
fn pair(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

#[cfg(test)]
mod tests {
    use super::super::Verdict::{self, Fail, Ok as Good, Warn};
    use super::super::facts::Driver;
    use super::*;

    fn no_driver(error: DriverError, has_devices: bool, kernel: Option<&str>) -> (Verdict, String) {
        let kernel = kernel.map(str::to_owned);
        judged(gpus(&Gpus { has_devices, kernel, nvml: Err(error), has_cuda_library: false, image_cuda: None }))
    }

    fn driver(cuda: &str, names: &[&str], has_cuda_library: bool, image_cuda: Option<&str>) -> (Verdict, String) {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let nvml = Ok(Driver { version: Some("535.129.03".into()), cuda: Some(cuda.into()), gpus: names });
        let image_cuda = image_cuda.map(str::to_owned);
        judged(gpus(&Gpus { has_devices: true, kernel: None, nvml, has_cuda_library, image_cuda }))
    }

    fn judged(finding: Finding) -> (Verdict, String) {
        let text = format!("{}. {}", finding.found, finding.fix.unwrap_or_default());
        (finding.verdict, text)
    }

    #[track_caller]
    fn check((verdict, text): (Verdict, String), expected: Verdict, parts: &[&str]) {
        assert_eq!(verdict, expected, "{text}");
        parts.iter().for_each(|part| assert!(text.contains(part), "{part:?} is not in {text:?}"));
    }

    #[test]
    fn a_machine_without_gpus_runs_cpu_jobs() {
        check(no_driver(DriverError::NoLibrary, false, None), Good, &["CPU"]);
        check(no_driver(DriverError::NotLoaded, false, None), Good, &["CPU"]);
    }

    #[test]
    fn a_container_without_gpus_is_reported_with_the_fix() {
        check(
            no_driver(DriverError::NoLibrary, true, Some("550.54")),
            Fail,
            &["libnvidia-ml.so.1", "550.54", "--gpus all"],
        );
        check(no_driver(DriverError::NoLibrary, false, Some("550.54")), Warn, &["550.54", "--gpus all", "CPU jobs"]);
        check(driver("12.8", &[], true, None), Warn, &["no GPU", "NVIDIA_VISIBLE_DEVICES"]);
        check(driver("12.8", &["RTX 4090"], false, None), Fail, &["libcuda.so.1", "compute"]);
    }

    #[test]
    fn a_driver_that_was_updated_under_the_kernel_wants_a_reboot() {
        check(no_driver(DriverError::Mismatch, true, Some("535.54.03")), Fail, &["535.54.03", "Reboot"]);
        check(no_driver(DriverError::NotLoaded, true, None), Fail, &["modprobe nvidia"]);
        check(
            no_driver(DriverError::Other("unknown error".into()), true, None),
            Fail,
            &["unknown error", "nvidia-smi"],
        );
    }

    #[test]
    fn an_old_driver_and_a_newer_image_are_named_with_their_versions() {
        check(
            driver("12.8", &["RTX 4090", "RTX 3090"], true, None),
            Good,
            &["RTX 4090, RTX 3090", "535.129.03", "CUDA 12.8"],
        );
        check(driver("11.4", &["RTX 3090"], true, None), Warn, &["CUDA 11.4", "driver 525"]);
        check(driver("12.2", &["RTX 3090"], true, Some("13.0.1")), Warn, &["CUDA 13.0", "CUDA 12 or older"]);
        check(driver("12.2", &["RTX 3090"], true, Some("12.8.1")), Good, &[]);
        check(driver("12.2", &["RTX 3090"], true, Some("odd")), Good, &[]);
    }

    #[test]
    fn a_missing_or_old_python_is_no_reason_to_stay_away() {
        let found = |on_path: Option<&str>, other: Option<&str>| {
            judged(python(&Pythons {
                on_path: on_path.map(str::to_owned),
                problem: None,
                other: other.map(Into::into),
            }))
        };
        check(found(Some("3.9.2"), None), Good, &["3.9.2"]);
        check(found(Some("3.6.8"), Some("/usr/bin/python3.11")), Good, &["python3.11"]);
        check(found(Some("3.6.8"), None), Warn, &["3.6.8", "too old", "uv downloads"]);
        check(found(None, None), Warn, &["not found"]);
        let problem = Some("it is missing `distutils`".to_owned());
        let bare = Pythons { on_path: Some("3.9.2".to_owned()), problem, other: None };
        check(judged(python(&bare)), Warn, &["3.9.2", "distutils", "uv downloads"]);
    }

    #[test]
    fn the_rest_is_judged() {
        check(judged(glibc(Some("2.28"))), Good, &["2.28"]);
        check(judged(glibc(Some("2.17"))), Fail, &["2.17", "2.28"]);
        check(judged(glibc(None)), Good, &["unknown"]);
        check(judged(disk(Path::new("/x"), Ok(20 << 30))), Good, &["20.0 GiB", "/x"]);
        check(judged(disk(Path::new("/x"), Ok(1 << 30))), Warn, &["STOKE_CACHE_DIR"]);
        check(judged(disk(Path::new("/x"), Ok(0))), Fail, &["0.0 GiB"]);
        check(judged(sandbox(Ok((Level::L2, "they share the kernel", "")))), Good, &["L2", "share the kernel"]);
        check(judged(sandbox(Ok((Level::L1, "they see", "L2: no bwrap")))), Good, &["no bwrap"]);
        check(judged(sandbox(Ok((Level::L0, "they can do all", "closed")))), Warn, &["can do all", "closed", "trust"]);
        check(judged(sandbox(Err("it cannot"))), Fail, &["it cannot", "STOKE_SANDBOX"]);
        check(judged(gateway("http://g", Ok(env!("CARGO_PKG_VERSION").into()))), Good, &["http://g"]);
        check(judged(gateway("http://g", Ok("0.0.1".into()))), Warn, &["0.0.1", "install.sh"]);
        check(judged(gateway("http://g", Err("refused".into()))), Fail, &["refused", "ca-certificates"]);
    }
}
