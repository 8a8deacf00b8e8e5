//! Time slots of the program.

use super::demand::Demand;

/// The slot widths to try, seconds.
const WIDTHS_S: [f64; 13] = [10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0, 1_200.0, 3_600.0];

/// Time slots: of equal width while a job may run, and one slot for each gap in between.
#[derive(Debug, Clone)]
pub(super) struct Grid {
    /// Edges of the slots, seconds since the trace began. There is one more edge than slots.
    pub(super) edges_s: Vec<f64>,
    /// Width of the slots in which a job may run, seconds.
    pub(super) width_s: f64,
}

impl Grid {
    /// The finest grid with at most about `slots` slots. If even the largest width gives too many, a larger one is
    /// used.
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
        // Because of rounding up, a span may extend into the next one by less than a slot.
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

    /// The slot that contains a moment. At an edge it is the later slot. Moments outside the grid belong to its first
    /// or last slot.
    pub(super) fn slot_at(&self, at_s: f64) -> usize {
        let later = self.edges_s.partition_point(|edge| *edge <= at_s);
        later.saturating_sub(1).min(self.slots().saturating_sub(1))
    }

    /// Like [`Grid::slot_at`], but at an edge it is the earlier slot.
    pub(super) fn slot_before(&self, at_s: f64) -> usize {
        let later = self.edges_s.partition_point(|edge| *edge < at_s);
        later.saturating_sub(1).min(self.slots().saturating_sub(1))
    }
}

/// The spans in which a job may run, from its arrival to its latest end on the slowest machine, merged and in order.
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
