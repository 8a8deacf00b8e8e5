//! The archive's shelves: which days a tenant has, which segments a day has, and what is in a segment.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};

use stokehold_objects::ObjectPage;
use time::{Date, Month};
use tokio::time::Instant;

use super::segment::{Name, READ_MAX, Segment, day_prefix};
use super::{Error, History};

/// Names read from one day: 100 million jobs.
const PAGES_MAX: usize = 100;

const PAGE: u32 = 1_000;

/// The segments of a tenant's day.
pub(crate) struct Listing {
    /// When it was asked for: it knows everything archived before.
    pub(crate) at: Instant,
    /// In order of the first id.
    pub(crate) names: Vec<Name>,
    /// It took more than one page, so that what was replaced meanwhile may be missing on both.
    pub(crate) torn: bool,
}

impl History {
    /// The segments of a day, as known lately; as they are now when that is older than `since`.
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

    /// The segments of a day as they are now.
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

    /// Forgets what is known of a day.
    pub(crate) fn unlearn(&self, tenant: &str, day: Date) {
        self.listings.invalidate(&(tenant.to_owned(), day));
    }

    /// A tenant's last archived day up to `upto`.
    pub(crate) async fn last_day(&self, tenant: &str, upto: Date) -> Result<Option<Date>, Error> {
        let root = format!("archive/{tenant}/");
        for year in self.numbers(&root, 4).await?.into_iter().rev() {
            let in_year = format!("{root}{year:04}/");
            for month in self.numbers(&in_year, 2).await?.into_iter().rev() {
                let Some(month) = u8::try_from(month).ok().and_then(|month| Month::try_from(month).ok()) else {
                    continue;
                };
                let first = Date::from_calendar_date(i32::from(year), month, 1);
                if first.is_ok_and(|first| first > upto) {
                    continue;
                }
                let in_month = format!("{in_year}{:02}/", u8::from(month));
                for day in self.numbers(&in_month, 2).await?.into_iter().rev() {
                    let day = u8::try_from(day).unwrap_or(0);
                    let date = Date::from_calendar_date(i32::from(year), month, day);
                    if let Some(date) = date.ok().filter(|date| *date <= upto) {
                        return Ok(Some(date));
                    }
                }
            }
        }
        Ok(None)
    }

    /// The folders below a prefix that are numbers of so many digits, ascending.
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

    /// A segment; `None` when it has been replaced by others.
    pub(crate) async fn segment(&self, tenant: &str, day: Date, name: &Name) -> Result<Option<Arc<Segment>>, Error> {
        let key = format!("{}{name}", day_prefix(tenant, day));
        if let Some(segment) = self.segments.get(&key) {
            return Ok(Some(segment));
        }
        // Never closed.
        let _load = self.loads.acquire().await.ok();
        if let Some(segment) = self.segments.get(&key) {
            return Ok(Some(segment));
        }
        let Some(segment) = self.read(&key).await?.map(Arc::new) else { return Ok(None) };
        self.segments.insert(key, segment.clone());
        Ok(Some(segment))
    }

    /// Reads a segment past the cache.
    pub(crate) async fn read(&self, key: &str) -> Result<Option<Segment>, Error> {
        let Some(packed) = self.objects.get(key, READ_MAX as u64).await? else { return Ok(None) };
        let owned = key.to_owned();
        let unpacked = tokio::task::spawn_blocking(move || Segment::unpack(&owned, &packed)).await;
        let stopped = |_| Error::Corrupt { key: key.to_owned(), why: "unpacking it panicked".to_owned() };
        unpacked.map_err(stopped)?.map(Some)
    }
}
