//! Helpers for installing services: units, files and systemd.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

/// Path of the program in the units of `deploy/`.
pub(crate) const UNIT_PROGRAM: &str = "/usr/local/bin/stoke";

/// Timeout of systemctl. A stop waits for a drain, up to the longest `TimeoutStopSec` of the units.
const SYSTEMCTL_LIMIT: Duration = Duration::from_secs(150);

/// The symlink that an upgrade moves, so that units do not change.
const CURRENT: &str = "/opt/stokehold/current/bin/stoke";

/// The program that units start: the given path, else this program, through the symlink if it points here.
pub(crate) fn program(named: Option<&Path>) -> Result<PathBuf> {
    let program = match named {
        Some(path) => std::path::absolute(path)?,
        None => {
            let this = std::env::current_exe().context("cannot find the path of this program")?;
            let is_current = fs::canonicalize(CURRENT).is_ok_and(|current| current == this);
            if is_current { CURRENT.into() } else { this }
        }
    };
    ensure!(program.is_file(), "{} is not a program file", program.display());
    Ok(program)
}

/// Text of a unit, with the path of the program.
pub(crate) fn unit(text: &str, program: &Path) -> Result<String> {
    let program = program.to_str().filter(|path| !path.contains(|c: char| c.is_whitespace() || "\"'\\%$".contains(c)));
    let program =
        program.context("systemd cannot start a program whose path has spaces, quotes, \\, % or $: move it, or use a symlink with --program")?;
    Ok(text.replace(UNIT_PROGRAM, program))
}

/// Formats settings as an environment file that both systemd and a shell can read: double quotes, with four characters
/// escaped.
pub(crate) fn variables<'a>(by: &str, settings: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<String> {
    let mut text = format!("# Written by `{by}`.\n");
    for (name, value) in settings {
        ensure!(!value.contains(|c: char| c.is_control()), "{name} contains a line break or another control character");
        let escaped: String =
            value.chars().flat_map(|c| "\"\\$`".contains(c).then_some('\\').into_iter().chain([c])).collect();
        text.push_str(&format!("{name}=\"{escaped}\"\n"));
    }
    Ok(text)
}

/// Parses the output of [`variables`].
pub(crate) fn read_variables(text: &str) -> Result<BTreeMap<String, String>> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, quoted) = line.split_once('=').with_context(|| "a line has no =")?;
            let inner = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            let inner = inner.with_context(|| format!("the value of {name} is not in double quotes"))?;
            let (mut value, mut characters) = (String::new(), inner.chars());
            while let Some(character) = characters.next() {
                value.extend(if character == '\\' { characters.next() } else { Some(character) });
            }
            Ok((name.to_owned(), value))
        })
        .collect()
}

/// Writes a file atomically. It is never readable by others, not even temporarily.
pub(crate) fn write(path: &Path, text: &str, mode: u32) -> Result<()> {
    let what = || format!("cannot write {}", path.display());
    let folder = path.parent().context("the path has no parent folder")?;
    fs::create_dir_all(folder).with_context(what)?;
    let mut file = tempfile::NamedTempFile::new_in(folder).with_context(what)?;
    file.write_all(text.as_bytes()).with_context(what)?;
    file.as_file().set_permissions(fs::Permissions::from_mode(mode)).with_context(what)?;
    file.as_file().sync_all().with_context(what)?;
    file.persist(path).with_context(what)?;
    Ok(())
}

/// Removes a file if it exists.
pub(crate) fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Returns whether systemd is the init system of this machine.
pub(crate) fn has_systemd() -> bool {
    Path::new("/run/systemd/system").exists()
}

/// Runs systemctl.
pub(crate) async fn systemctl(arguments: &[&str]) -> Result<()> {
    command("systemctl", arguments, SYSTEMCTL_LIMIT).await.context("see `journalctl -xe`")
}

/// Runs a program. Its output goes to the terminal.
pub(crate) async fn command(program: &str, arguments: &[&str], limit: Duration) -> Result<()> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let what = || format!("{program} {}", arguments.join(" "));
    let ended = tokio::time::timeout(limit, command.status()).await;
    let status = ended.with_context(|| format!("{} timed out", what()))?.with_context(what)?;
    ensure!(status.success(), "{} failed ({status})", what());
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_unit_starts_the_program_that_was_named() {
        let unit = |program| unit("ExecStart=/usr/local/bin/stoke api\n", Path::new(program));
        assert_eq!(
            unit("/opt/stokehold/current/bin/stoke").unwrap(),
            "ExecStart=/opt/stokehold/current/bin/stoke api\n"
        );
        assert!(unit("/opt/my programs/stoke").is_err());
    }

    #[test]
    fn settings_are_written_as_systemd_reads_them_and_read_again() {
        let value = r#"a "b" $c `d` \e"#;
        let text = variables("stoke", [("STOKE_WORKER_NAME", value)]).unwrap();
        assert!(text.ends_with("STOKE_WORKER_NAME=\"a \\\"b\\\" \\$c \\`d\\` \\\\e\"\n"), "{text}");
        assert_eq!(read_variables(&text).unwrap()["STOKE_WORKER_NAME"], value);
        assert!(variables("stoke", [("STOKE_WORKER_NAME", "a\nSTOKE_SANDBOX=L0")]).is_err());
        assert!(read_variables("STOKE_WORKER_NAME=bare").is_err());
    }
}
