//! Conversion between dollars in text and micro-dollars in the API.

pub(crate) use stokehold_queue::costs::dollars;

/// Parses `2.50` or `$2.50` to micro-dollars.
pub(crate) fn micros(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not an amount in US dollars; use e.g. 2.50");
    let (whole, part) = text.trim_start_matches('$').split_once('.').unwrap_or((text.trim_start_matches('$'), ""));
    if part.len() > 6 || whole.is_empty() || !(whole.bytes().chain(part.bytes())).all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let part: u64 = format!("{part:0<6}").parse().map_err(|_| wrong())?;
    whole.checked_mul(1_000_000).and_then(|micros| micros.checked_add(part)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_read_to_the_micro_dollar() {
        for (text, is) in [("5", 5_000_000), ("2.50", 2_500_000), ("$0.000001", 1), ("0", 0), ("10.", 10_000_000)] {
            assert_eq!(micros(text), Ok(is), "{text}");
        }
        for wrong in ["", "five", "-1", "1.0000001", "1e3", "99999999999999999999", "1.2.3", ".5"] {
            assert!(micros(wrong).is_err(), "{wrong}");
        }
    }
}
