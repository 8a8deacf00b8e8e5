//! Charts as SVG, readable on a light and on a dark page: text takes the page's scheme, the background is the page's.

use std::fmt::Write as _;

use crate::table::thousands;

/// Values of one system, one per series; missing measurements are absent.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) values: Vec<Option<f64>>,
}

pub(crate) struct Chart<'a> {
    pub(crate) title: &'a str,
    pub(crate) series: &'a [&'a str],
    pub(crate) rows: Vec<Row>,
    /// Number of printed digits.
    pub(crate) digits: usize,
}

const WIDTH: f64 = 760.0;
const NAMES: f64 = 130.0;
/// Room for the value behind the longest bar.
const VALUES: f64 = 80.0;
const TOP: f64 = 64.0;
const BAR: f64 = 15.0;
const GAP: f64 = 12.0;
const COLOURS: [&str; 4] = ["#3b82f6", "#f59e0b", "#10b981", "#a78bfa"];
const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#1f2328}.title{font-size:15px;font-weight:600}\
                     .quiet{fill:#59636e}.ours{font-weight:600}line{stroke:#8888}\
                     @media(prefers-color-scheme:dark){text{fill:#f0f6fc}.quiet{fill:#9198a1}}";

impl Chart<'_> {
    /// Draws a bar for each value, side by side.
    pub(crate) fn grouped(&self) -> String {
        let longest = self.rows.iter().flat_map(|row| row.values.iter().flatten()).copied().fold(0.0, f64::max);
        let row_height = BAR * self.series.len() as f64 + GAP;
        self.draw(row_height, |svg, row, y| {
            for (n, value) in row.values.iter().enumerate() {
                let y = BAR.mul_add(n as f64, y);
                match value {
                    Some(value) => {
                        let width = length(*value, longest);
                        rect(svg, NAMES, y, width, n);
                        label(svg, NAMES + width + 6.0, y, &thousands(*value, self.digits));
                    }
                    None => label(svg, NAMES + 6.0, y, "not measured"),
                }
            }
        })
    }

    /// Draws one bar for each row, with its values one behind the other.
    pub(crate) fn stacked(&self) -> String {
        let sum = |row: &Row| row.values.iter().flatten().sum::<f64>();
        let longest = self.rows.iter().map(sum).fold(0.0, f64::max);
        self.draw(BAR + GAP, |svg, row, y| {
            let mut x = NAMES;
            for (n, value) in row.values.iter().enumerate() {
                let width = length(value.unwrap_or_default(), longest);
                rect(svg, x, y, width, n);
                x += width;
            }
            let total = sum(row);
            let text = if total > 0.0 { thousands(total, self.digits) } else { "not measured".to_owned() };
            label(svg, x + 6.0, y, &text);
        })
    }

    /// Draws a dot for each value on a logarithmic axis, for values of many sizes.
    pub(crate) fn dots(&self) -> String {
        let values =
            || self.rows.iter().flat_map(|row| row.values.iter().flatten()).copied().filter(|value| *value > 0.0);
        let low = values().fold(f64::INFINITY, f64::min).log10().floor();
        let high = values().fold(f64::NEG_INFINITY, f64::max).log10().ceil().max(low + 1.0);
        let at = |value: f64| NAMES + (value.log10() - low) / (high - low) * (WIDTH - NAMES - VALUES);
        let height = TOP + (BAR + GAP) * self.rows.len() as f64;
        let mut lines = String::new();
        let mut exponent = low;
        while low.is_finite() && exponent <= high {
            let x = at(10f64.powf(exponent));
            let digits = if exponent < 0.0 { exponent.abs() as usize } else { 0 };
            let _ = write!(lines, r#"<line x1="{x:.1}" x2="{x:.1}" y1="{TOP}" y2="{height}"/>"#);
            let text = thousands(10f64.powf(exponent), digits);
            let _ = write!(
                lines,
                r#"<text class="quiet" x="{x:.1}" y="{}" text-anchor="middle">{text}</text>"#,
                height + 14.0
            );
            exponent += 1.0;
        }
        let chart = self.draw(BAR + GAP, |svg, row, y| {
            let told: Vec<String> = row.values.iter().flatten().map(|value| thousands(*value, self.digits)).collect();
            let mut last = NAMES;
            for (n, value) in row.values.iter().enumerate() {
                let Some(value) = value.filter(|value| *value > 0.0) else { continue };
                let (x, colour) = (at(value), COLOURS[n % COLOURS.len()]);
                let _ = write!(svg, r#"<circle cx="{x:.1}" cy="{:.1}" r="5" fill="{colour}"/>"#, y + BAR / 2.0);
                last = last.max(x);
            }
            let told = if told.is_empty() { "not measured".to_owned() } else { told.join(" / ") };
            label(svg, last + 10.0, y, &told);
        });
        chart.replace("<!-- axis -->", &lines)
    }

    fn draw(&self, row_height: f64, mut bars: impl FnMut(&mut String, &Row, f64)) -> String {
        let height = row_height.mul_add(self.rows.len() as f64, TOP + 22.0);
        let mut svg = format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0}" width="{WIDTH}" role="img"><title>{0}</title><style>{STYLE}</style><text class="title" x="0" y="16">{0}</text>"#,
            escaped(self.title)
        );
        let mut x = 0.0;
        for (n, series) in self.series.iter().enumerate() {
            rect(&mut svg, x, 28.0, 12.0, n);
            label(&mut svg, x + 18.0, 28.0, series);
            // The average width of the letters, and a gap.
            x += 7.2_f64.mul_add(series.len() as f64, 44.0);
        }
        svg.push_str("<!-- axis -->");
        for (n, row) in self.rows.iter().enumerate() {
            let y = row_height.mul_add(n as f64, TOP);
            let middle = (row_height - GAP) / 2.0 + 4.5;
            let class = if row.name.starts_with("stokehold") { "ours" } else { "" };
            let name = escaped(&row.name);
            let _ = write!(
                svg,
                r#"<text class="{class}" x="{}" y="{:.1}" text-anchor="end">{name}</text>"#,
                NAMES - 10.0,
                y + middle
            );
            bars(&mut svg, row, y);
        }
        svg.push_str("</svg>\n");
        svg
    }
}

fn length(value: f64, longest: f64) -> f64 {
    if longest > 0.0 { value / longest * (WIDTH - NAMES - VALUES) } else { 0.0 }
}

fn rect(svg: &mut String, x: f64, y: f64, width: f64, series: usize) {
    let colour = COLOURS[series % COLOURS.len()];
    let _ =
        write!(svg, r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{:.1}" fill="{colour}"/>"#, BAR - 2.0);
}

fn label(svg: &mut String, x: f64, y: f64, text: &str) {
    let text = escaped(text);
    let _ = write!(svg, r#"<text class="quiet" x="{x:.1}" y="{:.1}">{text}</text>"#, y + 11.0);
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
