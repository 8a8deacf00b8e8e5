//! The target of a job: the endpoint's version, and the steps around it.

use std::sync::Arc;

use stokehold_queue::endpoint::StepConfig;
use stokehold_queue::job::{JobSpec, QUEUE_TIMEOUT_DEFAULT_S, Stage, StepSpec};

use crate::config::Webhooks;
use crate::endpoints::catalog::{Catalog, Deployed, Error};
use crate::state::App;

/// An endpoint's version with its current steps. A job keeps them for its whole life.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) deployed: Arc<Deployed>,
    pub(crate) steps: Vec<StepSpec>,
    /// Shard of the tenant's jobs.
    pub(crate) shard: u8,
    /// Allowed destinations of webhooks.
    pub(crate) webhooks: Webhooks,
}

impl Target {
    /// Resolves the requested version, or the current one.
    pub(crate) async fn resolve(app: &App, tenant: &str, name: &str, version: Option<u32>) -> Result<Self, Error> {
        app.db.within("read an endpoint", Self::look_up(app, tenant, name, version)).await
    }

    async fn look_up(app: &App, tenant: &str, name: &str, version: Option<u32>) -> Result<Self, Error> {
        let deployed = app.catalog.resolve(tenant, name, version).await?;
        let shard = app.db.home(tenant).await?.number();
        let spec = &deployed.version.spec;
        let mut steps = Vec::with_capacity(spec.before.len() + spec.after.len());
        for (stage, configs) in [(Stage::Before, &spec.before), (Stage::After, &spec.after)] {
            for config in configs {
                steps.push(step(&app.catalog, tenant, stage, config).await?);
            }
        }
        Ok(Self { deployed, steps, shard, webhooks: app.config.webhooks.clone() })
    }

    /// Time by which a job must start that sets no queue timeout, Unix milliseconds. It is submitted at `now_ms` and
    /// ready at `ready_ms`. `None`: the queue applies the default to a job without this time and without a deadline,
    /// which takes no memory.
    pub(crate) fn start_by_ms(&self, now_ms: u64, ready_ms: u64, deadline_ms: Option<u64>) -> Option<u64> {
        let after = |timeout_s: u64| ready_ms.saturating_add(timeout_s.saturating_mul(1_000));
        match self.deployed.version.spec.queue_timeout_s {
            Some(timeout_s) => Some(after(timeout_s)),
            None => {
                let due_ms = after(QUEUE_TIMEOUT_DEFAULT_S);
                (ready_ms > now_ms || deadline_ms.is_some_and(|deadline_ms| deadline_ms > due_ms)).then_some(due_ms)
            }
        }
    }

    /// Spec of a job that sets no options.
    pub(crate) fn spec(&self, tenant: &str) -> JobSpec {
        let version = &self.deployed.version;
        JobSpec {
            tenant: tenant.to_owned(),
            endpoint: version.name.clone(),
            version: version.version,
            priority: version.spec.priority.unwrap_or_default(),
            vram_class_gib: self.deployed.vram_class_gib,
            demands: self.deployed.demands,
            share: version.spec.job_share(),
            timeout_ms: version.spec.timeout_s * 1000,
            max_attempts: version.spec.max_attempts,
            retry: version.spec.retry.clone().unwrap_or_default(),
            steps: self.steps.clone(),
            ..JobSpec::default()
        }
    }
}

async fn step(catalog: &Catalog, tenant: &str, stage: Stage, config: &StepConfig) -> Result<StepSpec, Error> {
    let deployed = catalog.resolve(tenant, &config.endpoint, config.version).await?;
    let version = &deployed.version;
    Ok(StepSpec {
        name: config.name.clone(),
        stage,
        endpoint: version.name.clone(),
        version: version.version,
        vram_class_gib: deployed.vram_class_gib,
        demands: deployed.demands,
        thresholds: config.thresholds.clone(),
        timeout_ms: config.timeout_s.unwrap_or(version.spec.timeout_s) * 1000,
        max_attempts: version.spec.max_attempts,
    })
}
