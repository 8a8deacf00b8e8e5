//! What people and programs read: results on standard output, everything else on standard error.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal as _, Write};

use anyhow::Result;
use comfy_table::{Attribute, Cell, Color, ContentArrangement, Table, presets};
use serde::Serialize;
use serde_json::Value;

/// One line, or several, on standard output.
pub(crate) fn line(text: impl Display) -> Result<()> {
    let mut stdout = anstream::stdout().lock();
    let text = text.to_string();
    let text = if may_obey(&stdout) { visible(&text) } else { Cow::Owned(text) };
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        // The reader has seen enough: `stoke list | head`.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        done => Ok(done?),
    }
}

/// Bytes on standard output as they are, and on a terminal with every control character as JSON escapes it.
pub(crate) fn raw(bytes: &[u8]) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    let done = if stdout.is_terminal() {
        stdout.write_all(escape_json(&String::from_utf8_lossy(bytes)).as_bytes())
    } else {
        stdout.write_all(bytes)
    };
    match done.and_then(|()| stdout.flush()) {
        // As above.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        done => Ok(done?),
    }
}

/// Text as it is, also on a terminal that would obey it: for who asks for that.
pub(crate) fn unescaped(mut to: impl Write, text: &str) -> Result<()> {
    match to.write_all(text.as_bytes()).and_then(|()| to.flush()) {
        // As above.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        done => Ok(done?),
    }
}

/// Empties the screen of the terminal on standard output.
pub(crate) fn clear_screen() -> Result<()> {
    // Home, and everything after it cleared: no flicker, and nothing of the last look stays.
    unescaped(std::io::stdout(), "\x1b[H\x1b[J")
}

/// Whether what is written there may reach a terminal with its escape sequences.
fn may_obey<S: anstream::stream::RawStream>(stream: &anstream::AutoStream<S>) -> bool {
    stream.is_terminal() || stream.current_choice() != anstream::ColorChoice::Never
}

/// Whether a terminal obeys it or lets it change the order of what is read: C0, DEL and C1 but for line ends and tabs,
/// and the Unicode controls of direction.
fn is_control(letter: char) -> bool {
    match letter {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        letter => letter.is_control(),
    }
}

/// Text of handlers, hosts and other people, with every control character as an escape: a terminal obeys none of it.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let escape =
        |letter: char| if is_control(letter) { letter.escape_default().to_string() } else { letter.to_string() };
    Cow::Owned(text.chars().map(escape).collect())
}

/// As [`plain`], but for colours, which this program writes too. The last guard of a terminal, whatever is printed.
fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let (mut shown, mut rest) = (String::with_capacity(text.len() + 16), text);
    while let Some(letter) = rest.chars().next() {
        let length = colour(rest).unwrap_or(letter.len_utf8());
        if is_control(letter) && length == letter.len_utf8() {
            shown.extend(letter.escape_default());
        } else {
            shown.push_str(&rest[..length]);
        }
        rest = &rest[length..];
    }
    Cow::Owned(shown)
}

/// The length of the colour that a text begins with: `ESC [ numbers m`, of those that hide nothing and do not blink.
fn colour(text: &str) -> Option<usize> {
    let numbers = text.strip_prefix("\x1b[")?;
    let end = numbers.find(|letter: char| !(letter.is_ascii_digit() || letter == ';'))?;
    let (numbers, rest) = numbers.split_at(end);
    let is_plain =
        |number: &str| number.is_empty() || matches!(number.parse(), Ok(0_u8..=2 | 22 | 30..=37 | 39 | 90..=97));
    let is_known = match numbers.strip_prefix("38;5;") {
        Some(number) => number.parse::<u8>().is_ok(),
        None => numbers.split(';').all(is_plain),
    };
    (is_known && rest.starts_with('m')).then_some("\x1b[m".len() + end)
}

/// JSON with the control characters that it may hold as they are (DEL, C1 and those of direction) as its own escapes:
/// another spelling of the same document.
fn escape_json(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let escape =
        |letter: char| if is_control(letter) { format!("\\u{:04x}", u32::from(letter)) } else { letter.to_string() };
    Cow::Owned(text.chars().map(escape).collect())
}

/// A JSON document on standard output.
pub(crate) fn json(value: &impl Serialize) -> Result<()> {
    json_text(&serde_json::to_string_pretty(value)?)
}

/// One JSON document on one line: for streams of them.
pub(crate) fn json_line(value: &impl Serialize) -> Result<()> {
    json_text(&serde_json::to_string(value)?)
}

fn json_text(text: &str) -> Result<()> {
    let escaped = if std::io::stdout().is_terminal() { escape_json(text) } else { Cow::Borrowed(text) };
    line(escaped)
}

/// Something a person wants to know, on standard error, out of the way of results.
pub(crate) fn note(text: impl Display) {
    let mut stderr = anstream::stderr().lock();
    let text = text.to_string();
    let text = if may_obey(&stderr) { visible(&text) } else { Cow::Owned(text) };
    // A person who cannot be reached is no reason to stop.
    let _ = writeln!(stderr, "{text}");
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

/// A JSON member as text in a cell: strings without quotes and control characters, nothing as a dash.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => plain(text).into_owned(),
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
    fn a_terminal_obeys_nothing_but_colours() {
        for hostile in [
            "\x1b]0;title\x07",
            "\x1b]52;c;bG9vdA==\x07",
            "\x1b]8;;http://evil\x1b\\",
            "\x1b[2J",
            "\x1b[8m",
            "\x1b[1;8m",
            "\x1b[5m",
            "\x1b[31",
            "\x1bc",
            "\x1bPq",
            "\u{9b}2J",
            "\u{9d}0;title\u{9c}",
            "\r",
            "\x08",
            "\x7f",
            "\u{202e}",
            "\u{2066}",
        ] {
            let shown = visible(hostile);
            assert!(!shown.contains(is_control), "{shown:?}");
            assert!(!plain(hostile).contains(is_control));
            let json = serde_json::to_string(hostile).unwrap();
            let escaped = escape_json(&json);
            assert!(!escaped.contains(is_control), "{escaped:?}");
            assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), hostile);
        }
        let ours = format!("{} {}\n\t\x1b[31;1merror\x1b[0m \x1b[38;5;10mok\x1b[39m é 日本", dim("a"), bold("b"));
        assert_eq!(visible(&ours), ours);
        assert_eq!(plain("\x1b[31mred"), "\\u{1b}[31mred");
    }

    #[test]
    fn cells_show_nothing_as_a_dash() {
        assert_eq!([cell(&Value::Null), cell(&"".into()), cell(&"a".into()), cell(&1.into())], ["-", "-", "a", "1"]);
    }
}
