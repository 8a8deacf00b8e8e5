//! Offers: one search for each class of requirements, page by page, and the results. Ten searches a minute are allowed,
//! so that one scan of the market takes many calls. Until it is complete, the results of the last one are used.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Map, Value, json};
use stokehold_planner::observation::Offer;
use stokehold_planner::snapshot::Needs;
use stokehold_queue::gateway::Gpu;
use stokehold_queue::requirements::{Requirements, SandboxLevel, Trust, Version};
use stokehold_units::Mib;
use stokehold_vast::{field, path};
use tokio::time::Instant;

use super::api::{Api, Error, Object, request};
use super::ask::{Ask, ask};
use super::error::{ErrorKind, ErrorResponse};
use super::pace::{Endpoint, PaceError};
use super::settings::OfferFilter;
use super::transport::{Method, Request};
use crate::provider::ProviderError;

/// Time until the search of a class is repeated, multiplied by the number of classes, since searches per day are
/// limited.
const FRESH_FOR: Duration = Duration::from_secs(30);

/// Maximum age of results, which is also the limit of that time.
const KNOWN_FOR: Duration = Duration::from_secs(120);

/// Time for which the first search of a class is awaited. After it, the results so far are returned.
const FIRST_PATIENCE: Duration = Duration::from_secs(15);

/// Pause of all searches after a failed one.
const PAUSE: Duration = Duration::from_secs(15);

/// Rows per page. Some reports say that at most 64 rows are ever returned, so a page whose length is a multiple of that
/// is also taken to have a successor.
const ROWS_MAX: usize = 512;
const ROWS_CAP: usize = 64;

/// Maximum number of rows kept per search.
const ASKS_MAX: usize = 4_096;

/// Maximum number of excluded hosts in a search request. All excluded hosts are removed from its results.
const AVOIDED_MAX: usize = 200;

/// Timeout of a search: the caller also has to manage machines.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// Maximum number of classes: more would take longer than results are valid.
const CLASSES_MAX: usize = 8;

/// Requested memory of a GPU, MB, per GiB that a model may need. A GPU with ECC has 6 % less than its nominal memory,
/// and the planner checks each GPU itself.
const MB_PER_GIB: f64 = 1_024.0 * 0.92;

/// Time between reads of the list of GPU names, which rarely changes, and the shorter one after a failed read.
const KINDS_FOR: Duration = Duration::from_secs(86_400);
const KINDS_RETRY: Duration = Duration::from_secs(600);

/// Type of rental that a search is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    OnDemand,
    Bid,
}

/// Requirements of a search, in Vast.ai's units. All of them are sent, because the cheapest offers of all are small.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Class {
    /// Memory of a GPU, MB.
    gpu_ram: f64,
    num_gpus: u32,
    compute_cap: f64,
    cuda_max_good: f64,
    /// Country codes; empty: anywhere.
    countries: Vec<String>,
    is_datacenter: bool,
    /// GPU models, as endpoints name them; empty: any.
    models: Vec<String>,
}

impl Class {
    /// The class of an endpoint's needs; `None` if no offer of Vast.ai can meet them.
    fn of(needs: &Needs) -> Option<Self> {
        let Requirements { gpus, gpu_models, min_compute_capability, min_cuda, regions, min_trust, min_sandbox } =
            &needs.demands;
        let is_country = |region: &&String| region.len() == 2 && region.bytes().all(|byte| byte.is_ascii_alphabetic());
        let countries: Vec<String> = regions.iter().filter(is_country).map(|region| region.to_uppercase()).collect();
        let is_hopeless = *min_trust > Trust::Datacenter
            || *min_sandbox > SandboxLevel::default()
            || (countries.is_empty() && !regions.is_empty());
        let number = |version: &Option<Version>| version.and_then(|it| it.to_string().parse().ok()).unwrap_or(0.0);
        let class = Self {
            gpu_ram: (needs.vram.gib() * MB_PER_GIB).floor(),
            num_gpus: if needs.vram > Mib::ZERO { *gpus } else { 1 },
            compute_cap: (number(min_compute_capability) * 100.0_f64).round(),
            cuda_max_good: number(min_cuda),
            countries,
            is_datacenter: *min_trust == Trust::Datacenter,
            models: gpu_models.clone(),
        };
        (!is_hopeless).then_some(class)
    }

    /// Classes to search, the least demanding first; without needs, one class without requirements.
    pub(super) fn all(needs: &[Needs]) -> Vec<Self> {
        let mut classes: Vec<Self> = Vec::new();
        for class in needs.iter().filter_map(Self::of) {
            if !classes.contains(&class) && classes.len() < CLASSES_MAX {
                classes.push(class);
            }
        }
        if needs.is_empty() {
            classes.push(Self::default());
        }
        classes.sort_by(|a, b| a.gpu_ram.total_cmp(&b.gpu_ram).then(a.num_gpus.cmp(&b.num_gpus)));
        classes
    }

    /// Whether a search of the other class finds everything that a search of this one does.
    fn is_within(&self, other: &Self) -> bool {
        let is_among = |country| other.countries.contains(country);
        self.gpu_ram >= other.gpu_ram
            && self.num_gpus >= other.num_gpus
            && self.compute_cap >= other.compute_cap
            && self.cuda_max_good >= other.cuda_max_good
            && (self.is_datacenter || !other.is_datacenter)
            && (other.countries.is_empty() || (!self.countries.is_empty() && self.countries.iter().all(is_among)))
            && (other.models.is_empty() || self.models == other.models)
    }

    /// The known kinds of GPU that match the models of the class.
    fn kinds(&self, known: &[String]) -> Vec<String> {
        let demands = Requirements { gpu_models: self.models.clone(), ..Requirements::default() };
        let is_one = |name: &&String| demands.is_met_by(&Gpu { name: (*name).clone(), ..Gpu::default() });
        if self.models.is_empty() { Vec::new() } else { known.iter().filter(is_one).cloned().collect() }
    }
}

/// Results of the searches.
#[derive(Debug, Default)]
pub(super) struct Market {
    parts: Vec<Part>,
    /// Names of all kinds of GPU, and the time of their request.
    kinds: Option<(Instant, Vec<String>)>,
}

/// Results of the searches of one class.
#[derive(Debug, Default)]
struct Part {
    class: Class,
    found: Option<Found>,
    sweep: Option<Sweep>,
    failed: Option<(Instant, ProviderError)>,
    searched: Option<Instant>,
}

#[derive(Debug)]
struct Found {
    at: Instant,
    offers: Vec<Offer>,
    /// Whether every page was read.
    is_all: bool,
}

/// A scan of the market that is in progress.
#[derive(Debug)]
struct Sweep {
    began: Instant,
    on_demand: Pages,
    bids: Pages,
    rows: usize,
    malformed: usize,
}

/// Pages of one type of rental.
#[derive(Debug, Default)]
struct Pages {
    asks: BTreeMap<u64, Ask>,
    /// Number of pages that were read.
    read: u32,
    /// Price at which the next page begins. The next page begins above that price if all rows of a page have it.
    from: f64,
    is_beyond: bool,
    is_done: bool,
    is_cut: bool,
}

impl Market {
    /// Known offers. Sends at most one search if there are any, otherwise as many as needed.
    pub(super) async fn offers(
        &mut self,
        api: &Api,
        requirements: &OfferFilter,
        classes: &[Class],
        avoided: &BTreeSet<u64>,
    ) -> Result<Vec<Offer>, ProviderError> {
        self.sort(classes);
        if classes.iter().any(|class| !class.models.is_empty()) {
            self.learn_kinds(api).await;
        }
        let began = Instant::now();
        loop {
            let now = Instant::now();
            let Some(place) = self.next(now) else { return self.known(now, requirements) };
            let is_patient = self.parts[place].found.is_none() && now.duration_since(began) < FIRST_PATIENCE;
            let is_any_known = self.parts.iter().any(|part| part.known(now, requirements).is_some());
            if is_any_known && !is_patient && !api.is_free(Endpoint::Search) {
                return self.known(now, requirements);
            }
            let kinds = match &self.kinds {
                Some((_, known)) => self.parts[place].class.kinds(known),
                None => Vec::new(),
            };
            let most_pages = requirements.pages_max.div_ceil(self.searched(now)).max(1);
            if let Err(error) = self.parts[place].search(api, requirements, &kinds, avoided, most_pages).await {
                tracing::warn!("search for offers failed: {error}");
                if is_quota(&error) {
                    // Nothing can be rented, but existing machines can still be managed.
                    return Ok(self.known(Instant::now(), requirements).unwrap_or_default());
                }
                self.parts[place].failed = Some((Instant::now(), error.into()));
            }
        }
    }

    /// Keeps one part per class. Results of known classes stay.
    fn sort(&mut self, classes: &[Class]) {
        let mut before = std::mem::take(&mut self.parts);
        let part = |class: &Class| {
            let place = before.iter().position(|part| part.class == *class);
            place.map_or_else(|| Part { class: class.clone(), ..Part::default() }, |place| before.swap_remove(place))
        };
        self.parts = classes.iter().map(part).collect();
    }

    /// The part to search next: one without results first, then the one that was searched least recently.
    fn next(&self, now: Instant) -> Option<usize> {
        let fresh_for = FRESH_FOR.saturating_mul(self.searched(now)).min(KNOWN_FOR);
        let is_due = |part: &Part| {
            let is_fresh = part.found.as_ref().is_some_and(|it| now.duration_since(it.at) < fresh_for);
            let has_failed = part.failed.as_ref().is_some_and(|(at, _)| now.duration_since(*at) < PAUSE);
            !is_fresh && !self.is_covered(part, now) && !has_failed
        };
        let due = (0..self.parts.len()).filter(|place| is_due(&self.parts[*place]));
        due.min_by_key(|place| (self.parts[*place].found.is_some(), self.parts[*place].searched))
    }

    /// Whether the complete results of another class include everything that a search of this class would find.
    fn is_covered(&self, part: &Part, now: Instant) -> bool {
        let finds_all = |it: &Found| it.is_all && now.duration_since(it.at) < KNOWN_FOR;
        let others = self.parts.iter().filter(|other| other.class != part.class);
        others
            .filter(|other| other.found.as_ref().is_some_and(finds_all))
            .any(|other| part.class.is_within(&other.class))
    }

    /// Number of classes that are searched.
    fn searched(&self, now: Instant) -> u32 {
        let searched = self.parts.iter().filter(|part| !self.is_covered(part, now)).count();
        u32::try_from(searched).unwrap_or(u32::MAX).max(1)
    }

    /// Recent results of all classes, or those of scans in progress.
    fn known(&self, now: Instant, requirements: &OfferFilter) -> Result<Vec<Offer>, ProviderError> {
        let known: Vec<Vec<Offer>> = self.parts.iter().filter_map(|part| part.known(now, requirements)).collect();
        let failed = self.parts.iter().find_map(|part| part.failed.as_ref());
        match failed {
            Some((_, failure)) if known.is_empty() => return Err(failure.clone()),
            _ => {}
        }
        let offers: BTreeMap<_, Offer> = known.into_iter().flatten().map(|offer| (offer.id.clone(), offer)).collect();
        Ok(offers.into_values().collect())
    }

    /// Requests the names of all kinds once a day. A search without them finds more offers than needed.
    async fn learn_kinds(&mut self, api: &Api) {
        let is_good = |(at, known): &(Instant, Vec<String>)| {
            at.elapsed() < if known.is_empty() { KINDS_RETRY } else { KINDS_FOR }
        };
        if self.kinds.as_ref().is_some_and(is_good) {
            return;
        }
        let asked = request(Method::Get, path::GPU_NAMES, None);
        let names = match api.once(Endpoint::User, asked).await {
            Ok(answer) => answer.get(field::GPU_NAMES).and_then(Value::as_array).cloned().unwrap_or_default(),
            Err(error) => {
                tracing::debug!("cannot read the names of GPUs: {error}");
                Vec::new()
            }
        };
        let names = names.iter().filter_map(|name| Some(name.as_str()?.to_owned())).collect();
        self.kinds = Some((Instant::now(), names));
    }
}

impl Part {
    /// Recent results, or those of the scan in progress.
    fn known(&self, now: Instant, requirements: &OfferFilter) -> Option<Vec<Offer>> {
        let lately = self.found.as_ref().filter(|found| now.duration_since(found.at) < KNOWN_FOR);
        let sweep = self.sweep.as_ref().filter(|sweep| now.duration_since(sweep.began) < KNOWN_FOR);
        let so_far = || sweep.filter(|sweep| sweep.rows > 0).map(|sweep| sweep.offers(requirements));
        lately.map(|found| found.offers.clone()).or_else(so_far)
    }

    /// Reads one more page.
    async fn search(
        &mut self,
        api: &Api,
        requirements: &OfferFilter,
        kinds: &[String],
        avoided: &BTreeSet<u64>,
        most_pages: u32,
    ) -> Result<(), Error> {
        let now = Instant::now();
        self.searched = Some(now);
        let going_on = self.sweep.take().filter(|sweep| now.duration_since(sweep.began) < KNOWN_FOR);
        let mut sweep = going_on.unwrap_or_else(|| Sweep::new(now, requirements.may_bid));
        sweep.page(api, requirements, &self.class, kinds, avoided, most_pages).await?;
        self.failed = None;
        if !(sweep.on_demand.is_done && sweep.bids.is_done) {
            self.sweep = Some(sweep);
            return Ok(());
        }
        if sweep.malformed > 0 {
            let Sweep { malformed, rows, .. } = sweep;
            tracing::warn!(malformed, rows, "some offers of Vast.ai are malformed and ignored");
        }
        let is_all = !sweep.on_demand.is_cut && !sweep.bids.is_cut;
        self.found = Some(Found { at: Instant::now(), offers: sweep.offers(requirements), is_all });
        Ok(())
    }
}

fn is_quota(error: &Error) -> bool {
    matches!(error, Error::Pace(PaceError::Quota(_))) || error.kind() == Some(ErrorKind::QuotaExceeded)
}

impl Sweep {
    fn new(began: Instant, may_bid: bool) -> Self {
        let bids = Pages { is_done: !may_bid, ..Pages::default() };
        Self { began, on_demand: Pages::default(), bids, rows: 0, malformed: 0 }
    }

    /// Reads one more page. The two types alternate, so that bids are possible for the results so far.
    async fn page(
        &mut self,
        api: &Api,
        requirements: &OfferFilter,
        class: &Class,
        kinds: &[String],
        avoided: &BTreeSet<u64>,
        most_pages: u32,
    ) -> Result<(), Error> {
        let is_on_demand = !self.on_demand.is_done && (self.bids.is_done || self.on_demand.read <= self.bids.read);
        let (searching, pages) =
            if is_on_demand { (Type::OnDemand, &mut self.on_demand) } else { (Type::Bid, &mut self.bids) };
        let request = search(searching, pages, requirements, class, kinds, avoided);
        let answer = api.once(Endpoint::Search, request).await?;
        let asks = asks(&answer)?;
        let (rows, malformed) = (asks.len(), asks.iter().filter(|ask| ask.is_none()).count());
        if rows > 0 && rows == malformed {
            return Err(ErrorResponse::unreadable(format!("all {rows} offers are malformed")).into());
        }
        (self.rows, self.malformed) = (self.rows + rows, self.malformed + malformed);
        pages.note(asks, requirements, avoided, most_pages);
        Ok(())
    }

    /// Offers of the scan. Offers that only the search for bids found are left out: their on-demand price is unknown.
    fn offers(&self, requirements: &OfferFilter) -> Vec<Offer> {
        let bid = |ask: &Ask| self.bids.asks.get(&ask.id);
        let offers = self.on_demand.asks.values().map(|ask| ask.offer(bid(ask), requirements));
        let mut offers: Vec<Offer> = offers.filter(|offer| offer.vram > Mib::ZERO).collect();
        offers.sort_by(|a, b| a.id.cmp(&b.id));
        offers
    }
}

impl Pages {
    fn note(&mut self, asks: Vec<Option<Ask>>, requirements: &OfferFilter, avoided: &BTreeSet<u64>, most_pages: u32) {
        let rows = asks.len();
        self.read += 1;
        let (mut is_new, mut dearest, mut is_level) = (false, self.from, true);
        for ask in asks.into_iter().flatten() {
            dearest = dearest.max(ask.dph_total);
            is_level &= ask.dph_total.total_cmp(&self.from).is_eq();
            if ask.meets(requirements) && !avoided.contains(&ask.machine_id) && self.asks.len() < ASKS_MAX {
                is_new |= self.asks.insert(ask.id, ask).is_none();
            }
        }
        let is_full = rows >= ROWS_MAX || (rows > 0 && rows.is_multiple_of(ROWS_CAP));
        // If every row of a page costs the price at which the page begins, more expensive rows may follow. A page
        // without new rows that ends at its first price would otherwise be read forever.
        let is_stuck = is_full && is_level && !self.is_beyond;
        let goes_on = is_full && (is_new || dearest > self.from || is_stuck);
        self.is_cut = goes_on && self.read >= most_pages;
        self.is_done = !goes_on || self.is_cut;
        (self.from, self.is_beyond) = (dearest, is_stuck && dearest <= self.from);
    }
}

/// Rows of a response; `None` for each that cannot be read.
fn asks(answer: &Object) -> Result<Vec<Option<Ask>>, ErrorResponse> {
    let rows = answer.get("offers").and_then(Value::as_array);
    let rows = rows.ok_or_else(|| ErrorResponse::unreadable("the search result has no list of offers"))?;
    Ok(rows.iter().map(ask).collect())
}

fn search(
    searching: Type,
    pages: &Pages,
    requirements: &OfferFilter,
    class: &Class,
    kinds: &[String],
    avoided: &BTreeSet<u64>,
) -> Request {
    let mut body = Map::new();
    let mut filter = |field: &str, condition: Value| drop(body.insert(field.to_owned(), condition));
    filter(field::RENTABLE, json!({"eq": true}));
    filter("rented", json!({"eq": false}));
    filter("external", json!({"eq": false}));
    if requirements.verified_only {
        filter("verified", json!({"eq": true}));
    }
    if requirements.datacenter_only || class.is_datacenter {
        filter("datacenter", json!({"eq": true}));
    }
    // The allowed kinds that are also wanted, if there are any.
    let is_allowed = |kind: &&String| requirements.kinds.is_empty() || requirements.kinds.contains(kind);
    let wanted: Vec<&String> = kinds.iter().filter(is_allowed).collect();
    if !wanted.is_empty() {
        filter(field::GPU_NAME, json!({"in": wanted}));
    } else if !requirements.kinds.is_empty() {
        filter(field::GPU_NAME, json!({"in": requirements.kinds}));
    }
    if class.gpu_ram > 0.0 {
        filter(field::GPU_RAM, json!({"gte": class.gpu_ram}));
    }
    if class.num_gpus > 1 {
        filter(field::NUM_GPUS, json!({"gte": class.num_gpus}));
    }
    if !class.countries.is_empty() {
        filter(field::GEOLOCATION, json!({"in": class.countries}));
    }
    filter("reliability", json!({"gte": requirements.min_reliability}));
    filter(field::CUDA_MAX_GOOD, json!({"gte": requirements.min_cuda.max(class.cuda_max_good)}));
    filter(field::COMPUTE_CAP, json!({"gte": requirements.min_compute_cap.max(class.compute_cap)}));
    filter(field::INET_DOWN, json!({"gte": requirements.min_inet_down_mbit}));
    filter("duration", json!({"gte": requirements.min_duration_s}));
    filter(field::DISK_SPACE, json!({"gte": requirements.disk_gb}));
    let from = if pages.is_beyond { "gt" } else { "gte" };
    filter(field::DPH_TOTAL, json!({from: pages.from, "lte": requirements.max_usd_per_hour}));
    if !avoided.is_empty() {
        let named: Vec<u64> = avoided.iter().copied().take(AVOIDED_MAX).collect();
        filter(field::MACHINE_ID, json!({(field::NOTIN): named}));
    }
    filter("order", json!([[field::DPH_TOTAL, "asc"]]));
    filter("type", json!(if searching == Type::Bid { "bid" } else { "on-demand" }));
    filter("limit", json!(ROWS_MAX));
    filter(field::ALLOCATED_STORAGE, json!(requirements.disk_gb));
    Request { timeout: ANSWER_MAX, ..request(Method::Post, path::SEARCH, Some(Value::Object(body))) }
}
