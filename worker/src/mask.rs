//! Masks secrets in the output of handlers. This prevents accidents only: a handler that wants to leak a secret can
//! print it backwards.

use std::borrow::Cow;
use std::sync::Arc;

use memchr::memmem::Finder;
use stokehold_protocol::gateway::Secrets;

/// Replacement for a secret.
const MASKED: &str = "***";

/// Minimum length of a secret to mask; shorter texts occur too often by chance.
const BYTES_MIN: usize = 6;

/// The secrets of a runner, prepared for searching. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Mask(Arc<[Finder<'static>]>);

/// A stream of text that arrives in pieces and in which secrets are masked.
pub(crate) struct Masked {
    mask: Mask,
    /// The end of the last piece, if it may be the start of a secret.
    pending: Vec<u8>,
}

impl Mask {
    /// A mask for these secrets: each as a whole, and each line of a multi-line secret.
    pub(crate) fn of(secrets: &Secrets) -> Self {
        let mut texts: Vec<&str> =
            secrets.values().chain(secrets.values().flat_map(str::lines)).map(str::trim).collect();
        texts.retain(|text| text.len() >= BYTES_MIN);
        // Longest first, so that no part is left of a secret that contains another.
        texts.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        texts.dedup();
        Self(texts.into_iter().map(|text| Finder::new(text).into_owned()).collect())
    }

    /// Masks a complete text.
    pub(crate) fn text(&self, text: String) -> String {
        match self.bytes(text.as_bytes()) {
            Cow::Borrowed(_) => text,
            Cow::Owned(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        }
    }

    /// A new masked stream.
    pub(crate) fn stream(&self) -> Masked {
        Masked { mask: self.clone(), pending: Vec::new() }
    }

    fn bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let mut out = Cow::Borrowed(bytes);
        for secret in self.0.iter() {
            if secret.find(&out).is_some() {
                out = Cow::Owned(without(&out, secret));
            }
        }
        out
    }

    /// Length of the prefix of `bytes` that later pieces cannot affect: a secret may start after it, but none spans its
    /// end.
    fn settled(&self, bytes: &[u8]) -> usize {
        let begun = |secret: &Finder<'_>| {
            let secret = secret.needle();
            (1..secret.len().min(bytes.len() + 1)).rev().find(|length| bytes.ends_with(&secret[..*length]))
        };
        let settled = bytes.len() - self.0.iter().filter_map(begun).max().unwrap_or(0);
        let ends = self.0.iter().flat_map(|secret| secret.find_iter(bytes).map(|at| (at, at + secret.needle().len())));
        ends.filter(|(at, end)| *at < settled && settled < *end).map(|(_, end)| end).max().unwrap_or(settled)
    }
}

impl Masked {
    /// Adds a piece and returns the text that can be output.
    pub(crate) fn push<'a>(&mut self, piece: &'a [u8]) -> Cow<'a, [u8]> {
        if self.mask.0.is_empty() {
            return Cow::Borrowed(piece);
        }
        let mut bytes = std::mem::take(&mut self.pending);
        bytes.extend_from_slice(piece);
        self.pending = bytes.split_off(self.mask.settled(&bytes));
        Cow::Owned(self.mask.bytes(&bytes).into_owned())
    }

    /// Returns the rest at the end of the stream.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let pending = std::mem::take(&mut self.pending);
        self.mask.bytes(&pending).into_owned()
    }
}

fn without(bytes: &[u8], secret: &Finder<'_>) -> Vec<u8> {
    let (mut out, mut from) = (Vec::with_capacity(bytes.len()), 0);
    for at in secret.find_iter(bytes) {
        out.extend_from_slice(&bytes[from..at]);
        out.extend_from_slice(MASKED.as_bytes());
        from = at + secret.needle().len();
    }
    out.extend_from_slice(&bytes[from..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(values: &[&str]) -> Mask {
        Mask::of(&values.iter().enumerate().map(|(n, value)| (n.to_string(), (*value).to_owned())).collect())
    }

    /// The masked stream of these pieces.
    fn masked(mask: &Mask, pieces: &[&str]) -> String {
        let mut stream = mask.stream();
        let mut masked: Vec<u8> = pieces.iter().flat_map(|piece| stream.push(piece.as_bytes()).into_owned()).collect();
        masked.extend(stream.rest());
        String::from_utf8_lossy(&masked).into_owned()
    }

    #[test]
    fn a_secret_is_gone_however_its_stream_is_cut() {
        let (mask, text) = (mask(&["hunter2-canary"]), "a hunter2-canary, hunter2-canary, hunter3\nhunter2");
        for first in 0..text.len() {
            for second in first..text.len() {
                let pieces = [&text[..first], &text[first..second], &text[second..]];
                assert_eq!(masked(&mask, &pieces), "a ***, ***, hunter3\nhunter2", "{first} {second}");
            }
        }
    }

    #[test]
    fn of_two_that_share_a_beginning_each_is_gone() {
        let mask = mask(&["tokens", "tokens-and-more"]);
        assert_eq!(masked(&mask, &["tokens-and-more tok", "ens"]), "*** ***");
        assert_eq!(masked(&mask, &["tokens", "-and-more tokens"]), "*** ***");
        assert_eq!(mask.text("x tokens".to_owned()), "x ***");
    }

    #[test]
    fn one_that_ends_as_another_begins_is_gone() {
        assert_eq!(masked(&mask(&["abcdefgh", "ghijkl"]), &["abcdefgh", "ijkl ghijkl"]), "***ijkl ***");
    }

    #[test]
    fn of_several_lines_each_is_gone() {
        let mask = mask(&["-----BEGIN-----\nMIIEvQ\n-----END-----\n"]);
        assert_eq!(masked(&mask, &["key:\nMIIEvQ\n"]), "key:\n***\n");
    }

    #[test]
    fn without_secrets_and_with_short_ones_nothing_changes() {
        assert_eq!(masked(&mask(&[]), &["abc"]), "abc");
        assert_eq!(masked(&mask(&["1", "abc"]), &["abc 1"]), "abc 1");
    }
}
