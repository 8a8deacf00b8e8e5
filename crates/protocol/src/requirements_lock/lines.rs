//! Turns lines as written into logical lines: joined after a `\`, without comments, with single blanks.

use super::{LINE_BYTES_MAX, LOCK_BYTES_MAX, LOCK_LINES_MAX, LockError};

/// A logical line, which may have been written as several.
pub(super) struct Logical {
    /// Number of its first line, from 1.
    pub(super) number: usize,
    /// Printable ASCII, words separated by one blank.
    pub(super) text: String,
}

pub(super) fn logical(text: &str) -> Result<Vec<Logical>, LockError> {
    let whole = |why: String| LockError { line: 0, why };
    if text.len() > LOCK_BYTES_MAX {
        return Err(whole(format!("must be at most {LOCK_BYTES_MAX} bytes")));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (mut lines, mut open): (Vec<Logical>, Option<Logical>) = (Vec::new(), None);
    for (number, line) in (1..).zip(text.split('\n')) {
        if number > LOCK_LINES_MAX {
            return Err(whole(format!("must be at most {LOCK_LINES_MAX} lines")));
        }
        let line = written(line).map_err(|why| LockError { line: number, why })?;
        let (part, goes_on) = match line.strip_suffix('\\') {
            Some(part) => (part, true),
            None => (line, false),
        };
        let logical = open.get_or_insert_with(|| Logical { number, text: String::new() });
        for word in part.split([' ', '\t']).filter(|word| !word.is_empty()) {
            if !logical.text.is_empty() {
                logical.text.push(' ');
            }
            logical.text.push_str(word);
        }
        if !goes_on {
            lines.extend(open.take().filter(|line| !line.text.is_empty()));
        }
    }
    if let Some(open) = open {
        return Err(LockError { line: open.number, why: "ends in a \\ without a next line".to_owned() });
    }
    Ok(lines)
}

/// A line without its line break and its comment. Only comments may contain more than ASCII, because they contain
/// authors' names.
fn written(line: &str) -> Result<&str, String> {
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.len() > LINE_BYTES_MAX {
        return Err(format!("is longer than {LINE_BYTES_MAX} bytes; put each hash on its own line, after a \\"));
    }
    if let Some(control) = line.chars().find(|c| c.is_control() && *c != '\t') {
        return Err(format!("contains the control character {}", control.escape_unicode()));
    }
    let blank = |byte: u8| byte == b' ' || byte == b'\t';
    let comment = line.bytes().enumerate().find_map(|(at, byte)| {
        let begins = byte == b'#' && (at == 0 || blank(line.as_bytes()[at - 1]));
        begins.then_some(at)
    });
    let line = line.get(..comment.unwrap_or(line.len())).unwrap_or_default().trim_end_matches([' ', '\t']);
    match line.chars().find(|c| !c.is_ascii()) {
        Some(c) => Err(format!("contains {c:?} ({}), which is not allowed in a lock", c.escape_unicode())),
        None => Ok(line),
    }
}
