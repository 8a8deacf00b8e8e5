//! A panel: axis, shapes and legend.

use std::fmt::Write as _;

use super::escaped;
use super::path::Point;
use super::scale::{Axis, Time};
use crate::simulate::outcome::Sample;

/// Symbol of a shape in a legend.
#[derive(Clone, Copy)]
pub(super) enum Mark {
    /// An area, with the class of its strength.
    Area(&'static str),
    Line,
    Dashes,
    Dot,
}

pub(super) struct Panel<'a> {
    svg: &'a mut String,
    time: &'a Time,
    top: f64,
    height: f64,
}

impl<'a> Panel<'a> {
    pub(super) fn new(svg: &'a mut String, time: &'a Time, top: f64, height: f64) -> Self {
        Self { svg, time, top, height }
    }

    pub(super) fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// Draws the heading, and lines at round values and times.
    pub(super) fn axis(&mut self, heading: &str, axis: &Axis, say: &dyn Fn(f64) -> String) {
        let (left, right, top, bottom) = (self.time.left, self.time.right, self.top, self.bottom());
        let _ = write!(self.svg, r#"<text class="heading" x="26" y="{:.1}">{heading}</text>"#, top - 13.0);
        for (x, is_told) in self.time.lines() {
            let class = if is_told { "grid" } else { "minor" };
            let _ = write!(self.svg, r#"<path class="{class}" d="M{x:.1} {top:.1}V{bottom:.1}"/>"#);
        }
        for tick in &axis.ticks {
            let (y, label) = (self.y(axis, *tick), say(*tick));
            let class = if *tick > axis.least() { "grid" } else { "base" };
            let _ = write!(
                self.svg,
                r#"<path class="{class}" d="M{left:.1} {y:.1}H{right:.1}"/><text class="quiet" x="{:.1}" y="{:.1}" text-anchor="end">{label}</text>"#,
                left - 8.0,
                y + 4.0,
            );
        }
    }

    /// The positions of these values of the samples.
    pub(super) fn points(&self, samples: &[Sample], axis: &Axis, values: impl Iterator<Item = f64>) -> Vec<Point> {
        samples.iter().zip(values).map(|(sample, value)| (self.time.x(sample.at_s), self.y(axis, value))).collect()
    }

    /// Draws a path.
    pub(super) fn shape(&mut self, class: &str, path: &str) {
        if !path.is_empty() {
            let _ = write!(self.svg, r#"<path class="{class}" d="{path}"/>"#);
        }
    }

    /// Draws a horizontal line across the panel.
    pub(super) fn level(&mut self, class: &str, axis: &Axis, value: f64) {
        let (left, right, y) = (self.time.left, self.time.right, self.y(axis, value));
        self.shape(class, &format!("M{left:.1} {y:.1}H{right:.1}"));
    }

    /// Draws the legend at the right end of the heading.
    pub(super) fn legend(&mut self, entries: &[(&str, Mark, &str)]) {
        // The average width of the letters.
        let width = |text: &str| 6.2 * text.chars().count() as f64;
        let y = self.top - 17.0;
        let mut x = self.time.right - entries.iter().map(|(_, _, text)| width(text) + 42.0).sum::<f64>() + 18.0;
        for (class, mark, text) in entries {
            let (class, path) = match mark {
                Mark::Area(strength) => {
                    (format!("{class} area{strength}"), format!("M{x:.1} {:.1}h14v10h-14Z", y - 5.0))
                }
                Mark::Line => (format!("{class} line"), format!("M{x:.1} {y:.1}h16")),
                Mark::Dashes => (format!("{class} line dashed"), format!("M{x:.1} {y:.1}h16")),
                Mark::Dot => (format!("{class} dots sign"), format!("M{:.1} {y:.1}h.1", x + 9.0)),
            };
            self.shape(&class, &path);
            let text = escaped(text);
            let _ = write!(self.svg, r#"<text class="quiet" x="{:.1}" y="{:.1}">{text}</text>"#, x + 22.0, y + 4.0);
            x += width(&text) + 42.0;
        }
    }

    fn y(&self, axis: &Axis, value: f64) -> f64 {
        // Values above the axis are cut at the top.
        self.bottom() - self.height * axis.share(value).min(1.0)
    }
}
