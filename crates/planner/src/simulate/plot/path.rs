//! Paths of points from left to right. Values hold from their point until the next one.

use std::fmt::Write as _;

/// Position of a value in the plot.
pub(super) type Point = (f64, f64);

/// Path from point to point.
pub(super) fn line(points: &[Point]) -> String {
    let mut path = String::new();
    for (n, (x, y)) in points.iter().enumerate() {
        let _ = write!(path, "{}{x:.1} {y:.1}", if n == 0 { "M" } else { "L" });
    }
    path
}

/// Path in steps.
pub(super) fn steps(points: &[Point]) -> String {
    let mut path = String::new();
    walk(&mut path, points.iter().copied());
    path
}

/// Area below steps.
pub(super) fn area(points: &[Point], bottom: f64) -> String {
    closed(steps(points), points, bottom)
}

/// Area below a line.
pub(super) fn under(points: &[Point], bottom: f64) -> String {
    closed(line(points), points, bottom)
}

/// Area between two step lines at the same positions.
pub(super) fn band(above: &[Point], below: &[Point]) -> String {
    let mut path = String::new();
    let mut from = 0;
    // One shape for each stretch in which the two lines differ.
    while let Some(begin) = (from..above.len()).find(|n| is_apart(above[*n], below[*n])) {
        let end = (begin..above.len()).find(|n| !is_apart(above[*n], below[*n])).unwrap_or(above.len());
        let until = above.get(end).unwrap_or(&above[above.len() - 1]).0;
        walk(&mut path, above[begin..end].iter().copied());
        let _ = write!(path, "H{until:.1}");
        for (n, (x, y)) in below[begin..end].iter().enumerate().rev() {
            let _ = write!(path, "V{y:.1}");
            if n == 0 || below[begin + n - 1].1 != *y {
                let _ = write!(path, "H{x:.1}");
            }
        }
        path.push('Z');
        from = end;
    }
    path
}

/// Path with a dot for each point.
pub(super) fn dots(points: impl Iterator<Item = Point>) -> String {
    let mut path = String::new();
    for (x, y) in points {
        // A path of almost no length, of which only the round ends are visible.
        let _ = write!(path, "M{x:.1} {y:.1}h.1");
    }
    path
}

fn is_apart(one: Point, other: Point) -> bool {
    (one.1 - other.1).abs() > 0.05
}

fn closed(mut path: String, points: &[Point], bottom: f64) -> String {
    if let (Some((first, _)), Some((last, _))) = (points.first(), points.last()) {
        let _ = write!(path, "H{last:.1}V{bottom:.1}H{first:.1}Z");
    }
    path
}

/// Writes only coordinates that change.
fn walk(path: &mut String, points: impl Iterator<Item = Point>) {
    let mut last: Option<Point> = None;
    let mut at = 0.0;
    for (x, y) in points {
        match last {
            None => {
                let _ = write!(path, "M{x:.1} {y:.1}");
            }
            Some((_, before)) if (before - y).abs() >= 0.05 => {
                let _ = write!(path, "H{x:.1}V{y:.1}");
            }
            Some(_) => {
                at = x;
                continue;
            }
        }
        (last, at) = (Some((x, y)), x);
    }
    if last.is_some_and(|(x, _)| at > x) {
        let _ = write!(path, "H{at:.1}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINTS: [Point; 4] = [(0.0, 5.0), (1.0, 5.0), (2.0, 3.0), (3.0, 3.0)];

    #[test]
    fn steps_say_only_what_changes() {
        assert_eq!(steps(&POINTS), "M0.0 5.0H2.0V3.0H3.0");
        assert_eq!(area(&POINTS, 9.0), "M0.0 5.0H2.0V3.0H3.0H3.0V9.0H0.0Z");
        assert_eq!((steps(&[]), area(&[], 9.0), line(&[])), (String::new(), String::new(), String::new()));
    }

    #[test]
    fn a_band_is_drawn_where_there_is_one() {
        let below = POINTS.map(|(x, _)| (x, 5.0));
        assert_eq!(band(&POINTS, &below), "M2.0 3.0H3.0H3.0V5.0V5.0H2.0Z");
        assert_eq!(band(&POINTS, &POINTS), "");
    }
}
