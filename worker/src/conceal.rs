//! Hides secrets that were passed as environment variables from `/proc`.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};

/// Longer than any environment.
const ENVIRONMENT_BYTES_MAX: u64 = 8 << 20;

/// Overwrites these variables in `/proc/<pid>/environ`, where unsetting them has no effect, and prevents other
/// processes of the same user from reading this process's memory. Read the values of the variables before.
///
/// # Errors
/// If the kernel does not let this process write its own memory, or keep others out of it.
pub fn conceal(names: &[&str]) -> io::Result<()> {
    let (start, end) = bounds()?;
    let mut memory = File::options().read(true).write(true).open("/proc/self/mem")?;
    memory.seek(SeekFrom::Start(start))?;
    let mut environment = Vec::new();
    (&memory).take((end - start).min(ENVIRONMENT_BYTES_MAX)).read_to_end(&mut environment)?;
    for (from, length) in values(&environment, names) {
        memory.seek(SeekFrom::Start(start + from as u64))?;
        memory.write_all(&vec![0; length])?;
    }
    nix::sys::prctl::set_dumpable(false).map_err(Into::into)
}

/// The address range of the initial environment; see proc_pid_stat(5).
fn bounds() -> io::Result<(u64, u64)> {
    const STATE: usize = 3;
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The process name may contain any character and ends at the last bracket.
    let fields: Vec<&str> =
        stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
    let field = |number: usize| fields.get(number - STATE).and_then(|text| text.parse().ok());
    match (field(50), field(51)) {
        (Some(start), Some(end)) if 0 < start && start <= end => Ok((start, end)),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "/proc/self/stat does not contain the address of the environment",
        )),
    }
}

/// The offsets and lengths of the values of these variables.
fn values(environment: &[u8], names: &[&str]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut at = 0;
    for entry in environment.split(|byte| *byte == 0) {
        let name = entry.iter().position(|byte| *byte == b'=');
        if let Some(length) = name.filter(|length| names.iter().any(|name| name.as_bytes() == &entry[..*length])) {
            found.push((at + length + 1, entry.len() - length - 1));
        }
        at += entry.len() + 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_the_whole_name() {
        let environment = b"A=1\0STOKE_TOKEN_OLD=x\0STOKE_TOKEN=jt_1=2\0=odd\0B\0STOKE_TOKEN=\0";
        let found = values(environment, &["STOKE_TOKEN", "B"]);
        let texts: Vec<_> = found.iter().map(|(from, length)| &environment[*from..from + length]).collect();
        assert_eq!(texts, [&b"jt_1=2"[..], b""]);
    }
}
