//! Listings of the archive: the days of a tenant, the segments of a day, and the content of a segment.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};

use stokehold_objects::ObjectPage;
use time::{Date, Month};
use tokio::time::Instant;

use super::segment::{Name, READ_MAX, Segment, day_prefix};
use super::{Error, History};

/// Maximum number of pages of names that are read of one day: 100 million jobs.
const PAGES_MAX: usize = 100;

const PAGE: u32 = 1_000;

/// The segments of a tenant's day.
pub(crate) struct Listing {
    /// Time of the request: everything archived before it is included.
    pub(crate) at: Instant,
    /// Names, in order of the first ID.
    pub(crate) names: Vec<Name>,
    /// Set when the listing took more than one page, so that segments which were replaced meanwhile may be missing on
    /// both.
    pub(crate) torn: bool,
}

impl History {
    /// Segments of a day from the cache, or listed now if the cached listing is older than `since`.
    pub(crate) async fn listing(&self, tenant: &str, day: Date, since: Option<Instant>) -> Result<Arc<Listing>, Error> {
        static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let key = (tenant.to_owned(), day);
        let good = |listing: &Arc<Listing>| since.is_none_or(|since| listing.at >= since);
        if let Some(listing) = self.listings.get(&key).filter(good) {
            return Ok(listing);
        }
        let turn = usize::try_from(HASHER.hash_one(&key) % self.turns.len() as u64).unwrap_or(0);
        let _turn = self.turns[turn].lock().await;
        if let Some(listing) = self.listings.get(&key).filter(good) {
            return Ok(listing);
        }
        let listing = Arc::new(self.list_day(tenant, day).await?);
        self.listings.insert(key, listing.clone());
        Ok(listing)
    }

    /// Lists the current segments of a day.
    pub(crate) async fn list_day(&self, tenant: &str, day: Date) -> Result<Listing, Error> {
        let (at, prefix) = (Instant::now(), day_prefix(tenant, day));
        let (mut names, mut cursor, mut torn) = (Vec::new(), None::<String>, false);
        for _ in 0..PAGES_MAX {
            let page: ObjectPage = self.objects.list(&prefix, cursor.as_deref(), PAGE).await?;
            names.extend(page.objects.iter().filter_map(|object| Name::parse(object.key.strip_prefix(&prefix)?)));
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(Listing { at, names, torn });
            }
            torn = true;
        }
        tracing::error!(prefix, "a day of the archive has more segments than are read");
        Ok(Listing { at, names, torn })
    }

    /// Discards the cached listing of a day.
    pub(crate) fn unlearn(&self, tenant: &str, day: Date) {
        self.listings.invalidate(&(tenant.to_owned(), day));
    }

    /// A tenant's archived days up to `upto`, newest first.
    pub(crate) fn days(&self, tenant: &str, upto: Date) -> Days<'_> {
        let root = format!("archive/{tenant}/");
        Days { history: self, root, upto, years: None, months: Vec::new(), days: Vec::new() }
    }

    /// Folders below a prefix that are numbers with this many digits, ascending.
    async fn numbers(&self, prefix: &str, digits: usize) -> Result<Vec<u16>, Error> {
        let mut numbers: Vec<u16> = self
            .objects
            .folders(prefix)
            .await?
            .iter()
            .filter(|name| name.len() == digits)
            .filter_map(|name| name.parse().ok())
            .collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Returns a segment; `None` when it has been replaced by others.
    pub(crate) async fn segment(&self, tenant: &str, day: Date, name: &Name) -> Result<Option<Arc<Segment>>, Error> {
        let key = format!("{}{name}", day_prefix(tenant, day));
        if let Some(segment) = self.segments.get(&key) {
            return Ok(Some(segment));
        }
        // The semaphore is never closed.
        let _load = self.loads.acquire().await.ok();
        if let Some(segment) = self.segments.get(&key) {
            return Ok(Some(segment));
        }
        let Some(segment) = self.read(&key).await?.map(Arc::new) else { return Ok(None) };
        self.segments.insert(key, segment.clone());
        Ok(Some(segment))
    }

    /// Reads a segment without the cache.
    pub(crate) async fn read(&self, key: &str) -> Result<Option<Segment>, Error> {
        let Some(packed) = self.objects.get(key, READ_MAX as u64).await? else { return Ok(None) };
        let owned = key.to_owned();
        let unpacked = tokio::task::spawn_blocking(move || Segment::unpack(&owned, &packed)).await;
        let stopped = |_| Error::Corrupt { key: key.to_owned(), why: "decompressing it panicked".to_owned() };
        unpacked.map_err(stopped)?.map(Some)
    }
}

/// Iterator over days; a month's days are listed when the first of them is requested.
pub(crate) struct Days<'a> {
    history: &'a History,
    root: String,
    upto: Date,
    /// Remaining years, months of the current year and days of the current month, ascending.
    years: Option<Vec<u16>>,
    months: Vec<(u16, Month)>,
    days: Vec<Date>,
}

impl Days<'_> {
    /// Returns the next older day.
    pub(crate) async fn next(&mut self) -> Result<Option<Date>, Error> {
        loop {
            if let Some(day) = self.days.pop() {
                return Ok(Some(day));
            }
            if let Some((year, month)) = self.months.pop() {
                let prefix = format!("{}{year:04}/{:02}/", self.root, u8::from(month));
                let days =
                    self.history.numbers(&prefix, 2).await?.into_iter().filter_map(|day| {
                        Date::from_calendar_date(i32::from(year), month, u8::try_from(day).ok()?).ok()
                    });
                self.days = days.filter(|day| *day <= self.upto).collect();
                continue;
            }
            let years = match &mut self.years {
                Some(years) => years,
                unasked => unasked.insert(self.history.numbers(&self.root, 4).await?),
            };
            let Some(year) = years.pop() else { return Ok(None) };
            let last = (self.upto.year(), u8::from(self.upto.month()));
            if i32::from(year) <= last.0 {
                let months = self.history.numbers(&format!("{}{year:04}/", self.root), 2).await?;
                self.months = months
                    .into_iter()
                    .filter_map(|month| Some((year, Month::try_from(u8::try_from(month).ok()?).ok()?)))
                    .filter(|(year, month)| (i32::from(*year), u8::from(*month)) <= last)
                    .collect();
            }
        }
    }
}
