//! What is offered: searches, page by page, and what has been found by them. There may be ten searches a minute, so that each look at the
//! market takes many calls, and what the last one found stands meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::api::{Api, Object, Trouble, request};
use super::ask::{Ask, ask};
use super::error::{Problem, Refusal};
use super::pace::{Endpoint, NoTurn};
use super::settings::Wishes;
use super::transport::{Method, Request};
use crate::observation::Offer;
use crate::provider::Failure;

/// What has been found stands for so long before it is looked at again.
const FRESH_FOR: Duration = Duration::from_secs(30);

/// And for so long when it cannot be.
const KNOWN_FOR: Duration = Duration::from_secs(120);

/// The first time, so much is waited for; after it, what has been found so far is told.
const FIRST_PATIENCE: Duration = Duration::from_secs(15);

/// After a search that failed nothing is searched for.
const PAUSE: Duration = Duration::from_secs(15);

/// Rows asked for at once. Some say that no more than 64 ever come, so that a multiple of that is a page that goes on, too.
const ROWS_MAX: usize = 512;
const ROWS_CAP: usize = 64;

/// Rows kept of a search.
const ASKS_MAX: usize = 4_096;

/// Boxes to avoid that are named in a search; all are left out of what it finds.
const AVOIDED_MAX: usize = 200;

/// A search takes no longer: whoever asks looks after machines, too.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// What is searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    OnDemand,
    Bid,
}

/// What is known of the market.
#[derive(Debug, Default)]
pub(super) struct Market {
    found: Option<(Instant, Vec<Offer>)>,
    sweep: Option<Sweep>,
    failed: Option<(Instant, Failure)>,
}

/// One look at it, as far as it has come.
#[derive(Debug)]
struct Sweep {
    began: Instant,
    on_demand: BTreeMap<u64, Ask>,
    bids: BTreeMap<u64, Ask>,
    searching: Type,
    /// Pages of it that were read.
    pages: u32,
    /// The next page begins at this price.
    from: f64,
    is_done: bool,
    rows: usize,
    malformed: usize,
}

impl Market {
    /// What could be had, as far as it is known; at most one search when something is, or as many as it takes when nothing is.
    pub(super) async fn offers(
        &mut self,
        api: &Api,
        wishes: &Wishes,
        avoided: &BTreeSet<u64>,
    ) -> Result<Vec<Offer>, Failure> {
        let began = Instant::now();
        loop {
            let now = Instant::now();
            let age = |at: Instant| now.duration_since(at);
            if let Some((_, offers)) = self.found.as_ref().filter(|(at, _)| age(*at) < FRESH_FOR) {
                return Ok(offers.clone());
            }
            self.sweep = self.sweep.take().filter(|sweep| age(sweep.began) < KNOWN_FOR);
            let known = self.known(now, wishes);
            if let Some((_, failure)) = self.failed.as_ref().filter(|(at, _)| age(*at) < PAUSE) {
                return known.ok_or_else(|| failure.clone());
            }
            let is_patient = self.found.is_none() && age(began) < FIRST_PATIENCE;
            if let Some(known) = known
                && !is_patient
                && !api.is_free(Endpoint::Search)
            {
                return Ok(known);
            }
            let sweep = self.sweep.get_or_insert_with(|| Sweep::new(now));
            match sweep.page(api, wishes, avoided).await {
                Ok(()) if sweep.is_done => {
                    if sweep.malformed > 0 {
                        let Sweep { malformed, rows, .. } = sweep;
                        tracing::warn!(malformed, rows, "Vast.ai offers what cannot be read");
                    }
                    let offers = sweep.offers(wishes);
                    (self.found, self.sweep, self.failed) = (Some((Instant::now(), offers)), None, None);
                }
                Ok(()) => {}
                Err(trouble) => {
                    self.sweep = None;
                    tracing::warn!("a search for offers failed: {trouble}");
                    if is_quota(&trouble) {
                        // There is nothing to be had, and what is there can be looked after all the same.
                        return Ok(self.known(Instant::now(), wishes).unwrap_or_default());
                    }
                    self.failed = Some((Instant::now(), trouble.into()));
                }
            }
        }
    }

    /// What was found lately, or has been found so far.
    fn known(&self, now: Instant, wishes: &Wishes) -> Option<Vec<Offer>> {
        let lately = self.found.as_ref().filter(|(at, _)| now.duration_since(*at) < KNOWN_FOR);
        let so_far = || self.sweep.as_ref().filter(|sweep| sweep.rows > 0).map(|sweep| sweep.offers(wishes));
        lately.map(|(_, offers)| offers.clone()).or_else(so_far)
    }
}

fn is_quota(trouble: &Trouble) -> bool {
    matches!(trouble, Trouble::NoTurn(NoTurn::Quota(_))) || trouble.refusal() == Some(Refusal::QuotaExceeded)
}

impl Sweep {
    fn new(began: Instant) -> Self {
        Self {
            began,
            on_demand: BTreeMap::new(),
            bids: BTreeMap::new(),
            searching: Type::OnDemand,
            pages: 0,
            from: 0.0,
            is_done: false,
            rows: 0,
            malformed: 0,
        }
    }

    /// Reads one more page.
    async fn page(&mut self, api: &Api, wishes: &Wishes, avoided: &BTreeSet<u64>) -> Result<(), Trouble> {
        let request = search(self.searching, self.from, wishes, avoided);
        let answer = api.once(Endpoint::Search, request).await?;
        let asks = asks(&answer)?;
        let (rows, malformed) = (asks.len(), asks.iter().filter(|ask| ask.is_none()).count());
        if rows > 0 && rows == malformed {
            return Err(Problem::unreadable(format!("none of {rows} offers can be read")).into());
        }
        (self.rows, self.malformed) = (self.rows + rows, self.malformed + malformed);
        self.pages += 1;
        let kept = match self.searching {
            Type::OnDemand => &mut self.on_demand,
            Type::Bid => &mut self.bids,
        };
        let mut is_new = false;
        let mut dearest = self.from;
        for ask in asks.into_iter().flatten() {
            dearest = dearest.max(ask.dph_total);
            if ask.meets(wishes) && !avoided.contains(&ask.machine_id) && kept.len() < ASKS_MAX {
                is_new |= kept.insert(ask.id, ask).is_none();
            }
        }
        let is_full = rows >= ROWS_MAX || (rows > 0 && rows.is_multiple_of(ROWS_CAP));
        // A page that tells nothing new and ends where it began goes on for ever.
        let goes_on = is_full && (is_new || dearest > self.from) && self.pages < wishes.pages_max;
        match self.searching {
            _ if goes_on => self.from = dearest,
            Type::OnDemand if wishes.may_bid => (self.searching, self.pages, self.from) = (Type::Bid, 0, 0.0),
            _ => self.is_done = true,
        }
        Ok(())
    }

    /// One that is only to be had for a bid is left out: what it costs otherwise is not known.
    fn offers(&self, wishes: &Wishes) -> Vec<Offer> {
        let offers = self.on_demand.values().map(|ask| ask.offer(self.bids.get(&ask.id), wishes));
        let mut offers: Vec<Offer> = offers.filter(|offer| offer.vram_gb > 0.0).collect();
        offers.sort_by(|a, b| a.id.cmp(&b.id));
        offers
    }
}

/// The rows; `None` for each that cannot be read.
fn asks(answer: &Object) -> Result<Vec<Option<Ask>>, Problem> {
    let rows = answer.get("offers").and_then(Value::as_array);
    let rows = rows.ok_or_else(|| Problem::unreadable("a search has no list of offers"))?;
    Ok(rows.iter().map(ask).collect())
}

fn search(searching: Type, from: f64, wishes: &Wishes, avoided: &BTreeSet<u64>) -> Request {
    let mut body = Map::new();
    let mut filter = |field: &str, condition: Value| drop(body.insert(field.to_owned(), condition));
    filter("rentable", json!({"eq": true}));
    filter("rented", json!({"eq": false}));
    filter("external", json!({"eq": false}));
    if wishes.verified_only {
        filter("verified", json!({"eq": true}));
    }
    if wishes.datacenter_only {
        filter("datacenter", json!({"eq": true}));
    }
    if !wishes.kinds.is_empty() {
        filter("gpu_name", json!({"in": wishes.kinds}));
    }
    filter("reliability", json!({"gte": wishes.min_reliability}));
    filter("cuda_max_good", json!({"gte": wishes.min_cuda}));
    filter("compute_cap", json!({"gte": wishes.min_compute_cap}));
    filter("inet_down", json!({"gte": wishes.min_inet_down_mbit}));
    filter("duration", json!({"gte": wishes.min_duration_s}));
    filter("disk_space", json!({"gte": wishes.disk_gb}));
    filter("dph_total", json!({"gte": from, "lte": wishes.max_usd_per_hour}));
    if !avoided.is_empty() {
        let named: Vec<u64> = avoided.iter().copied().take(AVOIDED_MAX).collect();
        filter("machine_id", json!({"notin": named}));
    }
    filter("order", json!([["dph_total", "asc"]]));
    filter("type", json!(if searching == Type::Bid { "bid" } else { "on-demand" }));
    filter("limit", json!(ROWS_MAX));
    filter("allocated_storage", json!(wishes.disk_gb));
    Request { timeout: ANSWER_MAX, ..request(Method::Post, "/api/v0/bundles/", Some(Value::Object(body))) }
}
