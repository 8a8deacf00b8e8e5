//! Keeps the segments of a day few and disjoint: jobs in many small or overlapping segments are rewritten into full
//! ones, and the old segments are deleted. A job is in the archive at every moment; a reader whose segment is gone
//! lists again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use stokehold_queue::JobId;
use time::Date;
use tokio::time::sleep;

use super::segment::{BYTES_MAX, Line, Name, cut, day_prefix};
use super::{Error, History};

/// Maximum number of segments of a day that are less than half full.
const SMALL_MAX: usize = 16;

/// Maximum number of segments that cover one ID, and therefore the most that one lookup reads.
const DEPTH_MAX: usize = 8;

/// Maximum number of segments in one merge, and approximately the maximum number of bytes of lines, which it holds in
/// memory.
const MERGE_MAX: usize = 64;
const MERGE_BYTES: usize = 8 * BYTES_MAX;

/// Time for which replaced segments are kept if the listing changed while it was read. A reader that pages through a
/// long listing during a replacement may see neither the old nor the new segments. Longer than a listing takes.
const TORN_GRACE: Duration = Duration::from_secs(10);

impl History {
    /// Merges some segments of a day if that is worthwhile, and returns whether it was.
    ///
    /// # Errors
    /// [`Error::Objects`]: no job is lost, some may be archived twice, and a retry is safe. [`Error::Corrupt`].
    pub(crate) async fn compact(&self, tenant: &str, day: Date) -> Result<bool, Error> {
        let listing = self.list_day(tenant, day).await?;
        let prefix = day_prefix(tenant, day);
        let (mut lines, mut bytes, mut old) = (Vec::<Line>::new(), 0, Vec::new());
        let chosen = choose(&listing.names);
        for name in chosen.names {
            let key = format!("{prefix}{name}");
            // Another replica is compacting the same day.
            let Some(segment) = self.read(&key).await? else { return Ok(false) };
            for line in segment.into_lines() {
                bytes += line.text.len();
                lines.push(line);
            }
            old.push(key);
            if bytes >= MERGE_BYTES {
                break;
            }
        }
        let pieces = cut(lines);
        // Lines of very different size may not fill segments any better.
        if old.len() < 2 || (!chosen.crowded && pieces.len() >= old.len()) {
            return Ok(false);
        }
        for piece in pieces {
            self.write(tenant, day, piece).await?;
        }
        if listing.torn {
            sleep(TORN_GRACE).await;
        }
        self.objects.delete(&old).await?;
        self.unlearn(tenant, day);
        tracing::debug!(prefix, merged = old.len(), "merged archive segments");
        Ok(true)
    }
}

/// Segments to merge.
struct Chosen<'a> {
    /// Names of the segments; empty when the day is compact.
    names: Vec<&'a Name>,
    /// Set when all of them cover one ID.
    crowded: bool,
}

/// Chooses the segments to merge. First those that cover the most crowded ID: merged, they cover it once, and no other
/// ID more often than before. Then the small ones, neighbours first, which reduces their number. Therefore repeated
/// merging ends.
fn choose(names: &[Name]) -> Chosen<'_> {
    let mut sorted: Vec<&Name> = names.iter().collect();
    sorted.sort_by_key(|name| name.first);
    let (crowd, depth) = most_crowded(&sorted);
    let chosen: Vec<&Name> = if depth > DEPTH_MAX {
        sorted.into_iter().filter(|name| crowd.is_some_and(|id| name.covers(id))).collect()
    } else {
        let small: Vec<&Name> = sorted.into_iter().filter(|name| name.fill < 500).collect();
        if small.len() > SMALL_MAX { small } else { Vec::new() }
    };
    Chosen { names: chosen.into_iter().take(MERGE_MAX).collect(), crowded: depth > DEPTH_MAX }
}

/// Returns the ID that most segments cover, and their number. It is the first ID of some segment. `sorted` is in order
/// of the first ID.
fn most_crowded(sorted: &[&Name]) -> (Option<JobId>, usize) {
    let (mut ends, mut crowd) = (BinaryHeap::new(), (None, 0));
    for name in sorted {
        while ends.peek().is_some_and(|Reverse(last)| *last < name.first) {
            ends.pop();
        }
        ends.push(Reverse(name.last));
        if ends.len() > crowd.1 {
            crowd = (Some(name.first), ends.len());
        }
    }
    crowd
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a name over positions in a list of IDs.
    fn name(ids: &[JobId], first: usize, last: usize, fill: usize) -> Name {
        let text = format!("{}-{}-{fill:04x}aaaa.jsonl.zst", ids[first], ids[last]);
        Name::parse(&text).unwrap()
    }

    #[test]
    fn a_tidy_day_is_left_alone() {
        let ids: Vec<JobId> = (0..100).map(|_| JobId::new(0)).collect();
        assert!(choose(&[]).names.is_empty());
        let apart: Vec<Name> = (0..50).map(|n| name(&ids, 2 * n, 2 * n + 1, 1_000)).collect();
        assert!(choose(&apart).names.is_empty(), "full ones are never too many");
        let small: Vec<Name> = (0..SMALL_MAX).map(|n| name(&ids, n, n, 1)).collect();
        assert!(choose(&small).names.is_empty());
        let crowd: Vec<Name> = (0..DEPTH_MAX).map(|n| name(&ids, n, 50 + n, 1_000)).collect();
        assert!(choose(&crowd).names.is_empty());
    }

    #[test]
    fn crowds_are_merged_first_and_then_the_small() {
        let ids: Vec<JobId> = (0..100).map(|_| JobId::new(0)).collect();
        let mut names: Vec<Name> = (0..20).map(|n| name(&ids, 60 + n, 60 + n, 1)).collect();
        assert_eq!(choose(&names).names.len(), 20);
        names.push(name(&ids, 0, 99, 1_000));
        names.extend((0..DEPTH_MAX).map(|n| name(&ids, n, 40, 1_000)));
        let chosen = choose(&names);
        assert_eq!((chosen.names.len(), chosen.crowded), (DEPTH_MAX + 1, true));
        assert!(chosen.names.iter().all(|name| name.covers(ids[10])));
    }
}
