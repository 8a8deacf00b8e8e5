//! Sampling of traces: OpenTelemetry's samplers by their usual names. Pure.

use stokehold_queue::job::{TraceContext, TraceId};

/// Valid names of samplers.
pub(crate) const NAMES: &str =
    "always_on, always_off, traceidratio, parentbased_always_on, parentbased_always_off or parentbased_traceidratio";

/// Decides which traces are recorded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// Set when the caller's own sampling decision counts.
    is_parent_based: bool,
    /// Share of the other traces that is recorded, 0 to 1.
    ratio: f64,
}

/// `parentbased_always_on`, the default of OpenTelemetry.
impl Default for Sampler {
    fn default() -> Self {
        Self { is_parent_based: true, ratio: 1.0 }
    }
}

impl Sampler {
    /// Parses a sampler's name and its argument, which is empty for those without one. The error contains the expected
    /// value.
    pub(crate) fn parse(name: &str, argument: &str) -> Result<Self, String> {
        let ratio = || match argument {
            "" => Ok(1.0),
            text => {
                text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio)).ok_or("a ratio from 0 to 1".to_owned())
            }
        };
        let (is_parent_based, name) = name.strip_prefix("parentbased_").map_or((false, name), |rest| (true, rest));
        let ratio = match name {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => ratio()?,
            _ => return Err(NAMES.to_owned()),
        };
        Ok(Self { is_parent_based, ratio })
    }

    /// Returns whether a trace is recorded. Every replica decides the same for a trace, and a smaller ratio records a
    /// subset.
    pub(crate) fn samples(&self, caller: Option<TraceContext>, trace_id: TraceId) -> bool {
        match caller {
            Some(caller) if self.is_parent_based => caller.is_sampled,
            Some(_) | None => trace_id.lot() < self.ratio,
        }
    }
}

#[cfg(test)]
mod tests {
    use stokehold_queue::JobId;

    use super::*;

    fn place(is_sampled: bool) -> TraceContext {
        let place = TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00").unwrap();
        TraceContext { is_sampled, ..place }
    }

    fn sampler(name: &str, argument: &str) -> Sampler {
        Sampler::parse(name, argument).unwrap()
    }

    #[test]
    fn a_callers_word_counts_where_the_sampler_is_parent_based() {
        for (name, is_sampled, samples) in [
            ("parentbased_always_off", true, true),
            ("parentbased_always_on", false, false),
            ("always_off", true, false),
            ("always_on", false, true),
        ] {
            let caller = place(is_sampled);
            assert_eq!(sampler(name, "").samples(Some(caller), caller.trace_id), samples, "{name}");
        }
    }

    #[test]
    fn a_ratio_of_jobs_of_their_own_trace_is_recorded() {
        let jobs: Vec<TraceId> = (0..4_000).map(|_| TraceId::of(JobId::new(0))).collect();
        let sampled = |ratio: &str| {
            let sampler = sampler("parentbased_traceidratio", ratio);
            jobs.iter().filter(|trace| sampler.samples(None, **trace)).count()
        };
        assert_eq!((sampled("0"), sampled("1"), sampled("")), (0, 4_000, 4_000));
        // 1,000 expected, with a standard deviation of 27: a result outside 7 of them occurs once in 10^11 runs.
        assert!((808..1_192).contains(&sampled("0.25")), "{}", sampled("0.25"));
    }

    #[test]
    fn what_is_no_sampler_is_refused_with_those_that_are() {
        assert_eq!(Sampler::parse("sometimes", "").unwrap_err(), NAMES);
        for wrong in ["1.1", "-1", "half", "nan"] {
            assert!(Sampler::parse("traceidratio", wrong).unwrap_err().contains("0 to 1"), "{wrong}");
        }
    }
}
