//! A set of line numbers, compact enough for ten million of them: 1.25 MB.

/// Line numbers from 1.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Lines(Vec<u8>);

impl Lines {
    pub(crate) fn insert(&mut self, line: u64) {
        let (byte, bit) = place(line);
        if self.0.len() <= byte {
            self.0.resize(byte + 1, 0);
        }
        self.0[byte] |= bit;
    }

    pub(crate) fn contains(&self, line: u64) -> bool {
        let (byte, bit) = place(line);
        self.0.get(byte).is_some_and(|bits| bits & bit != 0)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

fn place(line: u64) -> (usize, u8) {
    (usize::try_from(line / 8).unwrap_or(usize::MAX - 1), 1 << (line % 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in_and_survives_its_bytes() {
        let mut lines = Lines::default();
        assert!(!lines.contains(1));
        for line in [1, 8, 9, 1_000_003] {
            lines.insert(line);
        }
        let lines = Lines::from_bytes(lines.as_bytes());
        let held: Vec<u64> = (0..1_000_010).filter(|line| lines.contains(*line)).collect();
        assert_eq!(held, [1, 8, 9, 1_000_003]);
        assert!(!lines.contains(u64::MAX));
    }
}
