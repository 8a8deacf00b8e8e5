//! Synthetic traces, for users without a trace of their own, and for testing a policy on traces that it was not tuned
//! on.
//!
//! The figures of each shape resemble those of a public trace of real work; no line of one is included. The same shape
//! and seed give the same jobs.

mod bursts;
mod draw;
mod images;
mod rush;
mod small;
mod tasks;

use rand::SeedableRng;
use rand::rngs::StdRng;
use stokehold_planner::simulate::Settings;
use stokehold_planner::simulate::trace::Job;

/// An hour, in seconds.
const HOUR_S: f64 = 3_600.0;

/// Shape of a synthetic trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shape {
    /// Four days of an image service: scale to zero, nights, loads of models.
    Day,
    /// A day of an image service with 13,000 jobs: a busy fleet with strong swings.
    BusyDay,
    /// An hour that begins at full load: an empty fleet, and machines that are rented too late or in excess.
    Rush,
    /// A day of many small models in bursts: swapping them costs more than their work.
    ManySmall,
    /// A week of long jobs on parts of GPUs: packing, and cost under loose deadlines.
    Tasks,
    /// Two days of steady work, and bursts of one endpoint on top.
    Bursts,
}

impl Shape {
    /// Every shape.
    pub const ALL: [Self; 6] = [Self::Day, Self::BusyDay, Self::Rush, Self::ManySmall, Self::Tasks, Self::Bursts];

    /// Name of the shape on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::BusyDay => "busy-day",
            Self::Rush => "rush",
            Self::ManySmall => "many-small",
            Self::Tasks => "tasks",
            Self::Bursts => "bursts",
        }
    }

    /// The shape of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|shape| shape.name() == name)
    }

    /// Description in one line.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Self::Day => "96 h of an image service: quiet nights, heavy-tailed popularity, 0.35 cards",
            Self::BusyDay => "24 h of the same at 13,000 jobs: 4 cards on average, strong swings",
            Self::Rush => "1 h of one model that begins at its full load of 6 cards",
            Self::ManySmall => "24 h of 35 bursty endpoints with jobs of 2.5 s: 1.8 cards",
            Self::Tasks => "168 h of long jobs on parts of cards, batch only: 3 jobs at once on average",
            Self::Bursts => "48 h of steady work with bursts of one endpoint for 5 to 20 minutes",
        }
    }

    /// Length of the trace, seconds.
    #[must_use]
    pub fn span_s(self) -> f64 {
        let hours = match self {
            Self::Day => 96.0,
            Self::BusyDay | Self::ManySmall => 24.0,
            Self::Rush => 1.0,
            Self::Tasks => 168.0,
            Self::Bursts => 48.0,
        };
        hours * HOUR_S
    }

    /// Settings of its simulation.
    #[must_use]
    pub fn settings(self) -> Settings {
        match self {
            // No policy can start the first jobs in time on an empty fleet at full load.
            Self::Rush => Settings { skip_s: 600.0, ..Settings::default() },
            Self::Tasks => Settings { share_gb: Some(tasks::GPU_GB), ..Settings::default() },
            Self::Day | Self::BusyDay | Self::ManySmall | Self::Bursts => Settings::default(),
        }
    }

    /// Jobs of the trace, sorted by arrival. Times are whole milliseconds.
    #[must_use]
    pub fn jobs(self, seed: u64) -> Vec<Job> {
        let mut rng = StdRng::seed_from_u64(seed);
        let span_s = self.span_s();
        let mut jobs = match self {
            Self::Day => images::jobs(span_s, images::QUIET_JOBS_PER_DAY, &mut rng),
            Self::BusyDay => images::jobs(span_s, images::BUSY_JOBS_PER_DAY, &mut rng),
            Self::Rush => rush::jobs(span_s, &mut rng),
            Self::ManySmall => small::jobs(span_s, &mut rng),
            Self::Tasks => tasks::jobs(span_s, &mut rng),
            Self::Bursts => bursts::jobs(span_s, &mut rng),
        };
        for job in &mut jobs {
            job.arrival_s = draw::rounded(job.arrival_s, 1_000.0);
            job.service_s = draw::rounded(job.service_s, 1_000.0).max(0.001);
        }
        jobs.sort_by(|one, other| one.arrival_s.total_cmp(&other.arrival_s));
        jobs
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ops::RangeInclusive;

    use super::*;
    use stokehold_planner::simulate::trace::{self, Priority};

    /// Ranges that every seed stays within: jobs, GPUs on average, seconds of a job on average, endpoints, share of
    /// batch jobs, GB.
    struct Bounds {
        jobs: RangeInclusive<usize>,
        cards: RangeInclusive<f64>,
        service_s: RangeInclusive<f64>,
        endpoints: RangeInclusive<usize>,
        batch: RangeInclusive<f64>,
        vram_gb: RangeInclusive<f64>,
    }

    fn bounds(shape: Shape) -> Bounds {
        let (jobs, cards, service_s, endpoints, batch, vram_gb) = match shape {
            Shape::Day => (3_500..=5_900, 0.27..=0.45, 22.0..=31.0, 40..=75, 0.2..=0.47, 13.0..=22.0),
            Shape::BusyDay => (10_500..=15_500, 3.2..=4.9, 22.0..=31.0, 40..=75, 0.25..=0.42, 13.0..=22.0),
            Shape::Rush => (4_300..=5_300, 5.4..=7.0, 4.2..=5.1, 1..=1, 0.0..=0.0, 20.0..=20.0),
            Shape::ManySmall => (48_000..=68_000, 1.5..=2.2, 2.3..=3.1, 35..=35, 0.25..=0.42, 4.0..=24.0),
            Shape::Tasks => (750..=1_300, 2.3..=3.9, 1_500.0..=2_100.0, 10..=20, 1.0..=1.0, 2.4..=24.0),
            Shape::Bursts => (8_000..=60_000, 1.4..=2.6, 5.0..=35.0, 12..=12, 0.0..=0.6, 8.0..=24.0),
        };
        Bounds { jobs, cards, service_s, endpoints, batch, vram_gb }
    }

    fn assert_within(shape: Shape, seed: u64) {
        let (jobs, wanted) = (shape.jobs(seed), bounds(shape));
        let told = format!("{} of seed {seed}", shape.name());
        let sum: f64 = jobs.iter().map(|job| job.service_s).sum();
        let batch = jobs.iter().filter(|job| job.priority == Priority::Batch).count();
        let share = batch as f64 / jobs.len() as f64;
        let endpoints: BTreeSet<_> = jobs.iter().map(|job| &job.endpoint).collect();
        let (cards, service_s) = (sum / shape.span_s(), sum / jobs.len() as f64);
        assert!(wanted.jobs.contains(&jobs.len()), "{told}: {} jobs", jobs.len());
        assert!(wanted.cards.contains(&cards), "{told}: {cards} cards");
        assert!(wanted.service_s.contains(&service_s), "{told}: {service_s} s");
        assert!(wanted.endpoints.contains(&endpoints.len()), "{told}: {} endpoints", endpoints.len());
        assert!(wanted.batch.contains(&share), "{told}: {share} of them batch");
        assert!(jobs.iter().all(|job| wanted.vram_gb.contains(&job.vram_gb)), "{told}: memory");
        assert!(jobs.is_sorted_by(|one, other| one.arrival_s <= other.arrival_s), "{told}: unsorted");
        assert!(jobs.iter().all(|job| (0.0..=shape.span_s()).contains(&job.arrival_s)), "{told}: too late");
    }

    #[test]
    fn seeds_keep_within_bounds() {
        for shape in Shape::ALL {
            (0..10).for_each(|seed| assert_within(shape, seed));
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_jobs_and_another_gives_others() {
        for shape in Shape::ALL {
            assert_eq!(shape.jobs(7), shape.jobs(7));
            assert_ne!(shape.jobs(7), shape.jobs(8));
        }
    }

    #[test]
    fn every_shape_reads_back_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        for shape in Shape::ALL {
            let paths = ["a", "b"].map(|file| folder.path().join(file));
            let jobs = shape.jobs(3);
            paths.iter().for_each(|path| trace::write(path, &jobs).unwrap());
            assert_eq!(trace::read(&paths[0]).unwrap(), jobs, "{}", shape.name());
            assert_eq!(std::fs::read(&paths[0]).unwrap(), std::fs::read(&paths[1]).unwrap(), "{}", shape.name());
        }
    }

    #[test]
    fn nights_are_quiet() {
        let jobs = Shape::Day.jobs(1);
        let at_night = jobs.iter().filter(|job| (job.arrival_s / HOUR_S) % 24.0 < 7.0).count();
        assert!(at_night * 10 < jobs.len(), "{at_night} of {}", jobs.len());
    }

    #[test]
    fn names_are_found_again() {
        for shape in Shape::ALL {
            assert_eq!(Shape::named(shape.name()), Some(shape));
        }
        assert_eq!(Shape::named("night"), None);
    }
}
