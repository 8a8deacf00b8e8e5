//! Finding archived jobs: one by its ID, many newest first.

use std::collections::BTreeMap;
use std::sync::Arc;

use stokehold_queue::JobId;
use stokehold_queue::job::Job;
use stokehold_queue::queue::ListFilter;
use time::Date;
use tokio::time::Instant;

use super::segment::{Segment, day_of};
use super::shelf::Listing;
use super::{Cursor, Error, History};

/// Maximum number of times that a lookup starts over because segments were replaced during it.
const TRIES: usize = 5;

/// Approximate number of jobs that one call of `list` examines; the rest is left to the next page.
const SCAN_JOBS: usize = 2_000;
const SCAN_BYTES: usize = 32 << 20;
const SCAN_SEGMENTS: usize = 16;
const SCAN_DAYS: usize = 31;

enum Lookup {
    Found(Box<Job>),
    Absent,
    /// A segment has been replaced: the listing is old.
    Moved,
}

impl History {
    /// Finds an archived job.
    ///
    /// # Errors
    /// [`Error::Objects`] and [`Error::Restless`], which are worth a retry, and [`Error::Corrupt`].
    pub(crate) async fn get(&self, tenant: &str, id: JobId) -> Result<Option<Job>, Error> {
        let (asked, day) = (Instant::now(), day_of(id));
        let mut since = None;
        for _ in 0..TRIES {
            let listing = self.listing(tenant, day, since).await?;
            match self.look(tenant, day, &listing, id).await? {
                Lookup::Found(job) => return Ok(Some(*job).filter(|job| job.spec.tenant == tenant)),
                // Only a listing made after the caller missed the job in the queue can prove that it does not exist.
                Lookup::Absent if listing.at >= asked => return Ok(None),
                Lookup::Absent => since = Some(asked),
                Lookup::Moved => since = Some(Instant::now()),
            }
        }
        Err(Error::Restless(day.to_string()))
    }

    async fn look(&self, tenant: &str, day: Date, listing: &Listing, id: JobId) -> Result<Lookup, Error> {
        let mut moved = false;
        for name in listing.names.iter().filter(|name| name.covers(id)) {
            match self.segment(tenant, day, name).await? {
                None => moved = true,
                Some(segment) => {
                    if let Some(n) = segment.find(id) {
                        return Ok(Lookup::Found(Box::new(segment.job(n)?)));
                    }
                }
            }
        }
        Ok(if moved { Lookup::Moved } else { Lookup::Absent })
    }

    /// A page of archived jobs, newest first, and the start of the next one. A page may be short, even empty, and still
    /// have a next one.
    ///
    /// # Errors
    /// See [`History::get`].
    pub(crate) async fn list(
        &self,
        tenant: &str,
        filter: &ListFilter,
        cursor: Cursor,
        limit: usize,
    ) -> Result<(Vec<Job>, Option<Cursor>), Error> {
        let mut scan =
            Scan { filter, limit, before: cursor.0, asked: Instant::now(), jobs: Vec::new(), cost: Cost::default() };
        let mut days = self.days(tenant, scan.before.map_or(Date::MAX, day_of));
        while let Some(day) = days.next().await? {
            if self.scan_day(tenant, day, &mut scan).await? {
                return Ok((scan.jobs, Some(Cursor(scan.before))));
            }
        }
        Ok((scan.jobs, None))
    }

    /// Scans a day. Returns `true` when the page is complete, `false` when the day is.
    async fn scan_day(&self, tenant: &str, day: Date, scan: &mut Scan<'_>) -> Result<bool, Error> {
        let mut since = scan.asked;
        scan.cost.days += 1;
        for _ in 0..TRIES {
            let listing = self.listing(tenant, day, Some(since)).await?;
            if let Some(full) = self.scan_listing(tenant, day, &listing, scan).await? {
                return Ok(full);
            }
            since = Instant::now();
        }
        Err(Error::Restless(day.to_string()))
    }

    /// Scans the segments of a listing. Returns `None` when a segment has been replaced: the scan records its progress,
    /// and the rest requires a new listing.
    async fn scan_listing(
        &self,
        tenant: &str,
        day: Date,
        listing: &Listing,
        scan: &mut Scan<'_>,
    ) -> Result<Option<bool>, Error> {
        let mut names: Vec<_> = listing.names.iter().filter(|name| scan.wants(name.first)).collect();
        names.sort_by_key(|name| std::cmp::Reverse(name.last));
        let mut names = names.into_iter().peekable();
        // Lines that have not been examined yet. Two segments with the same job add one line.
        let mut pool: BTreeMap<JobId, (Arc<Segment>, usize)> = BTreeMap::new();
        loop {
            let unread = names.peek().map(|name| name.last);
            // The newest line is next once no unread segment can hold a newer one.
            if let Some(entry) = pool.last_entry().filter(|entry| unread.is_none_or(|unread| *entry.key() > unread)) {
                let (id, (segment, n)) = entry.remove_entry();
                if scan.examine(id, &segment, n)? {
                    return Ok(Some(true));
                }
                continue;
            }
            let Some(name) = names.next() else { return Ok(Some(false)) };
            let Some(segment) = self.segment(tenant, day, name).await? else { return Ok(None) };
            scan.cost.segments += 1;
            for (n, id) in segment.ids().filter(|(_, id)| scan.wants(*id)) {
                pool.insert(id, (segment.clone(), n));
            }
        }
    }
}

/// One call of `list`.
struct Scan<'a> {
    filter: &'a ListFilter,
    limit: usize,
    /// Position of the scan: every job with this ID or a larger one has been examined.
    before: Option<JobId>,
    asked: Instant,
    jobs: Vec<Job>,
    cost: Cost,
}

#[derive(Default)]
struct Cost {
    jobs: usize,
    bytes: usize,
    segments: usize,
    days: usize,
}

impl Scan<'_> {
    fn wants(&self, id: JobId) -> bool {
        self.before.is_none_or(|before| id < before)
    }

    /// Examines one line. Returns `true` when the page is complete, always after at least one line, so that pages make
    /// progress.
    fn examine(&mut self, id: JobId, segment: &Segment, n: usize) -> Result<bool, Error> {
        let job = segment.job(n)?;
        self.before = Some(id);
        if self.filter.matches(job.state, &job.spec, job.error.as_ref().map(|error| error.code)) {
            self.jobs.push(job);
        }
        self.cost.jobs += 1;
        self.cost.bytes += segment.line(n).len();
        let Cost { jobs, bytes, segments, days } = self.cost;
        Ok(self.jobs.len() >= self.limit
            || jobs >= SCAN_JOBS
            || bytes >= SCAN_BYTES
            || segments >= SCAN_SEGMENTS
            || days >= SCAN_DAYS)
    }
}

#[cfg(test)]
mod tests;
