//! A uniform sample of a stream of unknown length.

use rand::Rng;
use rand::seq::SliceRandom;

/// Keeps at most `size` of the offered items. Each of `n` offered items is kept with the probability `size / n`
/// (Vitter's algorithm R).
pub(super) struct Reservoir<T, R> {
    size: usize,
    offered: u64,
    held: Vec<T>,
    random: R,
}

impl<T, R: Rng> Reservoir<T, R> {
    pub(super) fn new(size: usize, random: R) -> Self {
        Self { size, offered: 0, held: Vec::new(), random }
    }

    pub(super) fn offer(&mut self, item: T) {
        self.offered += 1;
        if self.held.len() < self.size {
            self.held.push(item);
            return;
        }
        let place = self.random.random_range(0..self.offered);
        if let Some(slot) = usize::try_from(place).ok().and_then(|place| self.held.get_mut(place)) {
            *slot = item;
        }
    }

    /// The kept items in random order: the first few of them are a sample as well.
    pub(super) fn into_sample(mut self) -> Vec<T> {
        self.held.shuffle(&mut self.random);
        self.held
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    fn sample(size: usize, of: u32, seed: u64) -> Vec<u32> {
        let mut reservoir = Reservoir::new(size, StdRng::seed_from_u64(seed));
        (0..of).for_each(|n| reservoir.offer(n));
        reservoir.into_sample()
    }

    #[test]
    fn a_sample_has_each_item_at_most_once_and_the_same_for_the_same_seed() {
        let mut drawn = sample(10, 100, 7);
        assert_eq!(drawn, sample(10, 100, 7));
        assert_ne!(drawn, sample(10, 100, 8));
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 10);
        let mut all = sample(10, 5, 7);
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn every_item_is_as_likely_as_every_other() {
        let mut times = [0_u32; 50];
        for seed in 0..5_000 {
            sample(10, 50, seed).into_iter().for_each(|n| times[n as usize] += 1);
        }
        // 1,000 each are expected, with a standard deviation of 28: a deviation of six times that does not occur by
        // chance.
        assert!(times.iter().all(|n| (830..1_170).contains(n)), "{times:?}");
    }
}
