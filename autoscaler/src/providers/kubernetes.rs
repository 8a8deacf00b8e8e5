//! `kubernetes`: machines are pods of a cluster. The cluster's own autoscaler may add nodes for them.
//! docs/how-to/kubernetes.md.

mod answer;
mod body;
mod call;
mod deployment;
mod jobs;
mod list;
mod names;
pub mod settings;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use stokehold_planner::observation::Offer;

use futures::future::{BoxFuture, try_join_all};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::provider::{Order, Provider, ProviderError, Rental, RentalState};
use crate::sync::lock;
use answer::CallError;
use call::{Calls, JOBS, PODS};
use names::{DEPLOYMENT, MACHINE, MANAGED_BY, OWNER, POOL, Rented, STOKEHOLD};
use settings::{KubernetesSettings, Mode, Pool};

/// Name of the provider.
pub const NAME: &str = "kubernetes";

/// Maximum number of calls of a rent, including retries.
const CALLS_OF_RENT: u32 = 8;

/// Timeout of requests in the API server, 60 s: after it, a request is no longer carried out.
const SETTLES_AFTER: Duration = Duration::from_secs(65);

/// Owner of the machines.
struct Owner {
    prefix: String,
    gateway_url: String,
}

/// Pods of a cluster as machines.
pub struct Kubernetes {
    calls: Calls,
    owner: Owner,
    /// Machines by pool: those of the last list, and those rented since.
    taken: Mutex<BTreeMap<String, BTreeSet<String>>>,
}

impl Kubernetes {
    /// Creates the provider for machines of the queue with this prefix. Workers reach the gateway at `gateway_url`. The
    /// cluster is not contacted yet.
    #[must_use]
    pub fn new(settings: KubernetesSettings, prefix: &str, gateway_url: &str) -> Self {
        let owner = Owner { prefix: prefix.to_owned(), gateway_url: gateway_url.to_owned() };
        Self { calls: Calls::new(settings), owner, taken: Mutex::default() }
    }

    fn pools(&self) -> &[Pool] {
        &self.calls.settings().pools
    }

    fn pool(&self, name: &str) -> Option<&Pool> {
        self.pools().iter().find(|pool| pool.name == name)
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<String, BTreeSet<String>>> {
        lock(&self.taken)
    }

    async fn listed(&self) -> Result<Vec<Rental>, ProviderError> {
        let ours = format!("{OWNER}={}", self.owner.prefix);
        // Jobs are listed first, because a Job has no pods before it exists.
        let jobs: Vec<Job> = self.calls.list(JOBS, &format!("{MANAGED_BY}={STOKEHOLD},{ours}")).await?;
        let pods: Vec<Pod> = self.calls.list(PODS, &ours).await?;
        let deployments: BTreeSet<&str> =
            self.pools().iter().filter(|pool| pool.mode == Mode::Deployment).map(|pool| &*pool.deployment).collect();
        let asked = deployments.into_iter().map(async |name| {
            let spares = deployment::spares(&self.calls, name).await?;
            Ok::<_, CallError>(spares.into_iter().map(|spare| (name.to_owned(), spare)).collect::<Vec<_>>())
        });
        let spares = try_join_all(asked).await?;
        let mut taken = BTreeMap::<String, BTreeSet<String>>::new();
        for meta in jobs.iter().map(|job| &job.metadata).chain(pods.iter().map(|pod| &pod.metadata)) {
            let pool = names::label_of(meta, POOL).unwrap_or_default();
            taken.entry(pool.to_owned()).or_default().insert(machine_of(meta)?);
        }
        let mut rentals = machines(&jobs, &pods)?;
        for (deployment, spare) in spares.into_iter().flatten() {
            let pod = spare.metadata.name.ok_or_else(|| nameless("a pod"))?;
            let id = Rented::Spare { deployment, pod: pod.clone() }.id();
            rentals.push(Rental { id, label: pod, state: RentalState::Starting, usd_per_hour: None });
        }
        *self.taken() = taken;
        Ok(rentals)
    }

    /// Remaining capacity of a pool.
    fn left(&self, pool: &Pool) -> u32 {
        let taken = self.taken().get(&pool.name).map_or(0, BTreeSet::len);
        pool.max.saturating_sub(u32::try_from(taken).unwrap_or(u32::MAX))
    }

    async fn release_one(&self, rental: &str) -> Result<(), ProviderError> {
        let longest = self.pools().iter().map(body::grace_s).max();
        match Rented::of(rental) {
            Some(Rented::Job { label }) => {
                jobs::release(&self.calls, &self.owner, &label, longest.unwrap_or_default()).await
            }
            Some(Rented::Pod { label }) => jobs::release_pods(&self.calls, &self.owner, &label, None).await,
            Some(Rented::Spare { deployment, pod }) => deployment::release_spare(&self.calls, &deployment, &pod).await,
            // The machine is not from this provider, so there is nothing to give back.
            None => Ok(()),
        }
    }
}

/// Every machine that has a Job or a pod.
fn machines(jobs: &[Job], pods: &[Pod]) -> Result<Vec<Rental>, ProviderError> {
    let mut pods_of = BTreeMap::<String, Vec<&Pod>>::new();
    for pod in pods {
        pods_of.entry(machine_of(&pod.metadata)?).or_default().push(pod);
    }
    let rental = |id: Rented, label: String, state| Rental { id: id.id(), label, state, usd_per_hour: None };
    let mut rentals = Vec::new();
    for job in jobs {
        let label = machine_of(&job.metadata)?;
        let state = state::of_job(job, &pods_of.remove(&label).unwrap_or_default());
        rentals.push(rental(Rented::Job { label: label.clone() }, label, state));
    }
    for (label, pods) in pods_of {
        let is_of_deployment = pods.iter().any(|pod| names::label_of(&pod.metadata, DEPLOYMENT).is_some());
        let (of, state) = (label.clone(), state::of_pods(&pods).unwrap_or(RentalState::Lost));
        let id = if is_of_deployment { Rented::Pod { label: of } } else { Rented::Job { label: of } };
        rentals.push(rental(id, label, state));
    }
    Ok(rentals)
}

/// The label of the machine that an object belongs to. An object without this label does not match the labels of the
/// request.
fn machine_of(meta: &ObjectMeta) -> Result<String, ProviderError> {
    names::label_of(meta, MACHINE).map(str::to_owned).ok_or_else(|| nameless("an object"))
}

fn nameless(what: &str) -> ProviderError {
    ProviderError::Unknown(format!("the list contains a {what} without the labels of its owner"))
}

impl Provider for Kubernetes {
    fn name(&self) -> &'static str {
        NAME
    }

    fn offers(&self) -> BoxFuture<'_, Result<Vec<Offer>, ProviderError>> {
        let left = self.pools().iter().map(|pool| (pool, self.left(pool)));
        let offers = left.filter(|(_, left)| *left > 0).map(|(pool, left)| pool.offer(left)).collect();
        Box::pin(async { Ok(offers) })
    }

    fn rentals(&self) -> BoxFuture<'_, Result<Option<Vec<Rental>>, ProviderError>> {
        Box::pin(async { self.listed().await.map(Some) })
    }

    fn rent<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<String, ProviderError>> {
        Box::pin(async {
            let name: &str = &order.offer.id;
            let label = order.label.clone();
            let pool =
                self.pool(name).ok_or_else(|| ProviderError::Vanished(format!("pool {name} is not configured")))?;
            let is_new = !self.taken().get(name).is_some_and(|taken| taken.contains(&label));
            if is_new && self.left(pool) == 0 {
                return Err(ProviderError::Vanished(format!(
                    "pool {name} has {} machines, which is its limit",
                    pool.max
                )));
            }
            // The machine may exist from here on, whatever the outcome.
            self.taken().entry(name.to_owned()).or_default().insert(label.clone());
            match pool.mode {
                Mode::Jobs => {
                    jobs::rent(&self.calls, &self.owner, pool, order).await?;
                    Ok(Rented::Job { label }.id())
                }
                Mode::Deployment => {
                    deployment::rent(&self.calls, &self.owner, pool, &label).await?;
                    Ok(Rented::Pod { label }.id())
                }
            }
        })
    }

    fn stop<'a>(&'a self, rental: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
        self.release(rental)
    }

    fn resume<'a>(&'a self, rental: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
        Box::pin(async move { Err(ProviderError::Vanished(format!("{rental} has exited; a pod cannot be resumed"))) })
    }

    fn release<'a>(&'a self, rental: &'a str) -> BoxFuture<'a, Result<(), ProviderError>> {
        Box::pin(self.release_one(rental))
    }

    fn call_limit(&self) -> Duration {
        Duration::from_millis(self.calls.settings().call_limit_ms) * CALLS_OF_RENT
    }

    fn join_limit(&self) -> Duration {
        Duration::from_secs(self.calls.settings().join_limit_s)
    }

    fn settles_after(&self) -> Duration {
        SETTLES_AFTER
    }

    fn takes_join_token(&self) -> bool {
        self.pools().iter().any(|pool| pool.mode == Mode::Jobs)
    }
}
