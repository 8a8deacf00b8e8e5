//! Formats money.

/// Formats micro-dollars for people: `$5.00`, and four decimal places for less than ten cents.
#[must_use]
pub fn dollars(usd_micros: u64) -> String {
    if usd_micros == 0 || usd_micros >= 100_000 {
        let cents = usd_micros.saturating_add(5_000) / 10_000;
        format!("${}.{:02}", cents / 100, cents % 100)
    } else {
        format!("$0.{:04}", usd_micros.saturating_add(50) / 100)
    }
}

#[cfg(test)]
mod tests {
    use super::dollars;

    #[test]
    fn dollars_have_cents_and_little_has_more() {
        let told = [0, 1_234, 99_940, 100_000, 5_000_000, 12_345_678].map(dollars);
        assert_eq!(told, ["$0.00", "$0.0012", "$0.0999", "$0.10", "$5.00", "$12.35"]);
    }
}
