//! Environment markers of PEP 508: the platforms that a requirement is for.

use super::quoted;

const VARIABLES: [&str; 12] = [
    "python_version",
    "python_full_version",
    "os_name",
    "sys_platform",
    "platform_release",
    "platform_system",
    "platform_version",
    "platform_machine",
    "platform_python_implementation",
    "implementation_name",
    "implementation_version",
    "extra",
];

const COMPARISONS: [&str; 8] = ["===", "==", "!=", "<=", ">=", "~=", "<", ">"];

const WORDS_MAX: usize = 1_000;
const DEPTH_MAX: usize = 32;

/// The marker with one blank between its words.
pub(super) fn normalised(text: &str) -> Result<String, String> {
    let words = words(text).ok_or_else(|| wrong(text))?;
    let mut reader = Reader { words: &words, at: 0 };
    if words.len() > WORDS_MAX || !reader.either(0) || reader.at != words.len() {
        return Err(wrong(text));
    }
    let mut marker = String::new();
    for word in &words {
        // Like uv writes it: no blank inside of parentheses.
        if !marker.is_empty() && !marker.ends_with('(') && *word != ")" {
            marker.push(' ');
        }
        marker.push_str(word);
    }
    Ok(marker)
}

fn wrong(text: &str) -> String {
    format!(
        "{} is not a marker; write one such as ; python_version >= '3.11' and sys_platform == 'linux'",
        quoted(text.trim())
    )
}

/// Splits a marker into names, comparisons, parentheses, and texts with their quotes.
fn words(text: &str) -> Option<Vec<&str>> {
    let (mut words, mut rest) = (Vec::new(), text.trim_start());
    while !rest.is_empty() {
        let length = length_of_first(rest)?;
        let (word, after) = rest.split_at(length);
        words.push(word);
        rest = after.trim_start();
    }
    Some(words)
}

fn length_of_first(text: &str) -> Option<usize> {
    let first = text.chars().next()?;
    match first {
        '(' | ')' => Some(1),
        '\'' | '"' => {
            let inside = text.get(1..)?;
            let end = inside.find(first)?;
            inside[..end].chars().all(is_of_text).then_some(end + 2)
        }
        _ => {
            if let Some(comparison) = COMPARISONS.iter().find(|comparison| text.starts_with(**comparison)) {
                return Some(comparison.len());
            }
            let end = text.find(|c: char| !(c.is_ascii_lowercase() || c == '_')).unwrap_or(text.len());
            (end > 0).then_some(end)
        }
    }
}

fn is_of_text(c: char) -> bool {
    c.is_ascii_alphanumeric() || " .,*+-_!~^:()/".contains(c)
}

struct Reader<'a> {
    words: &'a [&'a str],
    at: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let word = self.words.get(self.at).copied();
        self.at += usize::from(word.is_some());
        word
    }

    fn take(&mut self, wanted: &str) -> bool {
        let is_next = self.words.get(self.at) == Some(&wanted);
        self.at += usize::from(is_next);
        is_next
    }

    fn either(&mut self, depth: usize) -> bool {
        loop {
            if !self.both(depth) {
                return false;
            }
            if !self.take("or") {
                return true;
            }
        }
    }

    fn both(&mut self, depth: usize) -> bool {
        loop {
            if !self.one(depth) {
                return false;
            }
            if !self.take("and") {
                return true;
            }
        }
    }

    fn one(&mut self, depth: usize) -> bool {
        if self.take("(") {
            return depth < DEPTH_MAX && self.either(depth + 1) && self.take(")");
        }
        self.value() && self.comparison() && self.value()
    }

    fn value(&mut self) -> bool {
        self.next().is_some_and(|word| VARIABLES.contains(&word) || word.starts_with(['\'', '"']))
    }

    fn comparison(&mut self) -> bool {
        if self.take("not") {
            return self.take("in");
        }
        self.next().is_some_and(|word| word == "in" || COMPARISONS.contains(&word))
    }
}
