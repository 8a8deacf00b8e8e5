//! The identifiers of jobs and leases.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// Number of lines of a batch with the same time bits, whose ids have no order among each other.
const LINES_A_STEP: u64 = 2_442;

/// A job's id: a UUIDv7, written as 32 lower-case hex digits everywhere (URL, JSON, Redis), so ids sort by creation
/// time.
///
/// The last byte is the job's shard, so that the id alone locates its record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(Uuid);

impl JobId {
    /// A new id on `shard`. The remaining 66 random bits keep ids unguessable.
    #[must_use]
    pub fn new(shard: u8) -> Self {
        let mut bytes = *Uuid::now_v7().as_bytes();
        bytes[15] = shard;
        Self(Uuid::from_bytes(bytes))
    }

    /// The id of one line of a batch. A line always has the same id, so that a line that is fed twice is one job.
    /// `created_ms` is the batch's time; the batch's own id keeps the job ids unguessable. The ids sort roughly by
    /// line, so that jobs that end together are stored together.
    #[must_use]
    pub fn of_line(batch: &str, created_ms: u64, line: u64, shard: u8) -> Self {
        let digest = Sha256::new().chain_update(batch).chain_update(line.to_be_bytes()).finalize();
        let mut random = [0; 10];
        random.copy_from_slice(&digest[..10]);
        // The 12 bits after the time: ten million lines over 4,096 steps.
        let [.., high, low] = (line / LINES_A_STEP).min(0xfff).to_be_bytes();
        random[..2].copy_from_slice(&[high, low]);
        let mut bytes = *uuid::Builder::from_unix_timestamp_millis(created_ms, &random).as_uuid().as_bytes();
        bytes[15] = shard;
        Self(Uuid::from_bytes(bytes))
    }

    /// The id of these 16 bytes, as streams hold them.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// The form in streams.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// The shard that holds this job.
    #[must_use]
    pub fn shard(&self) -> u8 {
        self.0.as_bytes()[15]
    }

    /// The 62 bits that are neither time nor version.
    pub(crate) fn random_bits(&self) -> u64 {
        self.0.as_u64_pair().1
    }

    /// Time of the job's creation, Unix milliseconds.
    #[must_use]
    pub fn created_ms(&self) -> u64 {
        let b = self.0.as_bytes();
        b[..6].iter().fold(0, |ms, byte| (ms << 8) | u64::from(*byte))
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.simple().fmt(f)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Error for a text that is not a job id.
#[derive(Debug, Clone, thiserror::Error)]
#[error("a job id is 32 lower-case hex digits")]
pub struct ParseJobIdError;

impl FromStr for JobId {
    type Err = ParseJobIdError;

    /// Accepts only the canonical form, so that a job has one URL.
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let canonical = s.len() == 32 && s.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        match Uuid::try_parse(s) {
            Ok(id) if canonical && id.get_version_num() == 7 => Ok(Self(id)),
            _ => Err(ParseJobIdError),
        }
    }
}

impl Serialize for JobId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for JobId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The lease token: the right to end one attempt. It consists of a counter that grows with every lease, release and
/// reap of the job, and a random part.
///
/// Every verb that ends an attempt compares both. A failover that lost writes can repeat a counter but not the random
/// part. Written `<counter>.<nonce>`, e.g. `7.a9f3c1d2e4b50617`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fence(pub String);

impl Fence {
    /// Creates the fence with number `counter` and the random part `nonce`.
    #[must_use]
    pub fn new(counter: u64, nonce: &str) -> Self {
        Self(format!("{counter}.{nonce}"))
    }

    /// The counter: the number of times that the right to run the job has changed hands.
    #[must_use]
    pub fn counter(&self) -> u64 {
        self.0.split('.').next().and_then(|n| n.parse().ok()).unwrap_or(0)
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Sixteen hex digits from the system's random number generator: the random part of a fence, a worker id or a waiter
/// id.
#[must_use]
pub fn nonce() -> String {
    format!("{:016x}", rand::random::<u64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_id_survives_its_text_and_knows_its_shard_and_time() {
        let id = JobId::new(7);
        assert_eq!(id.to_string().parse::<JobId>().unwrap(), id);
        assert_eq!(id.shard(), 7);
        assert!(id.created_ms() > 1_700_000_000_000);
    }

    #[test]
    fn a_line_of_a_batch_has_one_id() {
        let id = JobId::of_line("batch_a", 1_795_240_200_123, 7, 3);
        assert_eq!(id, JobId::of_line("batch_a", 1_795_240_200_123, 7, 3));
        assert_eq!((id.created_ms(), id.shard()), (1_795_240_200_123, 3));
        assert_eq!(id.to_string().parse::<JobId>().unwrap(), id);
        let later = JobId::of_line("batch_a", 1_795_240_200_123, 9_999_999, 0);
        assert!(id < later && later.created_ms() == 1_795_240_200_123);
        for other in [("batch_b", 7), ("batch_a", 8)] {
            assert_ne!(id, JobId::of_line(other.0, 1_795_240_200_123, other.1, 3));
        }
    }

    #[test]
    fn only_the_canonical_form_is_a_job_id() {
        let id = JobId::new(0).to_string();
        let hyphenated = Uuid::parse_str(&id).unwrap().to_string();
        for wrong in ["", "x", &id[1..], &id.to_uppercase(), &hyphenated, "00000000000000000000000000000000"] {
            assert!(wrong.parse::<JobId>().is_err(), "{wrong}");
        }
    }
}
