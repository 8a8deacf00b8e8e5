//! Progress of downloads as text.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

/// Number of samples, one per second, for the speed: enough to be stable, few enough to show a stall.
const SAMPLES: usize = 10;

/// Progress of an endpoint's weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) done_bytes: u64,
    pub(crate) total_bytes: u64,
    /// Recent speed; 0 if unknown.
    pub(crate) bytes_per_s: u64,
    /// Whether another process or endpoint is downloading a part of it.
    pub(crate) waiting: bool,
}

impl Progress {
    /// Remaining time at this speed.
    pub(crate) fn left(&self) -> Option<Duration> {
        let left_bytes = self.total_bytes.saturating_sub(self.done_bytes);
        left_bytes.checked_div(self.bytes_per_s).map(Duration::from_secs)
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, decimals) = unit(self.total_bytes);
        let scaled = |bytes: u64| bytes as f64 / unit.bytes as f64;
        write!(f, "{:.decimals$} of {:.decimals$} {}", scaled(self.done_bytes), scaled(self.total_bytes), unit.name)?;
        if self.waiting {
            return f.write_str(", waiting for another download of the same file");
        }
        if let Some(left) = self.left() {
            write!(f, ", {}/s, {} left", Size(self.bytes_per_s), Short(left))?;
        }
        Ok(())
    }
}

struct Unit {
    name: &'static str,
    bytes: u64,
}

const UNITS: [Unit; 5] = [
    Unit { name: "TB", bytes: 1_000_000_000_000 },
    Unit { name: "GB", bytes: 1_000_000_000 },
    Unit { name: "MB", bytes: 1_000_000 },
    Unit { name: "kB", bytes: 1_000 },
    Unit { name: "B", bytes: 1 },
];

/// The unit for this many bytes, and the number of decimals: none from a hundred on.
fn unit(bytes: u64) -> (&'static Unit, usize) {
    let unit = UNITS.iter().find(|unit| bytes >= unit.bytes).unwrap_or(&UNITS[4]);
    (unit, usize::from(unit.bytes > 1 && bytes / unit.bytes < 100))
}

/// A human-readable size.
pub(crate) struct Size(pub(crate) u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, decimals) = unit(self.0);
        write!(f, "{:.decimals$} {}", self.0 as f64 / unit.bytes as f64, unit.name)
    }
}

struct Short(Duration);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            seconds @ 0..120 => write!(f, "{seconds} s"),
            seconds @ 120..7200 => write!(f, "{} min", seconds.div_ceil(60)),
            seconds => write!(f, "{} h", seconds.div_ceil(3600)),
        }
    }
}

/// Measures the speed.
pub(super) struct Meter {
    total_bytes: u64,
    samples: VecDeque<(Instant, u64)>,
}

impl Meter {
    pub(super) fn new(total_bytes: u64) -> Self {
        Self { total_bytes, samples: VecDeque::with_capacity(SAMPLES + 1) }
    }

    pub(super) fn sample(&mut self, now: Instant, done_bytes: u64) -> Progress {
        // After a restart, earlier samples are meaningless.
        if self.samples.back().is_some_and(|&(_, before)| before > done_bytes) {
            self.samples.clear();
        }
        self.samples.push_back((now, done_bytes));
        if self.samples.len() > SAMPLES {
            self.samples.pop_front();
        }
        let bytes_per_s = self.samples.front().map_or(0, |&(since, before)| {
            let millis = u64::try_from(now.duration_since(since).as_millis()).unwrap_or(u64::MAX);
            (done_bytes - before).saturating_mul(1000).checked_div(millis).unwrap_or_default()
        });
        Progress { done_bytes, total_bytes: self.total_bytes, bytes_per_s, waiting: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_reads_as_words() {
        let line = |done_bytes, total_bytes, bytes_per_s| {
            Progress { done_bytes, total_bytes, bytes_per_s, waiting: false }.to_string()
        };
        assert_eq!(line(1_200_000_000, 4_000_000_000, 310_000_000), "1.2 of 4.0 GB, 310 MB/s, 9 s left");
        assert_eq!(line(0, 140_000_000_000, 12_500_000), "0 of 140 GB, 12.5 MB/s, 4 h left");
        assert_eq!(line(0, 30_000_000_000, 100_000_000), "0.0 of 30.0 GB, 100 MB/s, 5 min left");
        assert_eq!(line(12, 345, 0), "12 of 345 B");
        let waiting = Progress { done_bytes: 0, total_bytes: 2_000_000, bytes_per_s: 0, waiting: true };
        assert_eq!(waiting.to_string(), "0.0 of 2.0 MB, waiting for another download of the same file");
    }

    #[test]
    fn the_speed_is_that_of_late() {
        let (mut meter, start) = (Meter::new(1_000_000), Instant::now());
        assert_eq!(meter.sample(start, 500).bytes_per_s, 0, "what was there before is not speed");
        assert_eq!(meter.sample(start + Duration::from_secs(2), 2_500).bytes_per_s, 1_000);
        let stalled = (3..40).map(|second| meter.sample(start + Duration::from_secs(second), 2_500).bytes_per_s).last();
        assert_eq!(stalled, Some(0));
        assert_eq!(meter.sample(start + Duration::from_secs(41), 100).bytes_per_s, 0, "begun anew");
    }
}
