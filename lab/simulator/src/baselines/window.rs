//! Values over a sliding window of time.

use std::collections::VecDeque;

/// The values of the last `span_s` seconds.
#[derive(Debug, Clone)]
pub(super) struct Window {
    span_s: f64,
    values: VecDeque<(f64, f64)>,
}

impl Window {
    pub(super) fn of(span_s: f64) -> Self {
        Self { span_s, values: VecDeque::new() }
    }

    /// Adds the newest value and removes those that are as old as the window.
    pub(super) fn push(&mut self, at_s: f64, value: f64) {
        self.values.push_back((at_s, value));
        while self.values.front().is_some_and(|(then_s, _)| at_s - then_s >= self.span_s) && self.values.len() > 1 {
            self.values.pop_front();
        }
    }

    pub(super) fn max(&self) -> f64 {
        self.values.iter().map(|(_, value)| *value).fold(0.0, f64::max)
    }

    pub(super) fn sum(&self) -> f64 {
        self.values.iter().map(|(_, value)| *value).sum()
    }

    /// Mean of the values, which is the mean over time if they are evenly spaced.
    pub(super) fn mean(&self) -> f64 {
        self.sum() / self.values.len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_forgets() {
        let mut window = Window::of(10.0);
        [(0.0, 9.0), (5.0, 1.0), (10.0, 3.0)].into_iter().for_each(|(at_s, value)| window.push(at_s, value));
        assert_eq!((window.max(), window.sum(), window.mean()), (3.0, 4.0, 2.0));
        window.push(99.0, 7.0);
        assert_eq!((window.max(), window.mean()), (7.0, 7.0));
    }
}
