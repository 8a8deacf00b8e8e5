//! System files that a runner can read, at L1 and L2.

use std::path::PathBuf;

/// Folders that every program needs: read-only, if they exist.
pub(super) const SYSTEM: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/sys"];

/// Files in `/etc` that programs need; none of them contains secrets.
const ETC: [&str; 24] = [
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/fonts",
    "/etc/gai.conf",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/localtime",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/OpenCL",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/pki",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl",
    "/etc/vulkan",
];

/// Prefix of folders in which a distribution keeps parts of its Python. (Keys below `/etc/pki` and `/etc/ssl` are
/// readable by root only.)
const PYTHON: &str = "python3";

/// Variables passed to runners that name files or folders.
const NAMED: [&str; 7] =
    ["LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CUDA_HOME", "CUDA_PATH", "HF_HOME"];

/// The readable paths in `/etc`.
pub(super) fn etc() -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir("/etc").into_iter().flatten().flatten();
    let pythons = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PYTHON));
    ETC.iter().map(PathBuf::from).chain(pythons.map(|entry| entry.path()))
}

/// The paths that the worker's variables name.
pub(super) fn named() -> Vec<PathBuf> {
    let values = NAMED.iter().filter_map(std::env::var_os);
    let paths = values.flat_map(|value| std::env::split_paths(&value).collect::<Vec<_>>());
    paths.filter(|path| path.is_absolute() && path.parent().is_some()).collect()
}
