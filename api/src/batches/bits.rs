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

    /// Numbers from the `nth` (1, 2, ...) on, in order.
    pub(crate) fn starting_at(&self, nth: u64) -> impl Iterator<Item = u64> {
        let mut before = nth.saturating_sub(1);
        let skipped = self.0.iter().take_while(|bits| {
            let here = u64::from(bits.count_ones());
            let whole = here <= before;
            before -= if whole { here } else { 0 };
            whole
        });
        let first = skipped.count();
        let from_there = self.0.iter().enumerate().skip(first);
        from_there
            .flat_map(|(byte, bits)| (0..8).filter(move |n| bits & (1 << n) != 0).map(move |n| byte as u64 * 8 + n))
            .skip(usize::try_from(before).unwrap_or(usize::MAX))
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

    #[test]
    fn members_are_numbered_from_one() {
        let members = [1, 7, 8, 9, 63, 64, 1_000_003];
        let mut lines = Lines::default();
        members.into_iter().for_each(|line| lines.insert(line));
        for nth in 1..=members.len() + 2 {
            let rest: Vec<u64> = lines.starting_at(nth as u64).collect();
            assert_eq!(rest, members[(nth - 1).min(members.len())..], "{nth}");
        }
        assert_eq!(Lines::default().starting_at(1).next(), None);
    }
}
