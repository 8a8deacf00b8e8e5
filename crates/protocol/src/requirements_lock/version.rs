//! Exact versions of PEP 440.

use super::{ARCHIVES, quoted};

const VERSION_BYTES_MAX: usize = 128;

/// Parses `==1.17.0`, without blanks. Ranges are rejected: with them, workers could install different versions.
pub(super) fn pinned(name: &str, text: &str) -> Result<String, String> {
    let lock = "create the lock with `uv pip compile`, as `stoke deploy` does for a requirements.txt";
    let Some(version) = text.strip_prefix("==") else {
        return Err(match text {
            "" => format!("{name} has no version; write {name}==VERSION, or {lock}"),
            _ => format!("{} is not one exact version of {name}; write {name}==VERSION, or {lock}", quoted(text)),
        });
    };
    let version = version.strip_prefix('=').unwrap_or(version).trim_start();
    let is_file = ARCHIVES.iter().any(|end| version.to_ascii_lowercase().ends_with(end));
    if version.len() > VERSION_BYTES_MAX || is_file || !is_version(version) {
        return Err(format!(
            "{} is not a version; write {name}==VERSION with one exact version, or {lock}",
            quoted(version)
        ));
    }
    Ok(format!("=={version}"))
}

/// Matches `[v][N!]N(.N)*` followed by words of letters and digits, separated by `.`, `-`, `_` or one `+`: slightly
/// more than PEP 440 allows, and nothing that is an option, a path or an expression.
fn is_version(text: &str) -> bool {
    let text = text.strip_prefix(['v', 'V']).unwrap_or(text);
    let (public, local) = text.split_once('+').map_or((text, None), |(public, local)| (public, Some(local)));
    let release = match public.split_once('!') {
        Some((epoch, release)) if is_number(epoch) => release,
        Some(_) => return false,
        None => public,
    };
    let words = |text: &str| {
        text.split(['.', '-', '_'])
            .all(|word| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric()))
    };
    release.starts_with(|c: char| c.is_ascii_digit()) && words(release) && local.is_none_or(words)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}
