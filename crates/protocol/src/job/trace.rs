//! The trace of a job: W3C Trace Context. A job whose caller has no trace starts its own, with the job's id as trace
//! id.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::id::JobId;

/// The flag of a trace that is recorded.
const SAMPLED: u8 = 1;

/// The id of a trace, never all zeros.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

/// The id of a span of a trace, never all zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId([u8; 8]);

/// A position in a trace: the content of a `traceparent` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace_id: TraceId,
    /// The parent span of what follows.
    pub span_id: SpanId,
    /// Whether the caller records the trace.
    pub is_sampled: bool,
}

impl TraceId {
    /// The trace of a job whose caller has none.
    #[must_use]
    pub fn of(job: JobId) -> Self {
        Self(*job.as_bytes())
    }

    /// The bytes of the id.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// A number in [0, 1) for sampling, the same for the whole trace. It comes from a digest, because jobs created
    /// within one millisecond have consecutive ids, whose digits are not random.
    #[must_use]
    pub fn lot(&self) -> f64 {
        let digest = Sha256::digest(self.0);
        let bits = digest[..6].iter().fold(0_u64, |bits, byte| (bits << 8) | u64::from(*byte));
        #[expect(clippy::cast_precision_loss, reason = "48 bits are exact")]
        let lot = bits as f64 / (1_u64 << 48) as f64;
        lot
    }
}

impl SpanId {
    /// The span id of a part of a job, e.g. `job` or `2/run`. It is always the same, so that repeated exports describe
    /// the same span.
    #[must_use]
    pub fn of(job: JobId, part: &str) -> Self {
        let digest = Sha256::new().chain_update(job.as_bytes()).chain_update(part).finalize();
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&digest[..8]);
        // One in 2^64, and not a valid span id.
        if bytes == [0; 8] {
            bytes[7] = 1;
        }
        Self(bytes)
    }

    /// The bytes of the id.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

impl TraceContext {
    /// The same trace at another span.
    #[must_use]
    pub fn at(self, span_id: SpanId) -> Self {
        Self { span_id, ..self }
    }

    /// Parses a `traceparent` header; `None` if it is not usable, in which case a new trace begins.
    #[must_use]
    pub fn parse(traceparent: &str) -> Option<Self> {
        let (version, rest) = traceparent.trim().split_once('-')?;
        let [version] = bytes(version)?;
        // Later versions may append fields. Version 00 has none, and version ff is invalid.
        let place = if version == 0 {
            rest
        } else {
            rest.get(..52).filter(|_| matches!(rest.as_bytes().get(52), None | Some(b'-')))?
        };
        (version != 0xff).then(|| place.parse().ok()).flatten()
    }
}

/// Formats a `traceparent` header.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}", self.stored())
    }
}

impl TraceContext {
    /// The form in records: without the version.
    fn stored(&self) -> String {
        format!("{}-{}-{:02x}", self.trace_id, self.span_id, if self.is_sampled { SAMPLED } else { 0 })
    }
}

/// Error for a text that is not a trace context.
#[derive(Debug, Clone, thiserror::Error)]
#[error("a trace context is <32 hex digits>-<16 hex digits>-<2 hex digits>, the first two not all zeroes")]
pub struct ParseTraceError;

impl FromStr for TraceContext {
    type Err = ParseTraceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let (trace_id, rest) = text.split_once('-')?;
            let (span_id, flags) = rest.split_once('-')?;
            let (trace_id, span_id, [flags]) = (bytes(trace_id)?, bytes(span_id)?, bytes(flags)?);
            (trace_id != [0; 16] && span_id != [0; 8]).then_some(Self {
                trace_id: TraceId(trace_id),
                span_id: SpanId(span_id),
                is_sampled: flags & SAMPLED != 0,
            })
        };
        read().ok_or(ParseTraceError)
    }
}

/// Parses exactly N bytes of lower-case hex digits.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let is_lower = text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    (is_lower && hex::decode_to_slice(text, &mut bytes).is_ok()).then_some(bytes)
}

impl Serialize for TraceContext {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.stored())
    }
}

impl<'de> Deserialize<'de> for TraceContext {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_comes_back_as_it_was() {
        let context = TraceContext::parse(GIVEN).unwrap();
        assert_eq!(context.to_string(), GIVEN);
        assert!(context.is_sampled);
        let stored = serde_json::to_string(&context).unwrap();
        assert_eq!(stored, format!("\"{}\"", &GIVEN[3..]));
        assert_eq!(serde_json::from_str::<TraceContext>(&stored).unwrap(), context);
    }

    #[test]
    fn what_a_later_version_adds_is_left_out_and_nonsense_begins_anew() {
        let later = format!("cc{}-what-the-future-brings", &GIVEN[2..]);
        assert_eq!(TraceContext::parse(&later), TraceContext::parse(GIVEN));
        for wrong in [
            "",
            "00",
            "no trace",
            &GIVEN.to_uppercase(),
            &format!("ff{}", &GIVEN[2..]),
            &format!("{GIVEN}-more"),
            &format!("cc{}more", &GIVEN[2..]),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0é",
        ] {
            assert_eq!(TraceContext::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_job_without_a_callers_trace_is_the_trace_of_its_own_id() {
        let (job, other) = (JobId::new(0), JobId::new(0));
        assert_eq!(TraceId::of(job).to_string(), job.to_string());
        assert_eq!(SpanId::of(job, "1/run"), SpanId::of(job, "1/run"));
        assert_ne!(SpanId::of(job, "1/run"), SpanId::of(job, "2/run"));
        assert_ne!(SpanId::of(job, "1/run"), SpanId::of(other, "1/run"));
    }
}
