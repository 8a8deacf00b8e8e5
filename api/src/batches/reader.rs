//! Reads an object in S3 line by line, with at most one piece and one line of it in memory.

use bytes::{Buf, Bytes, BytesMut};
use stokehold_objects::Objects;

use super::Error;
use super::lines::LINE_MAX;

/// Bytes that are read at a time.
const PIECE: u64 = 4 << 20;

/// One line, without its line end.
#[derive(Debug)]
pub(crate) struct Line {
    /// Number of the line, from 1.
    pub(crate) number: u64,
    /// Position of the next line, bytes.
    pub(crate) end: u64,
    /// Text of the line; `None` when it is longer than a line may be.
    pub(crate) text: Option<Bytes>,
}

/// Reads lines from a position on.
pub(crate) struct Reader {
    objects: Objects,
    key: String,
    splitter: Splitter,
    /// Position of the next byte to read from S3.
    next: u64,
    piece: u64,
}

impl Reader {
    /// Creates a reader that starts after the first `lines` lines, which have `bytes` bytes.
    pub(crate) fn new(objects: &Objects, key: &str, lines: u64, bytes: u64) -> Self {
        let splitter = Splitter { number: lines, offset: bytes, ..Splitter::default() };
        Self { objects: objects.clone(), key: key.to_owned(), splitter, next: bytes, piece: PIECE }
    }

    /// Sets the size of the pieces, for callers that need only a few lines.
    pub(crate) fn with_piece(mut self, bytes: u64) -> Self {
        self.piece = bytes;
        self
    }

    /// Reads the next line. Returns `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Line>, Error> {
        loop {
            if let Some(line) = self.splitter.take() {
                return Ok(Some(line));
            }
            if self.splitter.ended {
                return Ok(None);
            }
            let piece = self.objects.get_range(&self.key, self.next, self.piece).await?;
            let piece = piece.ok_or_else(|| Error::Missing { key: self.key.clone() })?;
            self.next += piece.len() as u64;
            self.splitter.ended = (piece.len() as u64) < self.piece;
            self.splitter.push(&piece);
        }
    }
}

/// Splits pieces into lines.
#[derive(Default)]
pub(crate) struct Splitter {
    pending: BytesMut,
    /// Length of the part of `pending` that is known to contain no line end.
    searched: usize,
    /// Set when the current line is too long and its beginning was dropped.
    long: bool,
    number: u64,
    offset: u64,
    pub(crate) ended: bool,
}

impl Splitter {
    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.pending.extend_from_slice(piece);
    }

    pub(crate) fn take(&mut self) -> Option<Line> {
        let end = self.pending[self.searched..].iter().position(|byte| *byte == b'\n');
        let (length, ending) = match end {
            Some(at) => (self.searched + at, 1),
            None if self.ended && (self.long || !self.pending.is_empty()) => (self.pending.len(), 0),
            None => {
                self.searched = self.pending.len();
                if self.pending.len() > LINE_MAX {
                    self.long = true;
                    self.offset += self.pending.len() as u64;
                    self.pending.clear();
                    self.searched = 0;
                }
                return None;
            }
        };
        let text = self.pending.split_to(length).freeze();
        self.pending.advance(ending);
        self.number += 1;
        self.offset += (length + ending) as u64;
        self.searched = 0;
        let long = std::mem::take(&mut self.long) || text.len() > LINE_MAX;
        Some(Line { number: self.number, end: self.offset, text: (!long).then_some(text) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &[u8], step: usize) -> Vec<(u64, u64, Option<Vec<u8>>)> {
        let mut splitter = Splitter::default();
        let mut lines = Vec::new();
        let mut pieces = text.chunks(step);
        loop {
            while let Some(line) = splitter.take() {
                lines.push((line.number, line.end, line.text.map(|text| text.to_vec())));
            }
            if splitter.ended {
                return lines;
            }
            match pieces.next() {
                Some(piece) => splitter.push(piece),
                None => splitter.ended = true,
            }
        }
    }

    #[test]
    fn lines_are_the_same_however_the_pieces_fall() {
        let wanted = vec![
            (1, 2, Some(b"a".to_vec())),
            (2, 3, Some(Vec::new())),
            (3, 7, Some(b"bc\r".to_vec())),
            (4, 8, Some(b"d".to_vec())),
        ];
        for step in 1..9 {
            assert_eq!(split(b"a\n\nbc\r\nd", step), wanted, "{step}");
        }
        assert_eq!(split(b"", 1), []);
        assert_eq!(split(b"\n", 1), [(1, 1, Some(Vec::new()))]);
    }

    #[test]
    fn a_line_that_is_too_long_is_one_line_and_is_not_kept() {
        let mut text = vec![b'x'; 3 * LINE_MAX];
        text.extend_from_slice(b"\nnext\n");
        for step in [1_000_000, LINE_MAX * 8] {
            let lines = split(&text, step);
            let shape: Vec<_> = lines.iter().map(|(n, end, text)| (*n, *end, text.as_ref().map(Vec::len))).collect();
            let first = 3 * LINE_MAX as u64 + 1;
            assert_eq!(shape, [(1, first, None), (2, first + 5, Some(4))]);
        }
    }
}
