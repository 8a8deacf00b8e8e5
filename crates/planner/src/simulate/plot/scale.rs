//! Positions of values and times on the axes, and their labels.

use crate::simulate::outcome::Sample;
use crate::simulate::words;

/// Round lengths of time between two grid lines, seconds.
const SPANS_S: [f64; 15] = [
    1.0, 5.0, 15.0, 60.0, 300.0, 600.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 10_800.0, 21_600.0, 43_200.0, 86_400.0,
    604_800.0,
];
const DAY_S: f64 = 86_400.0;
/// Labelled waits, seconds: a second to ten days.
const WAITS_S: [f64; 7] = [1.0, 10.0, 60.0, 600.0, 3_600.0, 36_000.0, 864_000.0];

/// The time axis, which all panels share.
pub(super) struct Time {
    from_s: f64,
    until_s: f64,
    pub(super) left: f64,
    pub(super) right: f64,
}

impl Time {
    /// Axis from the first to the last sample.
    pub(super) fn of(samples: &[Sample], left: f64, right: f64) -> Self {
        let at = |sample: Option<&Sample>| sample.map(|sample| sample.at_s).filter(|at_s| at_s.is_finite());
        let from_s = at(samples.first()).unwrap_or_default();
        // An axis must have a length.
        let until_s = at(samples.last()).unwrap_or_default().max(from_s + 1.0);
        Self { from_s, until_s, left, right }
    }

    pub(super) fn x(&self, at_s: f64) -> f64 {
        let share = (at_s - self.from_s) / (self.until_s - self.from_s);
        (self.right - self.left).mul_add(if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }, self.left)
    }

    /// Positions of the grid lines, and whether each has a label.
    pub(super) fn lines(&self) -> Vec<(f64, bool)> {
        let (step_s, drawn) = (self.label_step_s(), self.step_s(28.0));
        let has_label = |at_s: f64| (at_s / step_s).fract() == 0.0;
        self.multiples(drawn).into_iter().map(|at_s| (self.x(at_s), has_label(at_s))).collect()
    }

    /// Positions of the labels, and their text.
    pub(super) fn labels(&self) -> Vec<(f64, String)> {
        let step_s = self.label_step_s();
        self.multiples(step_s).into_iter().map(|at_s| (self.x(at_s), label_of(at_s, step_s))).collect()
    }

    /// Time between two labels, seconds. Half days get a grid line and no label.
    fn label_step_s(&self) -> f64 {
        let step_s = self.step_s(9.0);
        if step_s > 21_600.0 { step_s.max(DAY_S) } else { step_s }
    }

    /// The shortest round length of time of which at most `at_most` fill the axis, seconds.
    fn step_s(&self, at_most: f64) -> f64 {
        let span_s = self.until_s - self.from_s;
        // Steps beyond a few months are multiples of a week.
        let found = SPANS_S.into_iter().find(|step_s| span_s / step_s <= at_most);
        found.unwrap_or_else(|| (span_s / at_most / 604_800.0).ceil() * 604_800.0)
    }

    fn multiples(&self, step_s: f64) -> Vec<f64> {
        let first = (self.from_s / step_s).ceil();
        // The last sample is before the end of its span.
        let last = self.until_s + (self.until_s - self.from_s) * 0.005;
        let count = ((last / step_s).floor() - first).clamp(-1.0, 100.0) as i64;
        (0..=count).map(|n| (first + n as f64) * step_s).collect()
    }
}

fn label_of(at_s: f64, step_s: f64) -> String {
    match at_s {
        0.0 => "0".to_owned(),
        _ if step_s >= DAY_S => format!("{:.0} d", at_s / DAY_S),
        _ if step_s >= 3_600.0 => format!("{:.0} h", at_s / 3_600.0),
        _ if step_s >= 60.0 => format!("{:.0} min", at_s / 60.0),
        _ => format!("{at_s:.0} s"),
    }
}

/// Label of a wait in [`WAITS_S`].
pub(super) fn wait(wait_s: f64) -> String {
    match wait_s {
        60.0..3_600.0 => format!("{:.0} min", wait_s / 60.0),
        _ => words::seconds(wait_s),
    }
}

/// The value axis of a panel.
pub(super) struct Axis {
    is_log: bool,
    least: f64,
    most: f64,
    /// Values with a label.
    pub(super) ticks: Vec<f64>,
}

impl Axis {
    /// An axis for whole numbers.
    pub(super) fn counts(most: f64) -> Self {
        Self::linear(most, 1.0)
    }

    /// An axis for money, down to cents.
    pub(super) fn amounts(most: f64) -> Self {
        Self::linear(most, 0.01)
    }

    fn linear(most: f64, least_step: f64) -> Self {
        let most = if most.is_finite() { most.max(least_step) } else { least_step };
        let step = (nice(most / 4.0)).max(least_step);
        let most = most * 1.06;
        let ticks = (0..=(most / step) as usize).map(|n| n as f64 * step).collect();
        Self { is_log: false, least: 0.0, most, ticks }
    }

    /// An axis for waits, which is logarithmic. It always includes the targets.
    pub(super) fn waits(most: f64) -> Self {
        let most = if most.is_finite() { most.max(5_400.0) } else { 5_400.0 };
        let ticks = WAITS_S.into_iter().filter(|wait_s| *wait_s <= most * 1.2).collect();
        Self { is_log: true, least: WAITS_S[0], most: most * 1.2, ticks }
    }

    /// Value at the bottom.
    pub(super) fn least(&self) -> f64 {
        self.least
    }

    /// Number of decimals that distinguish the labels of the axis.
    pub(super) fn digits(&self) -> usize {
        let step = self.ticks.get(1).copied().unwrap_or(1.0);
        if step.fract() == 0.0 { 0 } else { 2 }
    }

    /// Position of a value: 0 at the bottom, 1 at the top, and more above that.
    pub(super) fn share(&self, value: f64) -> f64 {
        let share = if self.is_log {
            (value.max(self.least) / self.least).ln() / (self.most / self.least).ln()
        } else {
            value / self.most
        };
        // The clip of a panel hides high values, but some viewers fail with very large coordinates.
        if share.is_finite() { share.clamp(0.0, 1.5) } else { 0.0 }
    }
}

/// The least of 1, 2, 5, 10 and so on that is not below `step`.
fn nice(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let found = [1.0, 2.0, 5.0].into_iter().map(|factor| factor * power).find(|nice| *nice >= step * 0.999);
    found.unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(hours: f64) -> Time {
        let at = |at_s| Sample { at_s, ..Sample::default() };
        Time::of(&[at(0.0), at(hours * 3_600.0)], 0.0, 960.0)
    }

    #[test]
    fn times_are_told_in_what_people_count_in() {
        let told = |hours| time(hours).labels().into_iter().map(|(_, label)| label).collect::<Vec<_>>().join(" ");
        assert_eq!(told(1.0), "0 10 min 20 min 30 min 40 min 50 min 60 min");
        assert_eq!(told(24.0), "0 3 h 6 h 9 h 12 h 15 h 18 h 21 h 24 h");
        assert_eq!(told(96.0), "0 1 d 2 d 3 d 4 d");
        assert_eq!(told(168.0), "0 1 d 2 d 3 d 4 d 5 d 6 d 7 d");
        assert_eq!(told(24.0 * 7_000.0).split(' ').count(), 17);
    }

    #[test]
    fn values_are_told_at_round_numbers() {
        assert_eq!(Axis::counts(7.0).ticks, [0.0, 2.0, 4.0, 6.0]);
        assert_eq!(Axis::counts(0.0).ticks, [0.0, 1.0]);
        assert_eq!(Axis::amounts(34.0).ticks, [0.0, 10.0, 20.0, 30.0]);
        assert_eq!(Axis::waits(0.0).ticks, [1.0, 10.0, 60.0, 600.0, 3_600.0]);
    }

    #[test]
    fn what_is_no_number_lies_at_the_bottom() {
        assert_eq!(Axis::counts(f64::NAN).share(f64::INFINITY), 0.0);
        assert_eq!(time(f64::NAN).x(f64::NAN), 0.0);
    }
}
