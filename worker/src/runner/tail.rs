//! The last bytes of a stream of text.

use std::collections::VecDeque;

/// Maximum size of standard error in an error.
const TAIL_BYTES: usize = 8 * 1024;

/// Keeps the last [`TAIL_BYTES`] of the pushed bytes.
#[derive(Debug, Default)]
pub(crate) struct Tail(VecDeque<u8>);

impl Tail {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(TAIL_BYTES)..];
        let excess = (self.0.len() + bytes.len()).saturating_sub(TAIL_BYTES);
        self.0.drain(..excess);
        self.0.extend(bytes);
    }

    /// The text; if its beginning was cut, from the first complete line.
    pub(crate) fn text(&self) -> String {
        let bytes: Vec<u8> = self.0.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        match text.split_once('\n') {
            Some((_, rest)) if self.0.len() == TAIL_BYTES && !rest.is_empty() => rest.to_owned(),
            _ => text.into_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_whole_lines_of_the_end() {
        let mut tail = Tail::default();
        tail.push(b"short\n");
        assert_eq!(tail.text(), "short\n");
        for n in 0..5_000 {
            tail.push(format!("line {n}\n").as_bytes());
        }
        assert!(tail.text().ends_with("line 4999\n"));
        assert!(tail.text().starts_with("line "));
        assert!(tail.text().len() <= TAIL_BYTES);
        tail.push(&[b'x'; 3 * TAIL_BYTES]);
        assert_eq!(tail.text().len(), TAIL_BYTES);
    }
}
