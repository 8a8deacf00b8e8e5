//! What every service of ours on a machine has in common: its unit, its files, systemd.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

/// Where the units of `deploy/` say that the program is.
pub(crate) const UNIT_PROGRAM: &str = "/usr/local/bin/stoke";

/// A stop waits for a drain: the longest `TimeoutStopSec` of the units, and some.
const SYSTEMCTL_LIMIT: Duration = Duration::from_secs(150);

/// The link that an upgrade moves, so that no unit need change.
const CURRENT: &str = "/opt/stokehold/current/bin/stoke";

/// The program that units start: the one that is named, link or not, else this one, by the link that leads to it.
pub(crate) fn program(named: Option<&Path>) -> Result<PathBuf> {
    let program = match named {
        Some(path) => std::path::absolute(path)?,
        None => {
            let this = std::env::current_exe().context("cannot find the path of this program")?;
            let is_current = fs::canonicalize(CURRENT).is_ok_and(|current| current == this);
            if is_current { CURRENT.into() } else { this }
        }
    };
    ensure!(program.is_file(), "{} is no program", program.display());
    Ok(program)
}

/// A unit that starts this program.
pub(crate) fn unit(text: &str, program: &Path) -> Result<String> {
    let program = program.to_str().filter(|path| !path.contains(|c: char| c.is_whitespace() || "\"'\\%$".contains(c)));
    let program =
        program.context("systemd cannot start a program of such a path: move it, or name a link with --program")?;
    Ok(text.replace(UNIT_PROGRAM, program))
}

/// Settings as systemd reads a file of variables, and a shell too: in double quotes, where four characters need a
/// backslash.
pub(crate) fn variables<'a>(by: &str, settings: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<String> {
    let mut text = format!("# Written by `{by}`.\n");
    for (name, value) in settings {
        ensure!(!value.contains(|c: char| c.is_control()), "{name} holds a line break or another control character");
        let escaped: String =
            value.chars().flat_map(|c| "\"\\$`".contains(c).then_some('\\').into_iter().chain([c])).collect();
        text.push_str(&format!("{name}=\"{escaped}\"\n"));
    }
    Ok(text)
}

/// What [`variables`] wrote.
pub(crate) fn read_variables(text: &str) -> Result<BTreeMap<String, String>> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, quoted) = line.split_once('=').with_context(|| "a line without =")?;
            let inner = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            let inner = inner.with_context(|| format!("{name} does not stand in double quotes"))?;
            let (mut value, mut characters) = (String::new(), inner.chars());
            while let Some(character) = characters.next() {
                value.extend(if character == '\\' { characters.next() } else { Some(character) });
            }
            Ok((name.to_owned(), value))
        })
        .collect()
}

/// Writes a file whole or not at all, and never readable by others on the way.
pub(crate) fn write(path: &Path, text: &str, mode: u32) -> Result<()> {
    let what = || format!("cannot write {}", path.display());
    let folder = path.parent().context("a path without a folder")?;
    fs::create_dir_all(folder).with_context(what)?;
    let mut file = tempfile::NamedTempFile::new_in(folder).with_context(what)?;
    file.write_all(text.as_bytes()).with_context(what)?;
    file.as_file().set_permissions(fs::Permissions::from_mode(mode)).with_context(what)?;
    file.as_file().sync_all().with_context(what)?;
    file.persist(path).with_context(what)?;
    Ok(())
}

/// Removes a file that may not be there.
pub(crate) fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Whether systemd runs this machine.
pub(crate) fn has_systemd() -> bool {
    Path::new("/run/systemd/system").exists()
}

/// Has systemd do something.
pub(crate) async fn systemctl(arguments: &[&str]) -> Result<()> {
    command("systemctl", arguments, SYSTEMCTL_LIMIT).await.context("`journalctl -xe` may say why")
}

/// Runs a program to its end, with what it prints before the reader's eyes.
pub(crate) async fn command(program: &str, arguments: &[&str], limit: Duration) -> Result<()> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let what = || format!("{program} {}", arguments.join(" "));
    let ended = tokio::time::timeout(limit, command.status()).await;
    let status = ended.with_context(|| format!("{} does not end", what()))?.with_context(what)?;
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
