//! The written bytes of a file: ordered ranges that neither touch nor overlap.

use std::collections::BTreeMap;
use std::ops::Range;

/// Each range's end by its start.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    pub(super) fn insert(&mut self, new: Range<u64>) {
        let Range { mut start, mut end } = new;
        if start >= end {
            return;
        }
        // Merge touching ranges, starting with the last that begins at or before its end.
        while let Some((&other_start, &other_end)) = self.0.range(..=end).next_back()
            && other_end >= start
        {
            self.0.remove(&other_start);
            (start, end) = (start.min(other_start), end.max(other_end));
        }
        self.0.insert(start, end);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    /// Length of the contiguous beginning.
    pub(super) fn frontier(&self) -> u64 {
        self.0.get(&0).copied().unwrap_or_default()
    }

    /// The missing ranges of a file of `size`, in order, in pieces of at most `piece`.
    pub(super) fn gaps(&self, size: u64, piece: u64) -> Vec<Range<u64>> {
        let (mut gaps, mut at) = (Vec::new(), 0);
        for (start, end) in self.iter().map(|range| (range.start, range.end)).chain([(size, size)]) {
            while at < start {
                let to = start.min(at.saturating_add(piece.max(1)));
                gaps.push(at..to);
                at = to;
            }
            at = end;
        }
        gaps
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.0.iter().map(|(&start, &end)| start..end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn neighbours_become_one() {
        let mut ranges = Ranges::default();
        for range in [20..30, 0..10, 40..50, 10..20, 45..45] {
            ranges.insert(range);
        }
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [0..30, 40..50]);
        assert_eq!((ranges.bytes(), ranges.frontier()), (40, 30));
        assert_eq!(ranges.gaps(55, 8), [30..38, 38..40, 50..55]);
        assert!(Ranges::default().gaps(0, 8).is_empty());
    }

    proptest! {
        #[test]
        fn every_byte_is_either_there_or_in_one_gap(
            inserted in prop::collection::vec((0u64..100, 0u64..30), 0..20), piece in 1u64..40,
        ) {
            let (mut ranges, mut bytes) = (Ranges::default(), [false; 130]);
            for (start, count) in inserted {
                ranges.insert(start..start + count);
                bytes[start as usize..(start + count) as usize].fill(true);
            }
            let mut seen = [0; 130];
            for range in ranges.iter() {
                prop_assert!(range.clone().all(|at| bytes[at as usize]));
                range.for_each(|at| seen[at as usize] += 1);
            }
            for gap in ranges.gaps(130, piece) {
                prop_assert!(!gap.is_empty() && gap.end - gap.start <= piece);
                gap.for_each(|at| seen[at as usize] += 1);
            }
            prop_assert_eq!(seen, [1; 130]);
        }
    }
}
