//! Costs of a batch: the forecast before it starts, the amount spent while it runs, and its end when the budget is
//! reached.

use std::collections::BTreeMap;
use std::sync::Arc;

use stokehold_queue::batches::Batch;
use stokehold_queue::budgets::{Running, Standing, standing};
use stokehold_queue::costs::{FORECAST_DAYS, Forecast, Unknown, day_of, forecast as thought};
use stokehold_queue::{Error as QueueError, Queue, now_ms};

use super::{Error, Runner};
use crate::costs::budgets::costs_of;

/// Forecast cost of these numbers of lines on endpoints of a tenant.
pub(crate) async fn forecast(
    queue: &impl Queue,
    tenant: &str,
    lines: &BTreeMap<String, u64>,
) -> Result<Forecast, QueueError> {
    let today = day_of(now_ms());
    let spent = queue.spent(today.saturating_sub(FORECAST_DAYS - 1)..=today, Some(tenant)).await?;
    Ok(thought(&spent, lines))
}

impl Runner {
    /// Stores the forecast cost of a batch that starts.
    pub(super) async fn foretell(&self, batch: &Batch) -> Result<(), Error> {
        let mut endpoints = batch.versions.keys();
        let forecast = match (endpoints.next(), endpoints.next()) {
            (Some(only), None) => {
                let lines = [(only.clone(), batch.accepted())].into();
                forecast(&self.shard, &batch.spec.tenant, &lines).await?
            }
            (Some(_), Some(_)) => Forecast::Unknown(Unknown::Mixed),
            (None, _) => Forecast::Unknown(Unknown::NoJobs),
        };
        Ok(self.batches.note_forecast(&batch.id, &forecast).await?)
    }

    /// Stops a batch whose budget is reached, and returns whether it did. Running jobs are counted by the price of
    /// their workers until now.
    pub(super) async fn ends_at_budget(&self, batch: &Batch) -> Result<bool, Error> {
        let Some(budget) = batch.spec.budget.filter(|_| batch.stop.is_none() && batch.open() > 0) else {
            return Ok(false);
        };
        let mut spent = batch.spent_usd_micros;
        if batch.running > 0 && standing(spent, budget.usd_micros) < Standing::Reached {
            let running = self.running().await?;
            let costs = costs_of(&running, self.app.fleets.fleet().await?.workers(), now_ms());
            let of_batch = costs.iter().filter(|(it, _)| it.batch.as_ref() == Some(&batch.id));
            spent = of_batch.fold(spent, |sum, (_, cost)| sum.saturating_add(*cost));
        }
        if standing(spent, budget.usd_micros) < Standing::Reached {
            return Ok(false);
        }
        self.batches.stop_at_budget(&batch.spec.tenant, &batch.id, budget.at).await?;
        tracing::info!(
            batch.id = batch.id,
            spent_usd_micros = spent,
            budget_usd_micros = budget.usd_micros,
            at = budget.at.as_str(),
            "a batch has reached its budget"
        );
        Ok(true)
    }

    /// Running jobs on this shard, from a short-lived cache.
    async fn running(&self) -> Result<Arc<Vec<Running>>, Error> {
        if let Some(running) = self.running.get(&()) {
            return Ok(running);
        }
        let running = Arc::new(self.shard.running().await?);
        self.running.insert((), running.clone());
        Ok(running)
    }
}
