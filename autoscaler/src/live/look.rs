//! Asks Redis, the registry and the providers what there is.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use futures::future::join_all;
use stokehold_queue::demands::Demands;
use stokehold_queue::reach::class_of;
use stokehold_queue::registry::Registry;
use stokehold_queue::{Error, Queue, Shards, now_ms};
use tokio::time::{Instant, timeout};

use crate::observation::Offer;
use crate::observe::Seen;
use crate::provider::{Failure, Provider, Rental, in_time};
use crate::providers::Providers;

/// Redis answers within this time, or is not to be seen.
const REDIS_LIMIT: Duration = Duration::from_secs(5);

/// What is left of our money at a provider is believed for so long.
const CREDIT_FOR: Duration = Duration::from_secs(60);

/// What an endpoint's current version needs is believed for so long.
const CLASS_FOR: Duration = Duration::from_secs(30);

/// Why nothing can be seen.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Blind {
    #[error("Redis does not answer")]
    Redis(#[from] Error),
    #[error("Redis takes longer than {} s", REDIS_LIMIT.as_secs())]
    Late,
}

/// Where to look, and what is remembered from one look to the next.
pub(crate) struct Eyes {
    queue: Shards,
    registry: Registry,
    classes: HashMap<String, (u32, Instant)>,
    busy_ms: BTreeMap<String, u64>,
    asker: Asker,
}

/// What was seen, and of which providers it cannot be said.
pub(crate) struct Look {
    pub(crate) seen: Seen,
    pub(crate) blind: Vec<(&'static str, Failure)>,
    pub(crate) poor: Vec<Poor>,
}

/// A provider that has too little of our money left to rent from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Poor {
    pub(crate) provider: &'static str,
    pub(crate) credit_usd: f64,
    pub(crate) least_usd: f64,
}

impl Eyes {
    pub(crate) fn new(queue: Shards, min_credit_usd: f64) -> Self {
        let registry = queue.registry();
        let asker = Asker::new(min_credit_usd);
        Self { queue, registry, classes: HashMap::new(), busy_ms: BTreeMap::new(), asker }
    }

    pub(crate) async fn look(&mut self, providers: &Providers) -> Result<Look, Blind> {
        let asked = async {
            tokio::try_join!(
                self.queue.flow(),
                self.registry.workers(),
                self.registry.machines(),
                self.registry.demands(),
                self.registry.shunned(),
            )
        };
        let (found, answers) = tokio::join!(timeout(REDIS_LIMIT, asked), self.asker.ask(providers));
        let (flows, workers, machines, demands, shunned) = found.map_err(|_| Blind::Late)??;
        let now_ms = now_ms();
        for worker in workers.iter().filter(|worker| worker.status.running > 0) {
            self.busy_ms.insert(worker.name.clone(), worker.seen_ms);
        }
        self.busy_ms.retain(|name, _| workers.iter().any(|worker| worker.name == *name));
        let mut seen = Seen {
            now_ms,
            flows,
            demands,
            workers,
            machines,
            shunned,
            busy_ms: self.busy_ms.clone(),
            ..Seen::default()
        };
        self.learn_classes(&mut seen).await?;
        Ok(answers.into_look(seen))
    }

    /// What new jobs of each endpoint run on.
    async fn learn_classes(&mut self, seen: &mut Seen) -> Result<(), Blind> {
        let now = Instant::now();
        for flow in &seen.flows {
            let name = format!("{}/{}", flow.tenant, flow.endpoint);
            let class = match self.classes.get(&name) {
                Some((class, since)) if now.duration_since(*since) < CLASS_FOR => Some(*class),
                _ => {
                    let asked = class_of_new(&self.registry, &seen.demands, &flow.tenant, &flow.endpoint);
                    let class = timeout(REDIS_LIMIT, asked).await.map_err(|_| Blind::Late)??;
                    if let Some(class) = class {
                        self.classes.insert(name.clone(), (class, now));
                    }
                    class
                }
            };
            if let Some(class) = class {
                seen.classes.insert(name, class);
            }
        }
        Ok(())
    }
}

/// The class of an endpoint's new jobs; `None` of one that is not deployed.
async fn class_of_new(
    registry: &Registry,
    demands: &BTreeMap<u32, Demands>,
    tenant: &str,
    name: &str,
) -> Result<Option<u32>, Error> {
    let Some(current) = registry.endpoint(tenant, name, None).await? else { return Ok(None) };
    let needs = registry.needs(tenant, name, current.version).await?;
    let gib = current.spec.vram_class_gib(needs.into_values().max());
    let number = demands.iter().find(|(_, demands)| **demands == current.spec.demands).map(|(number, _)| *number);
    Ok(number.zip(gib).map(|(number, gib)| class_of(number, gib)))
}

/// Asks providers, and remembers what need not be asked each time.
pub(crate) struct Asker {
    min_credit_usd: f64,
    /// What is left at each that is paid ahead, and when that was asked.
    credits: HashMap<&'static str, (Option<f64>, Instant)>,
}

/// What providers answered.
pub(crate) struct Answers {
    listed: Vec<(&'static str, Result<Listed, Failure>)>,
    poor: Vec<Poor>,
}

type Listed = (Vec<Offer>, Option<Vec<Rental>>);

impl Asker {
    pub(crate) fn new(min_credit_usd: f64) -> Self {
        Self { min_credit_usd, credits: HashMap::new() }
    }

    pub(crate) async fn ask(&mut self, providers: &Providers) -> Answers {
        let listed = join_all(providers.iter().map(list)).await;
        let mut answers = Answers { listed: Vec::with_capacity(listed.len()), poor: Vec::new() };
        for (provider, answer) in providers.iter().zip(listed) {
            // Who cannot be asked for a list is not asked for more.
            let answer = match answer {
                Ok(listed) => match self.credit(provider).await {
                    Ok(Some(credit_usd)) if credit_usd < self.min_credit_usd => {
                        let least_usd = self.min_credit_usd;
                        answers.poor.push(Poor { provider: provider.name(), credit_usd, least_usd });
                        Ok((Vec::new(), listed.1))
                    }
                    Ok(_) => Ok(listed),
                    Err(failure) => Err(failure),
                },
                Err(failure) => Err(failure),
            };
            answers.listed.push((provider.name(), answer));
        }
        answers
    }

    /// What is left there, as of a minute ago at most.
    async fn credit(&mut self, provider: &dyn Provider) -> Result<Option<f64>, Failure> {
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

impl Answers {
    /// What was seen, with what the providers say.
    pub(crate) fn into_look(self, mut seen: Seen) -> Look {
        let mut blind = Vec::new();
        for (name, answer) in self.listed {
            match answer {
                Ok((offers, rentals)) => {
                    seen.offers.extend(offers);
                    seen.rentals.insert(name.to_owned(), rentals);
                }
                Err(failure) => blind.push((name, failure)),
            }
        }
        Look { seen, blind, poor: self.poor }
    }
}

/// Both lists of a provider, or neither.
async fn list(provider: &dyn Provider) -> Result<Listed, Failure> {
    let rentals = in_time(provider, provider.rentals()).await?;
    let offers = in_time(provider, provider.offers()).await?;
    Ok((offers, rentals))
}
