//! What people and programs read: results on standard output, everything else on standard error.

use std::fmt::Display;
use std::io::{ErrorKind, Write};

use anyhow::Result;
use comfy_table::{Attribute, Cell, Color, ContentArrangement, Table, presets};
use serde::Serialize;
use serde_json::Value;

/// One line, or several, on standard output.
pub(crate) fn line(text: impl Display) -> Result<()> {
    let mut stdout = anstream::stdout().lock();
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        // The reader has seen enough: `stoke list | head`.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        done => Ok(done?),
    }
}

/// Bytes on standard output, as they are.
pub(crate) fn raw(bytes: &[u8]) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        // As above.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        done => Ok(done?),
    }
}

/// A JSON document on standard output.
pub(crate) fn json(value: &impl Serialize) -> Result<()> {
    line(serde_json::to_string_pretty(value)?)
}

/// One JSON document on one line: for streams of them.
pub(crate) fn json_line(value: &impl Serialize) -> Result<()> {
    line(serde_json::to_string(value)?)
}

/// Something a person wants to know, on standard error, out of the way of results.
pub(crate) fn note(text: impl Display) {
    // A person who cannot be reached is no reason to stop.
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// Why the command failed.
pub(crate) fn error(error: &anyhow::Error) {
    note(format_args!("\x1b[31;1merror\x1b[0m: {error:#}"));
}

/// Dimmed on a terminal.
pub(crate) fn dim(text: impl Display) -> String {
    format!("\x1b[2m{text}\x1b[0m")
}

/// Bold on a terminal.
pub(crate) fn bold(text: impl Display) -> String {
    format!("\x1b[1m{text}\x1b[0m")
}

/// A table with these headings.
pub(crate) fn table<const N: usize>(headings: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(headings.map(|heading| Cell::new(heading).add_attribute(Attribute::Bold)));
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

/// A job's or a worker's state, in the colour of how good it is.
pub(crate) fn state_cell(state: &str) -> Cell {
    let cell = Cell::new(state);
    match state {
        "succeeded" | "completed" | "delivered" | "ready" | "ok" | "allow" => cell.fg(Color::Green),
        "failed" | "exhausted" | "lost" | "fail" | "reject" => cell.fg(Color::Red),
        "cancelled" | "expired" | "disabled" | "paused" | "draining" | "warn" => cell.fg(Color::Yellow),
        "running" | "validating" | "finalizing" => cell.fg(Color::Cyan),
        _ => cell,
    }
}

/// Prints a table, or what to say when it is empty.
pub(crate) fn print_table(table: &Table, when_empty: &str) -> Result<()> {
    if table.is_empty() {
        note(when_empty);
        return Ok(());
    }
    line(table.trim_fmt())
}

/// Milliseconds as a person says them.
pub(crate) fn millis(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{:.1} s", ms as f64 / 1e3),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms / 1_000 % 60),
        3_600_000..86_400_000 => format!("{} h {} min", ms / 3_600_000, ms / 60_000 % 60),
        _ => format!("{} d {} h", ms / 86_400_000, ms / 3_600_000 % 24),
    }
}

/// How long ago an RFC 3339 time was. Clocks differ: what lies ahead is said to be now.
pub(crate) fn ago(at: &Value) -> String {
    let now = stokehold_queue::now_ms();
    millis_of(at).map_or("-".to_owned(), |at| since(at.min(now), now))
}

/// How long ago an RFC 3339 time was, or how long it is until then.
pub(crate) fn when(at: &Value) -> String {
    millis_of(at).map_or("-".to_owned(), |at| since(at, stokehold_queue::now_ms()))
}

/// An RFC 3339 time as milliseconds since 1970.
pub(crate) fn millis_of(at: &Value) -> Option<u64> {
    let at = time::OffsetDateTime::parse(at.as_str()?, &time::format_description::well_known::Rfc3339).ok()?;
    u64::try_from(at.unix_timestamp_nanos() / 1_000_000).ok()
}

fn since(at_ms: u64, now_ms: u64) -> String {
    if at_ms.abs_diff(now_ms) < 1_000 {
        "now".to_owned()
    } else if at_ms < now_ms {
        format!("{} ago", millis(now_ms - at_ms))
    } else {
        format!("in {}", millis(at_ms - now_ms))
    }
}

/// A number with its thousands apart.
pub(crate) fn count(count: u64) -> String {
    indicatif::HumanCount(count).to_string()
}

/// Bytes as a person says them.
pub(crate) fn bytes(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

/// A JSON member as text in a cell: strings without quotes, nothing as a dash.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_said_as_people_say_them() {
        let said: Vec<String> = [7, 1_250, 61_000, 3_660_000, 90_000_000].map(millis).to_vec();
        assert_eq!(said, ["7 ms", "1.2 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]);
    }

    #[test]
    fn times_lie_before_and_after_now() {
        let said = [(0, 7_000), (7_000, 0), (7_000, 6_500)].map(|(at, now)| since(at, now));
        assert_eq!(said, ["7.0 s ago", "in 7.0 s", "now"]);
        assert_eq!(count(1_234_567), "1,234,567");
    }

    #[test]
    fn cells_show_nothing_as_a_dash() {
        assert_eq!([cell(&Value::Null), cell(&"".into()), cell(&"a".into()), cell(&1.into())], ["-", "-", "a", "1"]);
    }
}
