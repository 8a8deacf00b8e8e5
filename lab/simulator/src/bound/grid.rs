//! Slots of time.

use super::demand::Demand;

/// The widths that are tried, seconds.
const WIDTHS_S: [f64; 13] = [10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0, 1_200.0, 3_600.0];

/// Slots of equal width wherever some job may run, and one slot for each gap between.
#[derive(Debug, Clone)]
pub(super) struct Grid {
    /// Seconds since the trace began; one more than there are slots.
    pub(super) edges_s: Vec<f64>,
    /// The widest slot in which a job may run, seconds.
    pub(super) width_s: f64,
}

impl Grid {
    /// The finest that has no more than about this many slots. A trace that is too long even for the widest has wider
    /// ones.
    pub(super) fn new(demand: &Demand, slots: usize) -> Self {
        let spans = open_spans(demand);
        let count = |width_s: f64| spans.iter().map(|(from, to)| ((to - from) / width_s).ceil() + 1.0).sum::<f64>();
        let fits = |width_s: &f64| count(*width_s) <= slots as f64;
        let widest = || spans.iter().map(|(from, to)| to - from).sum::<f64>() / slots as f64;
        let width_s = WIDTHS_S.into_iter().find(fits).unwrap_or_else(|| widest().max(3_600.0));
        let mut edges_s = Vec::new();
        for (from, to) in spans {
            let slots = ((to - from) / width_s).ceil().max(1.0) as usize;
            edges_s.extend((0..=slots).map(|slot| from + slot as f64 * width_s));
        }
        // Rounding up may have made a span run into the next by less than a slot.
        edges_s.sort_by(f64::total_cmp);
        edges_s.dedup();
        Self { edges_s, width_s }
    }

    pub(super) fn slots(&self) -> usize {
        self.edges_s.len().saturating_sub(1)
    }

    pub(super) fn length_s(&self, slot: usize) -> f64 {
        self.edges_s[slot + 1] - self.edges_s[slot]
    }

    /// The slot that holds this moment: of two that meet there the later one. Moments outside belong to the ends.
    pub(super) fn slot_at(&self, at_s: f64) -> usize {
        let later = self.edges_s.partition_point(|edge| *edge <= at_s);
        later.saturating_sub(1).min(self.slots().saturating_sub(1))
    }

    /// The same, but of two that meet the earlier one.
    pub(super) fn slot_before(&self, at_s: f64) -> usize {
        let later = self.edges_s.partition_point(|edge| *edge < at_s);
        later.saturating_sub(1).min(self.slots().saturating_sub(1))
    }
}

/// When some job may run, from its arrival to its latest end on the slowest machine: merged, by time.
fn open_spans(demand: &Demand) -> Vec<(f64, f64)> {
    let slowest: Vec<f64> = (0..demand.classes).map(|class| demand.speeds(class).0).collect();
    let mut spans: Vec<(f64, f64)> = Vec::new();
    for work in &demand.works {
        let to = work.latest_start_s() + work.service_s / slowest[work.class];
        match spans.last_mut() {
            Some(last) if work.arrival_s <= last.1 => last.1 = last.1.max(to),
            _ => spans.push((work.arrival_s, to)),
        }
    }
    spans
}
