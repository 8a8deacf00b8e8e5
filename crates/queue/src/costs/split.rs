//! Splits amounts into parts that add up.

/// Splits `whole` in proportion to `weights`. Each part is rounded down; the remainder goes one by one to the parts
/// with the largest fractions, and among equal ones to the first. The parts add up to `whole`. The result is empty if
/// no weight is above 0.
///
/// Example: 10 by the weights 1, 1, 1 gives 4, 3, 3.
pub(super) fn split(whole: u64, weights: &[u64]) -> Vec<u64> {
    let all: u128 = weights.iter().copied().map(u128::from).sum();
    if all == 0 {
        return Vec::new();
    }
    let exact = |weight: &u64| u128::from(whole) * u128::from(*weight);
    // No part is larger than the whole.
    let mut parts: Vec<u64> =
        weights.iter().map(|weight| u64::try_from(exact(weight) / all).unwrap_or(whole)).collect();
    let left = whole.saturating_sub(parts.iter().sum());
    let mut losers: Vec<usize> = (0..weights.len()).filter(|n| weights[*n] > 0).collect();
    losers.sort_by_key(|n| std::cmp::Reverse(exact(&weights[*n]) % all));
    for n in losers.into_iter().take(usize::try_from(left).unwrap_or(usize::MAX)) {
        parts[n] += 1;
    }
    parts
}

/// The first choice of weights that are not all 0; otherwise 1 for each.
pub(super) fn weights<const N: usize>(count: usize, choices: [&dyn Fn(usize) -> u64; N]) -> Vec<u64> {
    let of = |choice: &dyn Fn(usize) -> u64| (0..count).map(choice).collect::<Vec<u64>>();
    choices
        .into_iter()
        .map(of)
        .find(|weights| weights.iter().any(|weight| *weight > 0))
        .unwrap_or_else(|| vec![1; count])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_left_over_goes_to_who_lost_the_most() {
        assert_eq!(split(10, &[1, 1, 1]), [4, 3, 3]);
        assert_eq!(split(10, &[1, 0, 5]), [2, 0, 8]);
        assert_eq!(split(0, &[3, 4]), [0, 0]);
        assert!(split(10, &[0, 0]).is_empty() && split(10, &[]).is_empty());
        assert_eq!(split(u64::MAX, &[u64::MAX, u64::MAX]), [u64::MAX / 2 + 1, u64::MAX / 2]);
    }

    #[test]
    fn the_first_weights_that_say_anything_count() {
        let (none, some) = (|_: usize| 0, |n: usize| n as u64);
        assert_eq!(weights(3, [&none, &some]), [0, 1, 2]);
        assert_eq!(weights(2, [&none, &none]), [1, 1]);
    }

    proptest! {
        #[test]
        fn parts_add_up(whole in 0..1_u64 << 50, weights in prop::collection::vec(0..1_u64 << 45, 1..40)) {
            let parts = split(whole, &weights);
            if weights.iter().any(|weight| *weight > 0) {
                prop_assert_eq!(parts.iter().sum::<u64>(), whole);
                prop_assert!(parts.iter().zip(&weights).all(|(part, weight)| *weight > 0 || *part == 0));
            }
        }
    }
}
