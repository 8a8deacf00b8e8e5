//! Formatting of figures for people.

/// Formats a share, 0 to 1, as a percentage. It is rounded down, so that a missed target never shows as met.
#[must_use]
pub fn percent(share: f64) -> String {
    // A rounding error of the float must not reduce the result by a tenth.
    format!("{:.1} %", (share * 1_000.0 + 1e-6).floor() / 10.0)
}

/// Formats seconds as `12 s`, `4.2 min`, `1.3 h` or `2.5 d`.
#[must_use]
pub fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 9.95 => trimmed(s, 1, "s"),
        s if s < 119.5 => trimmed(s, 0, "s"),
        s if s < 3_600.0 => trimmed(s / 60.0, 1, "min"),
        s if s < 172_800.0 => trimmed(s / 3_600.0, 1, "h"),
        s => trimmed(s / 86_400.0, 1, "d"),
    }
}

/// Formats dollars, with cents below 100.
#[must_use]
pub fn dollars(usd: f64) -> String {
    let digits = if usd < 100.0 { 2 } else { 0 };
    format!("${}", thousands(usd, digits))
}

/// Formats a number with separators between thousands.
#[must_use]
pub fn thousands(number: f64, digits: usize) -> String {
    let text = format!("{number:.digits$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut apart = String::with_capacity(text.len() + text.len() / 3);
    for (n, digit) in whole.chars().enumerate() {
        if n > 0 && (whole.len() - n).is_multiple_of(3) && digit.is_ascii_digit() && !apart.ends_with('-') {
            apart.push(',');
        }
        apart.push(digit);
    }
    apart.push_str(rest);
    apart
}

/// Formats a number without a zero as its only decimal.
fn trimmed(number: f64, digits: usize, unit: &str) -> String {
    let text = format!("{number:.digits$}");
    format!("{} {unit}", text.strip_suffix(".0").unwrap_or(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_said_as_people_say_them() {
        assert_eq!([0.95, 0.9999, 1.0, 0.0].map(percent), ["95.0 %", "99.9 %", "100.0 %", "0.0 %"]);
        assert_eq!(
            [0.0, 2.46, 30.0, 100.0, 600.0, 3_600.0, 90_000.0, 216_000.0].map(seconds),
            ["0 s", "2.5 s", "30 s", "100 s", "10 min", "1 h", "25 h", "2.5 d"]
        );
        assert_eq!([0.5, 12.345, 1_234.5, 999_999.0].map(dollars), ["$0.50", "$12.35", "$1,234", "$999,999"]);
        assert_eq!([-1_234.0, 12.0, 123_456.7].map(|n| thousands(n, 0)), ["-1,234", "12", "123,457"]);
        assert_eq!(thousands(f64::NAN, 1), "NaN");
    }
}
