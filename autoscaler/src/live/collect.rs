//! Polls Redis and the providers.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use futures::future::join_all;
use stokehold_planner::observation::Offer;
use stokehold_queue::capability::class_of;
use stokehold_queue::registry::{MachineRecord, Registry, Wanted};
use stokehold_queue::requirements::Requirements;
use stokehold_queue::{Error, Queue, Shards, now_ms};
use stokehold_units::UsdMicros;
use tokio::time::{Instant, timeout};

use crate::live::pause::Pauses;
use crate::observe::{self, NewJobs, RawState};
use crate::provider::{Provider, ProviderError, Rental, in_time};
use crate::providers::Providers;

/// Timeout for reading state from Redis.
const REDIS_LIMIT: Duration = Duration::from_secs(5);

/// Age after which a requested machine must appear in its provider's list, milliseconds.
const SETTLED_MS: u64 = 120_000;

/// Time after which a list without any expected machine is trusted, milliseconds.
const BARE_MS: u64 = 900_000;

/// Cache TTL of the credit at a provider.
const CREDIT_FOR: Duration = Duration::from_secs(60);

/// Cache TTL of the properties of an endpoint's current version.
const NEW_JOBS_FOR: Duration = Duration::from_secs(30);

/// Failure to read the state from Redis.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RedisUnreachable {
    #[error("Redis failed")]
    Redis(#[from] Error),
    #[error("Redis did not answer within {} s", REDIS_LIMIT.as_secs())]
    Late,
}

/// Reads the state of Redis and the providers, with caches that last from poll to poll.
pub(crate) struct Collector {
    queue: Shards,
    registry: Registry,
    new_jobs: HashMap<String, (NewJobs, Instant)>,
    busy_ms: BTreeMap<String, u64>,
    pauses: Pauses,
    asker: Asker,
}

/// Result of a poll, with the providers that could not be reached.
pub(crate) struct Poll {
    pub(crate) seen: RawState,
    pub(crate) unreachable: Vec<(&'static str, ProviderError)>,
    pub(crate) no_offers: Vec<(&'static str, NoOffers)>,
    /// Cost of rented machines today, millionths of a dollar; `None` before it is known.
    pub(crate) spent_usd_micros: Option<u64>,
}

/// Reason why a provider has no offers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum NoOffers {
    /// The credit is below the minimum.
    Poor { credit: UsdMicros, least: UsdMicros },
    /// The offers or the credit could not be read.
    Failed(String),
}

impl Collector {
    pub(crate) fn new(queue: Shards, min_credit: UsdMicros) -> Self {
        let registry = queue.registry();
        let asker = Asker::new(min_credit);
        Self { queue, registry, new_jobs: HashMap::new(), busy_ms: BTreeMap::new(), pauses: Pauses::default(), asker }
    }

    /// Marks the time until the next poll as a pause, in which silence of workers does not count.
    pub(crate) fn lose_sight(&mut self) {
        self.pauses.lose_sight();
    }

    pub(crate) async fn poll(&mut self, providers: &Providers) -> Result<Poll, RedisUnreachable> {
        let asked = async {
            tokio::try_join!(
                self.queue.flow(),
                self.registry.workers(),
                self.registry.every_machine(),
                self.registry.demands(),
                self.registry.shunned(),
            )
        };
        let found = timeout(REDIS_LIMIT, asked).await;
        let (flows, workers, machines, demands, cooldowns) = found.map_err(|_| RedisUnreachable::Late)??;
        // Taken before the providers respond, so that slow providers make no worker look silent.
        let now_ms = now_ms();
        for worker in workers.iter().filter(|worker| worker.status.running > 0) {
            self.busy_ms.insert(worker.name.clone(), worker.seen_ms);
        }
        self.busy_ms.retain(|name, _| workers.iter().any(|worker| worker.name == *name));
        let mut seen = RawState {
            now_ms,
            flows,
            demands,
            workers,
            machines,
            cooldowns,
            busy_ms: self.busy_ms.clone(),
            ..RawState::default()
        };
        self.pauses.note(&mut seen);
        self.learn_new_jobs(&mut seen).await?;
        let answers = self.asker.ask(providers, &seen).await;
        Ok(self.asker.poll(seen, answers))
    }

    /// Reads the properties of the new jobs of all endpoints.
    async fn learn_new_jobs(&mut self, seen: &mut RawState) -> Result<(), RedisUnreachable> {
        let now = Instant::now();
        for flow in &seen.flows {
            let name = format!("{}/{}", flow.tenant, flow.endpoint);
            let new = match self.new_jobs.get(&name) {
                Some((new, since)) if now.duration_since(*since) < NEW_JOBS_FOR => Some(*new),
                _ => {
                    let asked = new_jobs(&self.registry, &seen.demands, &flow.tenant, &flow.endpoint);
                    let new = timeout(REDIS_LIMIT, asked).await.map_err(|_| RedisUnreachable::Late)??;
                    if let Some(new) = new {
                        self.new_jobs.insert(name.clone(), (new, now));
                    }
                    new
                }
            };
            if let Some(new) = new {
                seen.new_jobs.insert(name, new);
            }
        }
        Ok(())
    }
}

/// Properties of an endpoint's new jobs; `None` if the endpoint is not deployed.
async fn new_jobs(
    registry: &Registry,
    demands: &BTreeMap<u32, Requirements>,
    tenant: &str,
    name: &str,
) -> Result<Option<NewJobs>, Error> {
    let Some(current) = registry.endpoint(tenant, name, None).await? else { return Ok(None) };
    let needs = registry.needs(tenant, name, current.version).await?;
    let gib = current.spec.vram_need(needs).class_gib();
    let number = demands.iter().find(|(_, demands)| **demands == current.spec.demands).map(|(number, _)| *number);
    let at_once = current.spec.max_concurrency.max(1).saturating_mul(current.spec.max_batch_size.max(1));
    let vram_fraction = current.spec.vram_fraction;
    Ok(number.zip(gib).map(|(number, gib)| NewJobs { class: class_of(number, gib), at_once, vram_fraction }))
}

/// Queries providers and caches results that change slowly.
pub(crate) struct Asker {
    min_credit: UsdMicros,
    /// Credit at each prepaid provider, and when it was read.
    credits: HashMap<&'static str, (Option<UsdMicros>, Instant)>,
    /// Time since which each provider has listed none of the expected machines, unix milliseconds.
    bare_ms: HashMap<&'static str, u64>,
}

/// Responses of all providers.
pub(crate) struct Answers {
    lists: Vec<Lists>,
    no_offers: Vec<(&'static str, NoOffers)>,
}

/// Response of one provider.
struct Lists {
    provider: &'static str,
    /// Whether the provider keeps its list in this process, so that a machine that the list lacks does not exist.
    is_exact: bool,
    answer: Result<Listed, ProviderError>,
}

type Listed = (Vec<Offer>, Option<Vec<Rental>>);

impl Asker {
    pub(crate) fn new(min_credit: UsdMicros) -> Self {
        Self { min_credit, credits: HashMap::new(), bare_ms: HashMap::new() }
    }

    pub(crate) async fn ask(&mut self, providers: &Providers, seen: &RawState) -> Answers {
        let needs = observe::needs(seen);
        providers.iter().for_each(|provider| provider.look_for(&needs));
        let listed = join_all(providers.iter().map(list)).await;
        let mut answers = Answers { lists: Vec::with_capacity(listed.len()), no_offers: Vec::new() };
        for (provider, answer) in providers.iter().zip(listed) {
            // If the list fails, nothing else is requested. Without offers or with unknown credit nothing is rented
            // there, but existing machines are still managed.
            let answer = match answer {
                Ok((offers, rentals)) => {
                    let mut offers = offers.map_err(|failure| NoOffers::Failed(failure.to_string()));
                    match self.credit(provider).await {
                        Ok(Some(credit)) if credit < self.min_credit => {
                            offers = Err(NoOffers::Poor { credit, least: self.min_credit });
                        }
                        Ok(_) => {}
                        Err(failure) => offers = Err(NoOffers::Failed(failure.to_string())),
                    }
                    let offers = offers.unwrap_or_else(|why| {
                        answers.no_offers.push((provider.name(), why));
                        Vec::new()
                    });
                    Ok((offers, rentals))
                }
                Err(failure) => Err(failure),
            };
            let is_exact = provider.settles_after().is_zero();
            answers.lists.push(Lists { provider: provider.name(), is_exact, answer });
        }
        answers
    }

    /// Combines the state with the responses of providers that are plausible.
    pub(crate) fn poll(&mut self, mut seen: RawState, answers: Answers) -> Poll {
        let mut unreachable = Vec::new();
        for Lists { provider, is_exact, answer } in answers.lists {
            let plausible = |listed| if is_exact { Ok(listed) } else { self.plausible(&seen, provider, listed) };
            match answer.and_then(plausible) {
                Ok((offers, rentals)) => {
                    seen.offers.extend(offers);
                    seen.rentals.insert(provider.to_owned(), rentals);
                }
                Err(failure) => unreachable.push((provider, failure)),
            }
        }
        Poll { seen, unreachable, no_offers: answers.no_offers, spent_usd_micros: None }
    }

    /// Rejects a list that has none of the expected machines, because such a list is more likely wrong than right. The
    /// list is accepted after a quarter of an hour, and never while a worker of one of these machines is heard.
    fn plausible(&mut self, seen: &RawState, name: &'static str, listed: Listed) -> Result<Listed, ProviderError> {
        let Some(rentals) = &listed.1 else { return Ok(listed) };
        let settled = |machine: &&MachineRecord| {
            machine.provider == name
                && machine.is_done
                && machine.rental.is_some()
                && machine.wanted != Wanted::Gone
                && seen.now_ms.saturating_sub(machine.wanted_ms) >= SETTLED_MS
        };
        let expected: Vec<&MachineRecord> = seen.machines.values().filter(settled).collect();
        let is_listed = |machine: &&MachineRecord| {
            rentals.iter().any(|rental| rental.label == machine.id || machine.rental.as_ref() == Some(&rental.id))
        };
        if expected.is_empty() || expected.iter().any(is_listed) {
            self.bare_ms.remove(name);
            return Ok(listed);
        }
        let since_ms = *self.bare_ms.entry(name).or_insert(seen.now_ms);
        let is_heard = |machine: &&MachineRecord| seen.worker_of(machine).is_some_and(|worker| !seen.is_silent(worker));
        if seen.now_ms.saturating_sub(since_ms) >= BARE_MS && !expected.iter().any(is_heard) {
            return Ok(listed);
        }
        Err(ProviderError::Unknown(format!("its list has none of the {} machines that it should have", expected.len())))
    }

    /// Credit at a provider, at most a minute old.
    async fn credit(&mut self, provider: &dyn Provider) -> Result<Option<UsdMicros>, ProviderError> {
        let now = Instant::now();
        if let Some((credit, since)) = self.credits.get(provider.name())
            && now.duration_since(*since) < CREDIT_FOR
        {
            return Ok(*credit);
        }
        let credit = in_time(provider, provider.credit()).await?;
        self.credits.insert(provider.name(), (credit, now));
        Ok(credit)
    }
}

/// Reads the offers and rentals of a provider.
async fn list(
    provider: &dyn Provider,
) -> Result<(Result<Vec<Offer>, ProviderError>, Option<Vec<Rental>>), ProviderError> {
    let rentals = in_time(provider, provider.rentals()).await?;
    let offers = in_time(provider, provider.offers()).await;
    Ok((offers, rentals))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    const NOW_MS: u64 = 10_000_000;

    fn seen(at_ms: u64, heard: bool) -> RawState {
        let machine = json!({"id": "m-1", "provider": "cloud", "rental": "9001", "offer": {}, "wanted": "running", "wanted_ms": 1,
            "is_done": true, "rented_ms": 1, "usd_micros_per_hour": 1});
        let worker = json!({"worker_id": "w_1", "name": "m-1", "release": "", "slots": 1, "gpus": [], "joined_ms": 1,
            "seen_ms": if heard { at_ms } else { at_ms - 60_000 }, "status": {"running": 0}});
        RawState {
            now_ms: at_ms,
            machines: [("m-1".to_owned(), serde_json::from_value(machine).unwrap())].into(),
            workers: vec![serde_json::from_value(worker).unwrap()],
            ..RawState::default()
        }
    }

    fn is_unreachable(asker: &mut Asker, seen: RawState, rentals: Vec<Rental>) -> bool {
        let lists = Lists { provider: "cloud", is_exact: false, answer: Ok((vec![], Some(rentals))) };
        let answers = Answers { lists: vec![lists], no_offers: vec![] };
        !asker.poll(seen, answers).unreachable.is_empty()
    }

    #[test]
    fn a_list_without_any_machine_that_should_be_there_is_not_believed_for_long_and_never_while_one_is_heard() {
        let mut asker = Asker::new(UsdMicros::ZERO);
        let rental = || Rental {
            id: "9001".into(),
            label: "m-1".into(),
            state: crate::provider::RentalState::Running,
            usd_per_hour: None,
        };
        assert!(!is_unreachable(&mut asker, seen(NOW_MS, true), vec![rental()]));
        assert!(is_unreachable(&mut asker, seen(NOW_MS, false), vec![]));
        assert!(is_unreachable(&mut asker, seen(NOW_MS + 899_000, false), vec![]));
        assert!(is_unreachable(&mut asker, seen(NOW_MS + 901_000, true), vec![]), "its worker is there");
        assert!(!is_unreachable(&mut asker, seen(NOW_MS + 901_000, false), vec![]));
        assert!(!is_unreachable(&mut asker, seen(NOW_MS + 902_000, true), vec![rental()]));
        assert!(is_unreachable(&mut asker, seen(NOW_MS + 903_000, false), vec![]), "it begins anew");
        let mut ending = seen(NOW_MS, true);
        ending.machines.get_mut("m-1").unwrap().wanted = Wanted::Gone;
        assert!(!is_unreachable(&mut asker, ending, vec![]), "none should be there");
    }
}
