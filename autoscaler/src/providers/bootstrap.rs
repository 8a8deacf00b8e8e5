//! The start script of rented machines: `deploy/vast/bootstrap.sh` with the worker archives filled in.

/// The script with placeholders for the worker archives.
const SCRIPT: &str = include_str!("../../../deploy/vast/bootstrap.sh");

/// Maximum size of the script, characters. The lowest limit that a provider documents is 4,048, and a wrapper may be
/// added.
pub const SCRIPT_CHARS_MAX: usize = 3_900;

/// A worker archive that the gateway serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerArchive {
    /// Architecture as printed by `uname -m`.
    pub arch: String,
    /// File name of the archive; its folder has the same name without `.tar.gz`.
    pub name: String,
    /// SHA-256 of the archive, hex. Machines refuse another archive.
    pub sha256: String,
}

/// An archive whose name, architecture or checksum is not a single word of a script.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not allowed in a script")]
pub struct NoWord(String);

/// Builds the script for machines of these architectures, without comments and indentation. Without archives it works
/// only if the machine's environment names a program (`STOKE_WORKER_PROGRAM`).
///
/// # Errors
/// [`NoWord`].
pub fn script(archives: &[WorkerArchive]) -> Result<String, NoWord> {
    let mut cases = Vec::new();
    for WorkerArchive { arch, name, sha256 } in archives {
        let is_word = |text: &&String| {
            !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        };
        if let Some(other) = [arch, name, sha256].into_iter().find(|text| !is_word(text)) {
            return Err(NoWord(other.clone()));
        }
        cases.push(format!("{arch}) archive={name} sum={sha256} ;;"));
    }
    let (first, rest) = SCRIPT.split_once('\n').unwrap_or((SCRIPT, ""));
    let is_code = |line: &&str| !line.starts_with('#') && !line.is_empty();
    let code = rest.lines().map(str::trim_start).filter(is_code);
    let lines: Vec<&str> = std::iter::once(first).chain(code).collect();
    Ok(lines.join("\n").replace("@ARCHIVES@", &cases.join("\n")) + "\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use stokehold_vast::{env, path};

    use super::*;

    fn archive(arch: &str) -> WorkerArchive {
        let name = format!("stokehold-worker-{}-{arch}-linux.tar.gz", env!("CARGO_PKG_VERSION"));
        WorkerArchive { arch: arch.to_owned(), name, sha256: "0".repeat(64) }
    }

    #[test]
    fn it_is_short_enough_for_every_kind_of_machine() {
        let filled = script(&[archive("x86_64"), archive("aarch64")]).unwrap();
        assert!(filled.chars().count() < SCRIPT_CHARS_MAX, "{} characters", filled.chars().count());
        assert!(!filled.contains('@') && filled.starts_with("#!/bin/sh\n") && filled.ends_with("\nmain\n"), "{filled}");
    }

    #[test]
    fn the_script_spells_the_words_of_vast() {
        let url = format!("url=${{STOKE_VAST_URL:-{}}}{}\n", stokehold_vast::URL, path::instance("$CONTAINER_ID"));
        assert!(SCRIPT.contains(&url), "{url}");
        for variable in [env::CONTAINER_ID, env::CONTAINER_API_KEY] {
            assert!(SCRIPT.contains(&format!("[ \"${{{variable}:-}}\" ]")), "{variable}");
        }
        let key = format!("Bearer ${}\"", env::CONTAINER_API_KEY);
        let from_python = format!("\"Bearer \"+os.environ[\"{}\"]", env::CONTAINER_API_KEY);
        assert!(SCRIPT.contains(&key) && SCRIPT.contains(&from_python));
    }

    #[test]
    fn what_is_no_word_is_refused() {
        for name in ["a b", "a;b", "$(x)", ""] {
            let wrong = WorkerArchive { name: name.to_owned(), ..archive("x86_64") };
            assert_eq!(script(&[wrong]), Err(NoWord(name.to_owned())));
        }
    }
}
