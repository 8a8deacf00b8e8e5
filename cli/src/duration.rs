//! Durations on the command line, e.g. `90s` or `10m`, where the API takes whole numbers of a unit.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Parses a duration of whole seconds within these bounds.
pub(crate) fn seconds(bounds: RangeInclusive<u64>) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync {
    move |text| {
        let given = humantime::parse_duration(text).map_err(|error| error.to_string())?;
        if given.subsec_nanos() > 0 || !bounds.contains(&given.as_secs()) {
            let [least, most] = [*bounds.start(), *bounds.end()].map(Duration::from_secs).map(words);
            return Err(format!("must be whole seconds from {least} to {most}"));
        }
        Ok(given.as_secs())
    }
}

/// Parses a duration of whole milliseconds up to this number.
pub(crate) fn millis(most: u64) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync {
    move |text| {
        let given = humantime::parse_duration(text).map_err(|error| error.to_string())?;
        let millis = u64::try_from(given.as_millis()).ok().filter(|millis| *millis <= most);
        millis
            .filter(|millis| Duration::from_millis(*millis) == given)
            .ok_or_else(|| format!("must be whole milliseconds up to {}", words(Duration::from_millis(most))))
    }
}

/// Longest duration that [`parse`] accepts. A clock cannot add a much longer one to the time.
const LONGEST: Duration = Duration::from_secs(100 * 31_557_600);

/// Parses a duration of at most a hundred years.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let given = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if given > LONGEST {
        return Err(format!("must be at most {}", words(LONGEST)));
    }
    Ok(given)
}

/// Parses a duration to seconds.
pub(crate) fn fraction_seconds(text: &str) -> Result<f64, String> {
    humantime::parse_duration(text).map(|given| given.as_secs_f64()).map_err(|error| error.to_string())
}

/// A duration as it is typed.
pub(crate) fn words(time: Duration) -> String {
    humantime::format_duration(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_and_bounds() {
        let seconds = seconds(1..=604_800);
        assert_eq!((seconds("90s"), seconds("10m"), seconds("7d")), (Ok(90), Ok(600), Ok(604_800)));
        for wrong in ["0s", "8d", "1500ms", "soon"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
        assert!(seconds("5").is_err_and(|error| error.contains("unit")));
        assert!(seconds("0s").is_err_and(|error| error.contains("7days")));
        let millis = millis(60_000);
        assert_eq!((millis("2500ms"), millis("1m"), millis("0s")), (Ok(2_500), Ok(60_000), Ok(0)));
        assert!(millis("61s").is_err() && millis("1us").is_err());
        assert_eq!(fraction_seconds("1m 500ms"), Ok(60.5));
    }

    #[test]
    fn a_time_after_any_duration_exists() {
        assert_eq!(parse("90s"), Ok(Duration::from_secs(90)));
        assert!(tokio::time::Instant::now().checked_add(parse("100y").unwrap()).is_some());
        for wrong in ["101y", "584542046090y"] {
            assert_eq!(parse(wrong), Err("must be at most 100years".to_owned()), "{wrong}");
        }
    }
}
