//! The place of a queued job among the jobs of its lane.

use redis::AsyncCommands;
use redis::streams::{StreamId, StreamRangeReply};

use crate::connection::Connection;
use crate::error::Error;
use crate::id::JobId;
use crate::keys::Keys;

/// Number of entries that are counted one by one. A stream has no rank, so the number of entries beyond these is
/// estimated from their times.
const COUNTED_MAX: usize = 500;

/// The place of a queued job in its lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LanePlace {
    /// The lane: `<priority digit>:<class>:<tenant>:<endpoint>`.
    pub lane: String,
    /// Number of jobs of the lane that are served before it: exact up to 500, estimated beyond.
    pub ahead: u64,
}

/// Reads the place of a job; `None` if it is not in its lane, e.g. because it has started or waits for its concurrency
/// key. The cost does not depend on the length of the lane.
pub(crate) async fn read(connection: &Connection, keys: &Keys, id: JobId) -> Result<Option<LanePlace>, Error> {
    let (mut redis, step) = (connection.redis(), "read the place of a job in its lane");
    type Fields = (Option<String>, Option<String>, Option<String>, Option<String>);
    let fields: Fields =
        redis.hmget(keys.job(id), &["state", "lane", "entry", "ix"]).await.map_err(Error::redis(step))?;
    let (Some(state), Some(lane), entry, index) = fields else { return Ok(None) };
    // A job that entered its lane at its submit has the same entry there as in its tenant's index.
    let Some(entry) = entry.or(index).filter(|_| state == "queued") else { return Ok(None) };
    let [requeued, others] = keys.streams(&lane);
    let (stream, entry, is_requeued) = match entry.strip_prefix('f') {
        Some(entry) => (&requeued, entry, true),
        None => (&others, entry.as_str(), false),
    };
    let Some(at_ms) = time_ms(entry) else { return Ok(None) };
    let (first, before, length, last): (u64, StreamRangeReply, u64, StreamRangeReply) = redis::pipe()
        .xlen(&requeued)
        .xrange_count(stream, "-", format!("({entry}"), COUNTED_MAX)
        .xlen(stream)
        .xrevrange_count(stream, "+", "-", 1)
        .query_async(&mut redis)
        .await
        .map_err(Error::redis(step))?;
    let of = |entry: Option<&StreamId>| entry.and_then(|entry| time_ms(&entry.id));
    let ends = of(before.ids.last()).zip(of(last.ids.first()));
    let counted = before.ids.len() as u64;
    let beyond = if before.ids.len() < COUNTED_MAX { 0 } else { beyond(length.saturating_sub(counted), at_ms, ends) };
    Ok(Some(LanePlace { lane, ahead: counted + beyond + if is_requeued { 0 } else { first } }))
}

/// Number of entries between the last counted one and the job's, if the `rest` behind the counted one came at a
/// constant rate until the last of the stream: `rest * (at - counted) / (last - counted)`. Example: of 1,000 entries
/// that came within 10 s, 250 are before one that came after 2.5 s.
fn beyond(rest: u64, at_ms: u64, ends: Option<(u64, u64)>) -> u64 {
    let Some((counted_ms, last_ms)) = ends else { return 0 };
    let (part_ms, whole_ms) = (at_ms.saturating_sub(counted_ms), last_ms.saturating_sub(counted_ms));
    let share = u128::from(rest) * u128::from(part_ms.min(whole_ms));
    share.checked_div(u128::from(whole_ms)).map_or(0, |entries| u64::try_from(entries).unwrap_or(rest))
}

fn time_ms(entry: &str) -> Option<u64> {
    entry.split_once('-')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_are_not_counted_are_estimated_from_their_times() {
        assert_eq!(beyond(1_000, 2_500, Some((0, 10_000))), 250);
        assert_eq!(beyond(1_000, 20_000, Some((0, 10_000))), 1_000, "never more than there are");
        assert_eq!(beyond(1_000, 5, Some((5, 5))), 0, "all came at once");
        assert_eq!(beyond(1_000, 5, None), 0);
    }
}
