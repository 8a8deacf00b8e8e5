//! Rate limits: a minimum interval per kind of call and caller, and searches per minute and per day.

use std::collections::{BTreeMap, VecDeque};

use serde_json::json;
use stokehold_vast::{Route, code};

use crate::draw::Draw;
use crate::settings::Settings;
use crate::wire::Answer;

const MINUTE_MS: u64 = 60_000;
const DAY_MS: u64 = 24 * 3_600_000;
const SEARCHES_PER_MINUTE: usize = 10;

/// Times of the last accepted calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    last_ms: BTreeMap<(String, Kind), u64>,
    searches_ms: VecDeque<u64>,
    day: u64,
    searches_today: u32,
}

/// Calls that share an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Search,
    Rent,
    Destroy,
    Bid,
    Show,
    List,
    Set,
    Reboot,
    Command,
    Charges,
    Other,
}

/// The published intervals, milliseconds.
fn kind(route: Route) -> (Kind, u64) {
    match route {
        Route::Search => (Kind::Search, 0),
        Route::Rent | Route::RentMany => (Kind::Rent, 4500),
        Route::Destroy | Route::DestroyMany => (Kind::Destroy, 3000),
        Route::Bid => (Kind::Bid, 5500),
        Route::Show => (Kind::Show, 2000),
        Route::List | Route::ListOld => (Kind::List, 1000),
        Route::Set | Route::SetMany => (Kind::Set, 1000),
        Route::Reboot | Route::Recycle => (Kind::Reboot, 1000),
        Route::Logs => (Kind::Command, 1500),
        Route::Charges => (Kind::Charges, 1000),
        Route::Filters
        | Route::User
        | Route::GpuNames
        | Route::Audit
        | Route::PriceIncreases
        | Route::AcceptIncrease
        | Route::RejectIncrease => (Kind::Other, 0),
    }
}

impl Limits {
    /// The refusal of a call that comes too soon.
    pub(crate) fn refuse(
        &mut self,
        settings: &Settings,
        route: Route,
        caller: &str,
        now_ms: u64,
        draw: &mut Draw,
    ) -> Option<Answer> {
        if route == Route::Search {
            if self.is_spent(settings, now_ms) {
                return Some(quota(now_ms));
            }
            if settings.limits_calls && self.is_crowded(now_ms) {
                return Some(too_many(6.0, draw));
            }
        }
        if !settings.limits_calls {
            return None;
        }
        let (kind, interval_ms) = kind(route);
        let last_ms = self.last_ms.get(&(caller.to_owned(), kind)).copied();
        let is_soon = last_ms.is_some_and(|last| now_ms < last + interval_ms);
        if interval_ms > 0 && (!is_soon || settings.refused_calls_count) {
            self.last_ms.insert((caller.to_owned(), kind), now_ms);
        }
        #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
        is_soon.then(|| too_many(interval_ms as f64 / 1000.0, draw))
    }

    /// Whether an address exceeds its searches per minute.
    fn is_crowded(&mut self, now_ms: u64) -> bool {
        while self.searches_ms.front().is_some_and(|at| at + MINUTE_MS <= now_ms) {
            self.searches_ms.pop_front();
        }
        if self.searches_ms.len() >= SEARCHES_PER_MINUTE {
            return true;
        }
        self.searches_ms.push_back(now_ms);
        false
    }

    fn is_spent(&mut self, settings: &Settings, now_ms: u64) -> bool {
        if self.day != now_ms / DAY_MS {
            (self.day, self.searches_today) = (now_ms / DAY_MS, 0);
        }
        self.searches_today = self.searches_today.saturating_add(1);
        settings.searches_per_day.is_some_and(|limit| self.searches_today > limit)
    }
}

/// The refusal of a search when the daily quota is exhausted. It resets at midnight UTC.
pub(crate) fn quota(now_ms: u64) -> Answer {
    let reset_s = (now_ms / DAY_MS + 1) * DAY_MS / 1000;
    Answer::error(429, code::SEARCH_QUOTA_EXCEEDED, "Daily search quota exceeded.")
        .with("X-RateLimit-Reset", &reset_s.to_string())
}

/// A refusal in one of the observed formats.
pub(crate) fn too_many(threshold_s: f64, draw: &mut Draw) -> Answer {
    let text = format!("API requests too frequent: endpoint threshold={threshold_s:.1}");
    match draw.whole(0, 3) {
        0 => Answer::text(429, &text),
        1 => Answer::json(429, &json!({ "detail": text })),
        2 => Answer::json(429, &json!({ "msg": text })),
        _ => Answer::error(429, "too_many_requests", &text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statuses(route: Route, at_ms: &[u64], settings: &Settings) -> Vec<u16> {
        let (mut limits, mut draw) = (Limits::default(), Draw::new(1, 1));
        let status =
            |at: &u64| limits.refuse(settings, route, "key", *at, &mut draw).map_or(200, |answer| answer.status);
        at_ms.iter().map(status).collect()
    }

    #[test]
    fn rents_are_four_and_a_half_seconds_apart() {
        let settings = Settings::default();
        assert_eq!(statuses(Route::Rent, &[0, 4499, 4500, 8999, 9000], &settings), [200, 429, 200, 429, 200]);
        let strict = Settings { refused_calls_count: true, ..settings };
        assert_eq!(statuses(Route::Rent, &[0, 4499, 4500, 9000], &strict), [200, 429, 429, 200]);
        assert_eq!(statuses(Route::Rent, &[0, 1, 2], &Settings::calm()), [200; 3]);
    }

    #[test]
    fn ten_searches_a_minute_and_a_quota_a_day() {
        let times: Vec<u64> = (0..11).map(|at| at * 5000).chain([60_000]).collect();
        let found = statuses(Route::Search, &times, &Settings::default());
        assert_eq!((&found[..10], &found[10..]), (&[200; 10][..], &[429, 200][..]));
        let settings = Settings { searches_per_day: Some(1), ..Settings::calm() };
        assert_eq!(statuses(Route::Search, &[0, 1000, DAY_MS], &settings), [200, 429, 200]);
        assert!(quota(DAY_MS + 5).headers.contains(&("X-RateLimit-Reset".into(), "172800".into())));
    }
}
