//! Replaces the shares of jobs by larger ones, because jobs are whole and a GPU may have no room for another job.
//!
//! Let `f` be a function from shares to 0..1 with `sum f(share) <= 1` wherever `sum share <= 1`. Then `f(share)` can
//! replace the share: jobs that fit on some GPUs still fit if each takes `f(share)`. Two families of such functions
//! (Fekete and Schepers, "New classes of fast lower bounds for bin packing problems", 2001) and their compositions are
//! tried on the whole trace. The one that gives the most work is used. Example: three models of 0.55 of a GPU need
//! three GPUs, not 1.65.

use super::work::Work;

/// Reduction of each share, so that rounding does not make a sum exceed 1.
const MARGIN: f64 = 1e-6;

/// Maximum number of bounds on shares to try.
const BOUNDS: usize = 40;

/// A function that can replace the share.
#[derive(Debug, Clone, Copy)]
enum Weight {
    /// The share itself.
    Share,
    /// A share above 1 minus the bound counts as a whole GPU, and a share below the bound as nothing.
    Bound(f64),
    /// `floor((k + 1) share) / k`: a share above 1/(k + 1) counts as at least 1/k.
    Steps(f64),
}

impl Weight {
    fn of(self, share: f64) -> f64 {
        match self {
            Self::Share => share,
            Self::Bound(bound) if share < bound => 0.0,
            Self::Bound(bound) if share > 1.0 - bound => 1.0,
            Self::Bound(_) => share,
            Self::Steps(steps) => {
                let taken = (steps + 1.0) * share;
                let is_whole = (taken - taken.round()).abs() < 1e-9;
                if is_whole { share } else { taken.floor() / steps }
            }
        }
    }
}

/// Replaces the shares by the function that gives the most work.
pub(super) fn weigh(works: &mut [Work]) {
    let mut sizes: Vec<(f64, f64)> =
        works.iter().map(|work| ((work.share - MARGIN).max(0.0), work.service_s)).collect();
    sizes.sort_by(|a, b| a.0.total_cmp(&b.0));
    sizes.dedup_by(|next, kept| {
        let is_same = next.0 == kept.0;
        kept.1 += if is_same { next.1 } else { 0.0 };
        is_same
    });
    // If there are many sizes, only a sample is used. The choice may be worse then, and the bound is still valid.
    let stride = sizes.len().div_ceil(BOUNDS);
    let bounds = sizes.iter().step_by(stride.max(1)).map(|(size, _)| size.min(1.0 - size + MARGIN));
    let bounds: Vec<Weight> =
        bounds.filter(|bound| *bound > 0.0 && *bound <= 0.5).map(Weight::Bound).chain([Weight::Share]).collect();
    let steps = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0].map(Weight::Steps);
    let sampled: Vec<(f64, f64)> = sizes.iter().step_by(sizes.len().div_ceil(1_000).max(1)).copied().collect();
    let total = |first: Weight, then: Weight| {
        sampled.iter().map(|(size, service_s)| then.of(first.of(*size)) * service_s).sum::<f64>()
    };
    let mut best = (Weight::Share, Weight::Share);
    let mut most = total(best.0, best.1);
    let pairs = bounds.iter().flat_map(|bound| {
        let with_steps = steps.iter().flat_map(move |steps| [(*bound, *steps), (*steps, *bound)]);
        with_steps.chain([(*bound, Weight::Share)])
    });
    for (first, then) in pairs {
        let sum = total(first, then);
        if sum > most {
            (best, most) = ((first, then), sum);
        }
    }
    for work in works {
        work.share = best.1.of(best.0.of((work.share - MARGIN).max(0.0)));
    }
}
