//! Ends servers that all tests of a process share with that process.

use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// Ends processes and deletes their directory when this process ends, however it ends, because statics are not dropped.
pub struct Tie {
    _child: Child,
    _open: Option<ChildStdin>,
}

impl Tie {
    /// Ties the processes `pids` and the directory `dir` to this process.
    ///
    /// # Panics
    /// If there is no shell.
    #[must_use]
    pub fn new(dir: &Path, pids: impl IntoIterator<Item = u32>) -> Self {
        let mut child = Command::new("sh")
            .args(["-c", r#"cat >/dev/null; dir=$1; shift; kill -9 "$@"; rm -rf "$dir""#, "tie"])
            .arg(dir)
            .args(pids.into_iter().map(|pid| pid.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("there is a shell");
        let open = child.stdin.take();
        Self { _child: child, _open: open }
    }
}
