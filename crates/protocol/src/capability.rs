//! Classes of jobs, and the capability of a worker: the classes that it can take. A class decides where a job may run.
//! It combines the VRAM class and the number of the endpoint's requirement set (see `Registry::number_requirements`) in
//! one number, `demands * 1000 + GiB`.

use std::collections::BTreeMap;
use std::fmt;

/// Factor of the requirement set in a class; larger than any VRAM class.
const DEMANDS: u32 = 1_000;

/// The class of jobs with this requirement set that need a GPU of `gib`.
#[must_use]
pub fn class_of(demands: u32, gib: u32) -> u32 {
    demands * DEMANDS + gib
}

/// Splits a class into the number of the requirement set and the GiB.
#[must_use]
pub fn parts_of(class: u32) -> (u32, u32) {
    (class / DEMANDS, class % DEMANDS)
}

/// The current capability of a worker: the largest VRAM class in GiB, by the number of each requirement set that it
/// meets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capability(BTreeMap<u32, u32>);

impl Capability {
    /// The capability of a worker that meets only the default requirement set.
    #[must_use]
    pub fn usual(gib: u32) -> Self {
        Self(BTreeMap::from([(0, gib)]))
    }

    /// Whether it contains a class.
    #[must_use]
    pub fn has(&self, class: u32) -> bool {
        let (demands, gib) = parts_of(class);
        self.0.get(&demands).is_some_and(|reach| gib <= *reach)
    }

    /// The largest VRAM class for this requirement set; `None` if the worker does not meet it.
    #[must_use]
    pub fn of(&self, demands: u32) -> Option<u32> {
        self.0.get(&demands).copied()
    }

    /// The largest VRAM class by requirement set.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        self.0.iter().map(|(demands, gib)| (*demands, *gib))
    }

    /// The numbers of the requirement sets that the worker meets, e.g. `0.3.7`.
    #[must_use]
    pub fn met(&self) -> String {
        let numbers: Vec<String> = self.0.keys().map(u32::to_string).collect();
        numbers.join(".")
    }
}

impl FromIterator<(u32, u32)> for Capability {
    fn from_iter<I: IntoIterator<Item = (u32, u32)>>(reach: I) -> Self {
        Self(reach.into_iter().collect())
    }
}

/// Formats the argument of the scripts: `0:24 3:12`.
impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (demands, gib)) in self.0.iter().enumerate() {
            let space = if n == 0 { "" } else { " " };
            write!(f, "{space}{demands}:{gib}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_within_reach_when_its_demands_are_met_on_a_gpu_that_is_large_enough() {
        let reach: Capability = [(0, 24), (3, 12)].into_iter().collect();
        assert_eq!((reach.to_string(), reach.met()), ("0:24 3:12".to_owned(), "0.3".to_owned()));
        for (demands, gib, is_within) in
            [(0, 0, true), (0, 24, true), (0, 32, false), (3, 12, true), (3, 16, false), (4, 0, false)]
        {
            let class = class_of(demands, gib);
            assert_eq!(parts_of(class), (demands, gib));
            assert_eq!(reach.has(class), is_within, "{demands} {gib}");
        }
        assert_eq!(Capability::default().to_string(), "");
    }
}
