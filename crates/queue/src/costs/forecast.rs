//! Forecasts the cost of jobs from the cost of earlier jobs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Spent;

/// Number of days of spending that a forecast uses, including today.
pub const FORECAST_DAYS: u32 = 7;

/// Below this number of jobs the range is half of the estimate to each side, because a few jobs are a weak basis.
const FEW_JOBS: u64 = 50;

/// Share of all jobs, in percent, that a day needs before it can widen the range.
const DAY_PERCENT: u64 = 5;

/// Minimum width of the range to each side, percent: inputs differ.
const LEAST_PERCENT: f64 = 10.0;
const FEW_PERCENT: f64 = 50.0;

/// Estimated cost of lines: running them and loading models for them. It excludes the overhead of instances.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Cost of all lines, micro-dollars.
    pub usd_micros: u64,
    /// Low end of the range.
    pub low_usd_micros: u64,
    /// High end of the range.
    pub high_usd_micros: u64,
    /// Average cost of a line.
    pub per_line_usd_micros: f64,
    /// The number of jobs behind the estimate.
    pub basis_jobs: u64,
}

/// Reason why no estimate is possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unknown {
    /// No job of the endpoint has ended in the last [`FORECAST_DAYS`] days.
    NoJobs,
    /// The workers that ran the jobs report no price.
    NoPrice,
    /// The lines run on more than one endpoint, and the number of lines per endpoint is unknown.
    Mixed,
}

/// A forecast, or the reason why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Forecast {
    /// The estimate.
    Known(Estimate),
    /// No estimate is possible.
    Unknown(Unknown),
}

impl Forecast {
    /// The estimate, if there is one.
    #[must_use]
    pub fn estimate(&self) -> Option<&Estimate> {
        match self {
            Self::Known(estimate) => Some(estimate),
            Self::Unknown(_) => None,
        }
    }
}

impl Estimate {
    /// Relative forecast error, in percent: positive if `lines` of the lines cost more than estimated, negative if
    /// less.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a percentage")]
    pub fn error_pct(&self, spent_usd_micros: u64, lines: u64) -> Option<f64> {
        let thought = self.per_line_usd_micros * lines as f64;
        (thought > 0.0).then(|| ((spent_usd_micros as f64 / thought - 1.0) * 1_000.0).round() / 10.0)
    }
}

/// Forecasts the cost of these numbers of lines on endpoints of one tenant, from the spending of the last days.
#[must_use]
pub fn forecast(spent: &[Spent], lines: &BTreeMap<String, u64>) -> Forecast {
    let mut whole =
        Estimate { usd_micros: 0, low_usd_micros: 0, high_usd_micros: 0, per_line_usd_micros: 0.0, basis_jobs: 0 };
    let all: u64 = lines.values().sum();
    let mut sums = [0.0; 3];
    for (endpoint, lines) in lines {
        let (jobs, per_line) = match per_line(spent, endpoint) {
            Ok(known) => known,
            Err(why) => return Forecast::Unknown(why),
        };
        whole.basis_jobs += jobs;
        for (sum, one) in sums.iter_mut().zip(per_line) {
            *sum += micros(*lines, one);
        }
    }
    [whole.usd_micros, whole.low_usd_micros, whole.high_usd_micros] = sums.map(rounded);
    whole.per_line_usd_micros = (sums[0] / micros(all.max(1), 1.0) * 1_000.0).round() / 1_000.0;
    Forecast::Known(whole)
}

/// Number of jobs of an endpoint, and the mean, low and high cost of one.
#[expect(clippy::cast_precision_loss, reason = "means")]
fn per_line(spent: &[Spent], endpoint: &str) -> Result<(u64, [f64; 3]), Unknown> {
    let mut days: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for it in spent.iter().filter(|it| it.endpoint == endpoint) {
        let day = days.entry(it.day).or_default();
        *day = (day.0 + it.jobs, day.1 + it.run_usd_micros + it.load_usd_micros);
    }
    let (jobs, cost) = days.values().fold((0, 0), |(jobs, cost), day| (jobs + day.0, cost + day.1));
    match (jobs, cost) {
        (0, _) => return Err(Unknown::NoJobs),
        (_, 0) => return Err(Unknown::NoPrice),
        _ => {}
    }
    let mean = cost as f64 / jobs as f64;
    let percent = if jobs < FEW_JOBS { FEW_PERCENT } else { LEAST_PERCENT };
    let (mut low, mut high) = (mean * (1.0 - percent / 100.0), mean * (1.0 + percent / 100.0));
    for (of_day, cost) in days.values().filter(|(of_day, _)| of_day * 100 >= jobs * DAY_PERCENT && *of_day > 0) {
        low = low.min(*cost as f64 / *of_day as f64);
        high = high.max(*cost as f64 / *of_day as f64);
    }
    Ok((jobs, [mean, low, high]))
}

#[expect(clippy::cast_precision_loss, reason = "lines of a batch: at most ten million")]
fn micros(lines: u64, per_line: f64) -> f64 {
    lines as f64 * per_line
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and a cast saturates")]
fn rounded(micros: f64) -> u64 {
    micros.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(day: u32, endpoint: &str, jobs: u64, cost: u64) -> Spent {
        let load = cost / 10;
        Spent {
            day,
            tenant: "acme".to_owned(),
            endpoint: endpoint.to_owned(),
            jobs,
            run_usd_micros: cost - load,
            load_usd_micros: load,
            ..Spent::default()
        }
    }

    fn on(endpoint: &str, lines: u64) -> BTreeMap<String, u64> {
        [(endpoint.to_owned(), lines)].into()
    }

    fn told(spent: &[Spent], lines: &BTreeMap<String, u64>) -> (u64, u64, u64, u64) {
        let Forecast::Known(it) = forecast(spent, lines) else { panic!("unknown") };
        (it.usd_micros, it.low_usd_micros, it.high_usd_micros, it.basis_jobs)
    }

    #[test]
    fn lines_cost_what_jobs_have_cost_on_average() {
        let week = [spent(1, "draw", 900, 90_000), spent(2, "draw", 100, 15_000), spent(2, "write", 9, 9_000_000)];
        // 105 on average, 100 on one day and 150 on the other.
        assert_eq!(told(&week, &on("draw", 1_000)), (105_000, 94_500, 150_000, 1_000));
        let Forecast::Known(it) = forecast(&week, &on("draw", 1_000)) else { panic!() };
        assert!((it.per_line_usd_micros - 105.0).abs() < 1e-9);
        assert_eq!(it.error_pct(115_500, 1_000), Some(10.0));
        assert_eq!(it.error_pct(52_500, 1_000), Some(-50.0));
        assert_eq!(it.error_pct(0, 0), None, "nothing ran");
    }

    #[test]
    fn a_few_jobs_say_little_and_a_day_of_a_few_nothing() {
        assert_eq!(told(&[spent(1, "draw", 10, 1_000)], &on("draw", 10)), (1_000, 500, 1_500, 10));
        let odd = [spent(1, "draw", 996, 99_600), spent(2, "draw", 4, 400_000)];
        let (all, low, high, _) = told(&odd, &on("draw", 1_000));
        assert_eq!((all, low, high), (499_600, 100_000, 549_560), "four jobs are no day");
    }

    #[test]
    fn several_endpoints_are_added_up() {
        let both = [spent(1, "draw", 100, 10_000), spent(1, "write", 100, 200_000)];
        let lines = [("draw".to_owned(), 10), ("write".to_owned(), 1)].into();
        assert_eq!(told(&both, &lines), (3_000, 2_700, 3_300, 200));
    }

    #[test]
    fn what_is_not_known_is_said() {
        assert_eq!(forecast(&[], &on("draw", 1)), Forecast::Unknown(Unknown::NoJobs));
        assert_eq!(forecast(&[spent(1, "draw", 5, 0)], &on("draw", 1)), Forecast::Unknown(Unknown::NoPrice));
        let text = serde_json::to_string(&forecast(&[], &on("draw", 1))).unwrap();
        assert_eq!(text, r#"{"unknown":"no_jobs"}"#);
        let known = forecast(&[spent(1, "draw", 5, 500)], &on("draw", 3));
        assert_eq!(serde_json::from_str::<Forecast>(&serde_json::to_string(&known).unwrap()).unwrap(), known);
    }
}
