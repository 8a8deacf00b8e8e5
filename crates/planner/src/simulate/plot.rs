//! The plot of a simulation, as SVG: demand and machines, waits, the queue, and costs, over one time axis. It contains
//! colours for light and for dark pages, and needs no font and no script.

mod merge;
mod panel;
mod path;
mod scale;

use std::fmt::Write as _;

use merge::{MAX_POINTS, merge, smooth};
use panel::{Mark, Panel};
use path::{area, dots, line, steps};
use scale::{Axis, Time};

use super::outcome::{ByPriority, Outcome, Sample};
use super::trace::Priority;
use super::words;

/// Width of the plot. All lengths are in its units, which a page shows at one pixel each.
const WIDTH: f64 = 960.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 26.0;
/// Position of the first panel's heading.
const FIRST: f64 = 136.0;
/// Distances from a panel's heading to its top, and from its bottom to the next heading.
const HEADING: f64 = 13.0;
const GAP: f64 = 38.0;
/// Heights of the panels, from top to bottom.
const HEIGHTS: [f64; 4] = [200.0, 150.0, 90.0, 110.0];
/// Height of the time labels below the last panel.
const BOTTOM: f64 = 40.0;
const STYLE: &str = include_str!("plot/style.css");

/// Draws a simulation. Samples are in order of time. Samples that are closer than the resolution are merged, so that
/// the plot stays below 200 kB.
#[must_use]
pub fn svg(title: &str, outcome: &Outcome, samples: &[Sample]) -> String {
    let samples = merge(samples, MAX_POINTS);
    let time = Time::of(&samples, LEFT, WIDTH - RIGHT);
    let height = FIRST + HEIGHTS.iter().sum::<f64>() + (HEADING + GAP) * 3.0 + HEADING + BOTTOM;
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0}" width="{WIDTH}" height="{height:.0}" role="img"><title>{title}</title><style>{style}</style><rect class="page" x=".5" y=".5" width="{:.0}" height="{:.0}" rx="10"/>"#,
        WIDTH - 1.0,
        height - 1.0,
        title = escaped(title),
        style = STYLE.lines().map(str::trim).collect::<String>(),
    );
    header(&mut svg, title, outcome);
    let mut top = FIRST;
    let panels: [fn(&mut Panel<'_>, &[Sample], &Outcome); 4] = [machines, waits, queue, spend];
    for (draw, height) in panels.into_iter().zip(HEIGHTS) {
        let mut panel = Panel::new(&mut svg, &time, top + HEADING, height);
        draw(&mut panel, &samples, outcome);
        top += HEADING + height + GAP;
    }
    for (x, label) in time.labels() {
        let y = top - GAP + 20.0;
        let _ = write!(svg, r#"<text class="quiet" x="{x:.1}" y="{y:.1}" text-anchor="middle">{label}</text>"#);
    }
    svg.push_str("</svg>\n");
    svg
}

/// Draws the title and the main figures of a simulation.
fn header(svg: &mut String, title: &str, outcome: &Outcome) {
    let ratio = outcome.ratio.map(|ratio| ("of the lower bound", format!("{ratio:.2} ×")));
    let first = [("policy", outcome.policy.clone()), ("cost", words::dollars(outcome.cost_usd))];
    let rest = [
        ("in time, interactive · batch", both(outcome.attainment, words::percent)),
        ("p95 wait, interactive · batch", both(outcome.wait_s, |wait| words::seconds(wait.p95))),
        ("in use", words::percent(outcome.utilisation)),
    ];
    let _ = write!(svg, r#"<text class="title" x="26" y="38">{}</text>"#, escaped(title));
    let mut x = 26.0;
    for (label, value) in first.into_iter().chain(ratio).chain(rest) {
        let value = escaped(&value);
        let _ = write!(
            svg,
            r#"<text class="quiet" x="{x:.0}" y="70">{label}</text><text class="figure" x="{x:.0}" y="93">{value}</text>"#
        );
        // The average width of the letters, and a gap.
        x += (6.0 * label.chars().count() as f64).max(9.3 * value.chars().count() as f64) + 30.0;
    }
    let _ = write!(svg, r#"<path class="grid" d="M26 108.5H{:.0}"/>"#, WIDTH - RIGHT);
}

fn both<T>(figures: ByPriority<T>, say: impl Fn(T) -> String) -> String {
    format!("{} · {}", say(figures.interactive), say(figures.batch))
}

/// Draws the panel of demand and machines.
fn machines(panel: &mut Panel<'_>, samples: &[Sample], _: &Outcome) {
    let demand = smooth(samples.iter().map(|sample| sample.demand_cards));
    let ready = |sample: &Sample| f64::from(sample.ready);
    let rented = |sample: &Sample| f64::from(sample.ready) + f64::from(sample.booting);
    let stopped = |sample: &Sample| f64::from(sample.stopped);
    let most = samples.iter().map(|sample| rented(sample).max(stopped(sample))).fold(0.0, f64::max);
    // A long job is a peak of demand when it arrives. The highest of these peaks may exceed the axis.
    let axis = Axis::counts(most.max(merge::quantile(&demand, 0.98)));
    panel.axis("Cards", &axis, &|count| words::thousands(count, 0));
    let mut legend = vec![("demand", Mark::Area(""), "arriving work"), ("ready", Mark::Line, "machines ready")];
    panel.shape("demand area", &area(&panel.points(samples, &axis, demand.iter().copied()), panel.bottom()));
    if samples.iter().any(|sample| sample.booting > 0) {
        let booting = panel.points(samples, &axis, samples.iter().map(rented));
        let from = panel.points(samples, &axis, samples.iter().map(ready));
        panel.shape("booting area strong", &path::band(&booting, &from));
        legend.push(("booting", Mark::Area(" strong"), "booting"));
    }
    if samples.iter().any(|sample| sample.stopped > 0) {
        panel.shape("stopped line thin", &steps(&panel.points(samples, &axis, samples.iter().map(stopped))));
        legend.push(("stopped", Mark::Line, "stopped"));
    }
    panel.shape("ready line", &steps(&panel.points(samples, &axis, samples.iter().map(ready))));
    panel.legend(&legend);
}

/// Draws the panel of waits.
fn waits(panel: &mut Panel<'_>, samples: &[Sample], _: &Outcome) {
    let interactive = |sample: &Sample| sample.wait_interactive_s;
    let batch = |sample: &Sample| sample.wait_batch_s;
    let most = samples.iter().map(|sample| interactive(sample).max(batch(sample))).fold(0.0, f64::max);
    let axis = Axis::waits(most);
    panel.axis("Longest wait", &axis, &scale::wait);
    let targets = [("interactive", Priority::Interactive.target_s()), ("batch", Priority::Batch.target_s())];
    for (class, target_s) in targets {
        panel.level(&format!("{class} line dashed"), &axis, target_s);
    }
    // A wait at the minimum means that no job started, or that jobs started at once. Neither gets a dot.
    let least = axis.least();
    for (class, wait) in [("batch", &batch as &dyn Fn(&Sample) -> f64), ("interactive", &interactive)] {
        let points = panel.points(samples, &axis, samples.iter().map(wait));
        let shown = points.into_iter().zip(samples).filter(|(_, sample)| wait(sample) > least).map(|(point, _)| point);
        panel.shape(&format!("{class} dots"), &dots(shown));
    }
    panel.legend(&[
        ("interactive", Mark::Dot, "interactive"),
        ("batch", Mark::Dot, "batch"),
        ("goal", Mark::Dashes, "to be met: 30 s and 1 h"),
    ]);
}

/// Draws the panel of waiting jobs.
fn queue(panel: &mut Panel<'_>, samples: &[Sample], _: &Outcome) {
    let interactive = |sample: &Sample| f64::from(sample.waiting_interactive);
    let all = |sample: &Sample| f64::from(sample.waiting_interactive) + f64::from(sample.waiting_batch);
    let axis = Axis::counts(samples.iter().map(all).fold(0.0, f64::max));
    panel.axis("Jobs waiting", &axis, &|count| words::thousands(count, 0));
    let below = panel.points(samples, &axis, samples.iter().map(interactive));
    let above = panel.points(samples, &axis, samples.iter().map(all));
    panel.shape("interactive area strong", &area(&below, panel.bottom()));
    panel.shape("batch area strong", &path::band(&above, &below));
    panel.legend(&[("interactive", Mark::Area(" strong"), "interactive"), ("batch", Mark::Area(" strong"), "batch")]);
}

/// Draws the panel of the cost so far, and the lower bound of the total cost if there is one.
fn spend(panel: &mut Panel<'_>, samples: &[Sample], outcome: &Outcome) {
    let spent = |sample: &Sample| sample.spent_usd;
    let axis = Axis::amounts(samples.iter().map(spent).fold(outcome.bound_usd.unwrap_or(0.0), f64::max));
    let digits = axis.digits();
    panel.axis("Spend", &axis, &|usd| format!("${}", words::thousands(usd, digits)));
    let points = panel.points(samples, &axis, samples.iter().map(spent));
    panel.shape("spent area faint", &path::under(&points, panel.bottom()));
    panel.shape("spent line", &line(&points));
    let bound = outcome.bound_usd.map(|usd| {
        panel.level("goal line dashed", &axis, usd);
        format!("lower bound, {}", words::dollars(usd))
    });
    let mut legend = vec![("spent", Mark::Line, "paid so far")];
    legend.extend(bound.as_deref().map(|bound| ("goal", Mark::Dashes, bound)));
    panel.legend(&legend);
}

/// Escapes text for XML and removes characters that XML does not allow: most control characters, even if escaped.
fn escaped(text: &str) -> String {
    let text: String = text.chars().filter(|c| !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}')).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome() -> Outcome {
        Outcome {
            policy: "a<b>".to_owned(),
            seed: 1,
            jobs: 7,
            cost_usd: 12.5,
            bound_usd: Some(5.0),
            ratio: Some(2.5),
            attainment: ByPriority { interactive: 0.96, batch: 1.0 },
            wait_s: ByPriority::default(),
            utilisation: 0.5,
            boots: 3,
            cold_loads: 3,
            disk_loads: 0,
            resumes: 0,
            losses: 0,
        }
    }

    /// Samples in which every value changes from one to the next.
    fn noisy(count: u32) -> Vec<Sample> {
        let sample = |n: u32| {
            let noise = n.wrapping_mul(2_654_435_761) >> 24;
            Sample {
                at_s: f64::from(n) * 5.0,
                demand_cards: f64::from(noise) / 10.0,
                ready: noise,
                busy: noise / 2,
                booting: noise % 7,
                stopped: noise % 5,
                waiting_interactive: noise * 3,
                waiting_batch: noise * 5,
                wait_interactive_s: f64::from(noise),
                wait_batch_s: f64::from(noise) * 20.0,
                spent_usd: f64::from(n) / 1_000.0,
            }
        };
        (0..count).map(sample).collect()
    }

    /// Asserts that every tag is closed by a tag of the same name, and that nothing is outside of tags.
    fn assert_is_xml(svg: &str) {
        let mut open: Vec<&str> = Vec::new();
        for part in svg.trim_end().split('<').skip(1) {
            let (tag, text) = part.split_once('>').expect("a tag is closed");
            let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name));
            } else if !tag.ends_with('/') {
                open.push(name);
            }
            assert!(!open.is_empty() || text.is_empty(), "{text:?} is in nothing");
        }
        assert!(open.is_empty(), "{open:?} are open");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "it has a number that is none");
    }

    #[test]
    fn the_noisiest_picture_stays_small() {
        let svg = svg("a week", &outcome(), &noisy(120_000));
        assert!(svg.len() < 200_000, "{} bytes", svg.len());
        assert_is_xml(&svg);
    }

    #[test]
    fn a_title_is_text_and_nothing_else() {
        let svg = svg("</text><script>\u{0}\u{1b}\"&", &outcome(), &noisy(3));
        assert_is_xml(&svg);
        assert!(svg.contains(">&lt;/text&gt;&lt;script&gt;&quot;&amp;</text>") && svg.contains(">a&lt;b&gt;</text>"));
    }

    #[test]
    fn nothing_is_too_little_to_draw() {
        let wrong = Sample { at_s: f64::NAN, demand_cards: f64::INFINITY, spent_usd: f64::NAN, ..Sample::default() };
        for samples in [vec![], noisy(1), vec![Sample::default(); 3], vec![wrong; 2]] {
            assert_is_xml(&svg("nothing", &outcome(), &samples));
        }
        for bound_usd in [None, Some(0.0)] {
            let nothing = Outcome { bound_usd, ratio: bound_usd.map(|_| 1.0), ..outcome() };
            assert_is_xml(&svg("nothing", &nothing, &noisy(2)));
        }
    }
}
