//! Lists what Vite built of the dashboard, so that the binary carries it. Without it there is nothing to carry, and all else builds.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let variable =
        |name: &str| env::var_os(name).map(PathBuf::from).ok_or_else(|| io::Error::other(format!("no {name}")));
    let dashboard = variable("CARGO_MANIFEST_DIR")?.join("dashboard");
    let dist = dashboard.join("dist");
    // The folder appears with the first build: what stands above it is looked at for that.
    println!("cargo:rerun-if-changed={}", if dist.is_dir() { &dist } else { &dashboard }.display());
    let mut paths = Vec::new();
    if dist.is_dir() {
        walk(&dist, &mut paths)?;
    }
    paths.sort();
    let mut table = String::from("&[\n");
    for path in &paths {
        let name = path.strip_prefix(&dist).map_err(io::Error::other)?.to_string_lossy().replace('\\', "/");
        writeln!(table, "    ({name:?}, include_bytes!({path:?})),").map_err(io::Error::other)?;
    }
    table.push_str("]\n");
    fs::write(variable("OUT_DIR")?.join("dashboard.rs"), table)
}

/// The files below `folder`, without those whose names begin with a dot.
fn walk(folder: &Path, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), paths)?;
        } else {
            paths.push(entry.path());
        }
    }
    Ok(())
}
