//! Terminal output: results on standard output, everything else on standard error.

mod table;

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal as _, Write};

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

pub(crate) use table::{Table, print_table, state_cell, table};

/// Prints text and a line end on standard output.
pub(crate) fn line(text: impl Display) -> Result<()> {
    let mut stdout = anstream::stdout().lock();
    let text = text.to_string();
    let text = if may_obey(&stdout) { visible(&text) } else { Cow::Owned(text) };
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        // The reader closed the pipe, e.g. `stoke list | head`.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        done => Ok(done?),
    }
}

/// Prints bytes unchanged on standard output; on a terminal, control characters are JSON-escaped.
pub(crate) fn raw(bytes: &[u8]) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    let done = if stdout.is_terminal() {
        stdout.write_all(escape_json(&String::from_utf8_lossy(bytes)).as_bytes())
    } else {
        stdout.write_all(bytes)
    };
    match done.and_then(|()| stdout.flush()) {
        // The reader closed the pipe, e.g. `stoke list | head`.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        done => Ok(done?),
    }
}

/// Prints text without escaping control characters, even on a terminal.
pub(crate) fn unescaped(mut to: impl Write, text: &str) -> Result<()> {
    match to.write_all(text.as_bytes()).and_then(|()| to.flush()) {
        // The reader closed the pipe, e.g. `stoke list | head`.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        done => Ok(done?),
    }
}

/// Clears the screen of the terminal on standard output.
pub(crate) fn clear_screen() -> Result<()> {
    // Cursor home, then clear to the end: no flicker and no remains of the last screen.
    unescaped(std::io::stdout(), "\x1b[H\x1b[J")
}

/// Returns whether escape sequences written to the stream may reach a terminal.
fn may_obey<S: anstream::stream::RawStream>(stream: &anstream::AutoStream<S>) -> bool {
    stream.is_terminal() || stream.current_choice() != anstream::ColorChoice::Never
}

/// Returns whether a character controls a terminal or the text direction: C0 (except line ends and tabs), DEL, C1 and
/// Unicode direction controls.
fn is_control(letter: char) -> bool {
    match letter {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        letter => letter.is_control(),
    }
}

/// Escapes all control characters of untrusted text from handlers, hosts and other users.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let escape =
        |letter: char| if is_control(letter) { letter.escape_default().to_string() } else { letter.to_string() };
    Cow::Owned(text.chars().map(escape).collect())
}

/// Like [`plain`], but keeps colours, which this program writes itself. Applied to everything that goes to a terminal.
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

/// Length of the colour sequence at the start of a text: `ESC [ numbers m`, without those that hide text or blink.
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

/// Escapes the control characters that JSON allows unescaped (DEL, C1, direction controls). The result is an equal
/// document.
fn escape_json(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let escape =
        |letter: char| if is_control(letter) { format!("\\u{:04x}", u32::from(letter)) } else { letter.to_string() };
    Cow::Owned(text.chars().map(escape).collect())
}

/// Prints a JSON document on standard output.
pub(crate) fn json(value: &impl Serialize) -> Result<()> {
    json_text(&serde_json::to_string_pretty(value)?)
}

/// Prints a JSON document on one line.
pub(crate) fn json_line(value: &impl Serialize) -> Result<()> {
    json_text(&serde_json::to_string(value)?)
}

fn json_text(text: &str) -> Result<()> {
    let escaped = if std::io::stdout().is_terminal() { escape_json(text) } else { Cow::Borrowed(text) };
    line(escaped)
}

/// Prints a note on standard error.
pub(crate) fn note(text: impl Display) {
    let mut stderr = anstream::stderr().lock();
    let text = text.to_string();
    let text = if may_obey(&stderr) { visible(&text) } else { Cow::Owned(text) };
    // A failure to print a note must not stop the command.
    let _ = writeln!(stderr, "{text}");
}

/// Prints the error of a failed command.
pub(crate) fn error(error: &anyhow::Error) {
    note(format_args!("\x1b[31;1merror\x1b[0m: {error:#}"));
}

/// Text that is dimmed on a terminal.
pub(crate) fn dim(text: impl Display) -> String {
    format!("\x1b[2m{text}\x1b[0m")
}

/// Text that is bold on a terminal.
pub(crate) fn bold(text: impl Display) -> String {
    format!("\x1b[1m{text}\x1b[0m")
}

/// Formats a duration in milliseconds.
pub(crate) fn millis(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{:.1} s", ms as f64 / 1e3),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms / 1_000 % 60),
        3_600_000..86_400_000 => format!("{} h {} min", ms / 3_600_000, ms / 60_000 % 60),
        _ => format!("{} d {} h", ms / 86_400_000, ms / 3_600_000 % 24),
    }
}

/// Formats an RFC 3339 time as its age. A time in the future counts as now, because clocks differ.
pub(crate) fn ago<'a>(at: impl Into<Option<&'a str>>) -> String {
    let now = stokehold_queue::now_ms();
    millis_of(at).map_or("-".to_owned(), |at| since(at.min(now), now))
}

/// Formats an RFC 3339 time as its age, or as the time until then.
pub(crate) fn when<'a>(at: impl Into<Option<&'a str>>) -> String {
    millis_of(at).map_or("-".to_owned(), |at| since(at, stokehold_queue::now_ms()))
}

/// Parses an RFC 3339 time to milliseconds since 1970.
pub(crate) fn millis_of<'a>(at: impl Into<Option<&'a str>>) -> Option<u64> {
    let at = time::OffsetDateTime::parse(at.into()?, &time::format_description::well_known::Rfc3339).ok()?;
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

/// Formats a number with thousands separators.
pub(crate) fn count(count: u64) -> String {
    indicatif::HumanCount(count).to_string()
}

/// Formats a number of things, e.g. `1 job` or `1,200 jobs`.
pub(crate) fn counted(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", count(number))
}

/// Formats a size in bytes with a binary unit.
pub(crate) fn bytes(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

/// Formats text for a cell: without control characters, missing and empty text as a dash.
pub(crate) fn text<'a>(text: impl Into<Option<&'a str>>) -> String {
    match text.into() {
        None | Some("") => "-".to_owned(),
        Some(text) => plain(text).into_owned(),
    }
}

/// Formats a number for a cell, or a dash if it is missing.
pub(crate) fn number(number: Option<impl Display>) -> String {
    number.map_or("-".to_owned(), |number| number.to_string())
}

/// Formats a JSON value for a cell: strings without quotes and control characters, null and empty strings as a dash.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(word) => text(word.as_str()),
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
        assert_eq!([0, 1, 1_200].map(|number| counted(number, "job")), ["0 jobs", "1 job", "1,200 jobs"]);
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
