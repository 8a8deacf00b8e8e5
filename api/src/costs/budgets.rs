//! Enforces daily budgets: reads what tenants and endpoints have spent, warns, and pauses those whose budget is used
//! up.
//!
//! One replica at a time does this for each shard. Correctness does not depend on it: a pause is decided by stored
//! values, and pausing twice changes nothing. Between two rounds, jobs that start meanwhile and those that still run
//! may exceed a budget.

use std::collections::HashMap;
use std::time::Duration;

use stokehold_queue::budgets::{AtBudget, Budgeted, FOREVER_MS, Running, Standing, Stood, standing};
use stokehold_queue::costs::day_of;
use stokehold_queue::gateway::LeaseRef;
use stokehold_queue::queue::LimitScope;
use stokehold_queue::{BATCH_MAX, Queue, RedisQueue, WorkerRecord, now_ms};

use crate::database::{Database, Error};
use crate::state::App;
use crate::time_format::rfc3339;
use crate::workers::fleet::Waiting;
use stokehold_queue::costs::dollars;
use stokehold_supervise::{BoxError, Duty};

/// Time between two rounds.
const ROUND: Duration = Duration::from_secs(5);

/// Timeout of one round.
const ROUND_MAX: Duration = Duration::from_secs(20);

/// Time for which a replica keeps the role without renewing it, milliseconds: a little more than two rounds.
const ROLE_MS: u64 = 12_000;

const DAY_MS: u64 = 86_400_000;

/// Result of one round.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// Number of budgets by state: within, warned, reached.
    pub(crate) gates: [usize; 3],
    /// Attempts that were requeued.
    pub(crate) released: usize,
}

/// The budget loop for one shard.
pub(crate) struct Keeper {
    app: App,
    shard: RedisQueue,
}

impl Keeper {
    /// Creates the loop for the tenants of one shard.
    pub(crate) fn new(app: App, shard: RedisQueue) -> Self {
        Self { app, shard }
    }

    /// Runs one round. Returns `None` when another replica has the role.
    pub(crate) async fn run_once(&self) -> Result<Option<Summary>, Error> {
        if !self.shard.claim_role("budgets", &self.app.replica, ROLE_MS).await? {
            return Ok(None);
        }
        let (mut summary, now) = (Summary::default(), now_ms());
        let budgets = self.shard.budgets(day_of(now)).await?;
        if budgets.is_empty() {
            return Ok(Some(summary));
        }
        let running = self.shard.running().await?;
        let costs = costs_of(&running, self.app.fleets.fleet().await?.workers(), now);
        for budgeted in &budgets {
            let stood = stood(budgeted, &costs, now);
            summary.gates[stood.standing as usize] += 1;
            // The budget was raised, lowered or removed since it was read: the next round handles it.
            let Some(before) = self.shard.pause(&budgeted.scope, &budgeted.budget, &stood).await? else { continue };
            log_change(budgeted, before, &stood);
            if stood.standing == Standing::Reached && budgeted.budget.at == AtBudget::Stop {
                summary.released += self.stop(&budgeted.scope, &running).await?;
            }
        }
        Ok(Some(summary))
    }

    /// Requeues the running jobs of a limit scope at the front of their lanes. Their workers learn of it at their next
    /// heartbeat.
    async fn stop(&self, scope: &LimitScope, running: &[Running]) -> Result<usize, Error> {
        let leases: Vec<LeaseRef> = running
            .iter()
            .filter(|it| it.is_of(scope))
            .map(|it| LeaseRef { job_id: it.id, fence: it.fence.clone() })
            .collect();
        for leases in leases.chunks(BATCH_MAX) {
            self.shard.release(leases).await?;
        }
        Ok(leases.len())
    }
}

impl Duty for Keeper {
    const NAME: &'static str = "budgets";
    const ROUND_TIMEOUT: Duration = ROUND_MAX;
    const RETRY_DELAY: Duration = ROUND;
    /// The next round continues the work.
    const CANCEL_ON_SHUTDOWN: bool = true;

    async fn round(&mut self) -> Result<Duration, BoxError> {
        self.run_once().await?;
        Ok(ROUND.mul_f64(0.8 + 0.4 * rand::random::<f64>()))
    }
}

/// Budgets of a tenant and its endpoints, and the amounts spent today.
pub(crate) async fn of_tenant(db: &Database, tenant: &str) -> Result<Vec<Budgeted>, Error> {
    let mut budgets = db.ask("read the budgets", db.home(tenant).await?.budgets(day_of(now_ms()))).await?;
    budgets.retain(|budgeted| budgeted.scope.tenant() == tenant);
    Ok(budgets)
}

/// Cost of each running attempt today, micro-dollars, by the price of its worker. It is an upper estimate: the worker
/// itself measures less than the time of its lease.
pub(crate) fn costs_of<'a>(running: &'a [Running], workers: &[WorkerRecord], now_ms: u64) -> Vec<(&'a Running, u64)> {
    let prices: HashMap<&str, &WorkerRecord> =
        workers.iter().map(|worker| (worker.worker_id.as_str(), worker)).collect();
    let midnight_ms = now_ms / DAY_MS * DAY_MS;
    let cost = |it: &Running| {
        let ran_ms = now_ms.saturating_sub(it.leased_ms.max(midnight_ms));
        prices.get(it.worker_id.as_str()).and_then(|worker| worker.cost_usd_micros(ran_ms)).unwrap_or(0)
    };
    running.iter().map(|it| (it, cost(it))).collect()
}

/// State of a budget. A paused scope stays paused, even if the stopped work cost less than estimated.
fn stood(budgeted: &Budgeted, costs: &[(&Running, u64)], now_ms: u64) -> Stood {
    let of_gate = costs.iter().filter(|(it, _)| it.is_of(&budgeted.scope));
    let spent = of_gate.fold(budgeted.spent_usd_micros, |sum, (_, cost)| sum.saturating_add(*cost));
    let standing = if budgeted.paused_until_ms.is_some_and(|until_ms| until_ms > now_ms) {
        Standing::Reached
    } else {
        standing(spent, budgeted.budget.usd_micros_per_day)
    };
    Stood { day: day_of(now_ms), spent_usd_micros: spent, standing }
}

/// Returns the budget for which a job may not start, if any: the one that delays it the longest.
pub(crate) fn spent_budget(tenant: &str, endpoint: &str, budgets: &[Budgeted], now_ms: u64) -> Option<Waiting> {
    let is_its = |budgeted: &&Budgeted| match &budgeted.scope {
        LimitScope::Tenant(its) => its == tenant,
        LimitScope::Endpoint { tenant: its, endpoint: name } => its == tenant && name == endpoint,
    };
    let paused = budgets.iter().filter(is_its).filter_map(|it| Some((it.paused_until_ms?, it)));
    let (until_ms, it) = paused.filter(|(until_ms, _)| *until_ms > now_ms).max_by_key(|(until_ms, _)| *until_ms)?;
    let (whose, at) = match &it.scope {
        LimitScope::Tenant(_) => ("its tenant's", String::new()),
        LimitScope::Endpoint { endpoint, .. } => ("its endpoint's", format!(" --endpoint {endpoint}")),
    };
    let (budget, higher) =
        (it.budget.usd_micros_per_day, it.budget.usd_micros_per_day.saturating_mul(2).max(1_000_000));
    let raise =
        format!("stoke limit set {tenant}{at} --budget-usd-per-day {}", dollars(higher).trim_start_matches('$'));
    Some(Waiting::Budget(if until_ms >= FOREVER_MS {
        format!("{whose} budget is 0, so nothing starts; raise it: {raise}")
    } else {
        let resumes_at = rfc3339(until_ms);
        format!(
            "{whose} budget of {} for today is spent; jobs start again at {resumes_at}, or raise it: {raise}",
            dollars(budget)
        )
    }))
}

/// Logs once a day that a budget is nearly spent, and once that it is spent.
fn log_change(budgeted: &Budgeted, before: Option<Stood>, stood: &Stood) {
    let known = before.filter(|before| before.day == stood.day).map_or(Standing::Within, |before| before.standing);
    if stood.standing <= known {
        return;
    }
    let (scope, budget) = (budgeted.scope.to_string(), budgeted.budget);
    let (spent, of) = (dollars(stood.spent_usd_micros), dollars(budget.usd_micros_per_day));
    match stood.standing {
        Standing::Within => {}
        Standing::Warned => tracing::warn!(scope, spent, of, "a daily budget is nearly spent"),
        Standing::Reached => {
            let at = budget.at.as_str();
            tracing::warn!(scope, spent, of, at, "a daily budget is spent; nothing more starts before midnight UTC");
        }
    }
}

#[cfg(test)]
mod tests {
    use stokehold_queue::budgets::Budget;
    use stokehold_queue::{Fence, JobId};

    use super::*;
    use crate::workers::fleet::tests::worker;

    const NOON: u64 = 20_000 * DAY_MS + DAY_MS / 2;

    fn running(worker: &str, endpoint: &str, leased_ms: u64) -> Running {
        Running {
            id: JobId::of_line("batch_a", 1_795_240_200_123, 7, 0),
            fence: Fence("1.x".to_owned()),
            tenant: "acme".to_owned(),
            endpoint: endpoint.to_owned(),
            batch: None,
            worker_id: worker.to_owned(),
            leased_ms,
        }
    }

    fn budgeted(spent_usd_micros: u64) -> Budgeted {
        Budgeted {
            scope: LimitScope::Endpoint { tenant: "acme".to_owned(), endpoint: "draw".to_owned() },
            budget: Budget { usd_micros_per_day: 100_000, at: AtBudget::Drain },
            spent_usd_micros,
            stood: None,
            paused_until_ms: None,
        }
    }

    #[test]
    fn what_runs_is_reckoned_at_the_price_of_its_worker_since_midnight() {
        let dear = WorkerRecord {
            worker_id: "dear".to_owned(),
            price_usd_micros_per_hour: 3_600_000,
            slots: 4,
            ..worker(&[], 0, vec![])
        };
        let runs = [
            running("dear", "draw", NOON - 40_000),
            running("dear", "write", 0),
            running("gone", "draw", 0),
            running("dear", "draw", NOON + 5),
        ];
        let costs: Vec<u64> = costs_of(&runs, &[dear], NOON).into_iter().map(|(_, cost)| cost).collect();
        assert_eq!(costs, [10_000, 10_800_000, 0, 0]);
    }

    #[test]
    fn a_gate_stands_by_what_it_spent_and_what_runs_there() {
        let runs = [running("w", "draw", 0), running("w", "write", 0)];
        let costs = [(&runs[0], 10_000), (&runs[1], 900_000)];
        let told = |spent| {
            let stood = stood(&budgeted(spent), &costs, NOON);
            (stood.spent_usd_micros, stood.standing)
        };
        assert_eq!(told(60_000), (70_000, Standing::Within));
        assert_eq!(told(70_000), (80_000, Standing::Warned));
        assert_eq!(told(90_000), (100_000, Standing::Reached));
    }

    #[test]
    fn a_job_is_told_which_budget_keeps_it_back() {
        let until_ms = NOON + DAY_MS / 2;
        let paused = [Budgeted { paused_until_ms: Some(until_ms), ..budgeted(0) }];
        let why = |endpoint, now_ms| spent_budget("acme", endpoint, &paused, now_ms);
        let Some(Waiting::Budget(said)) = why("draw", NOON) else { panic!() };
        assert_eq!(
            said,
            "its endpoint's budget of $0.10 for today is spent; jobs start again at 2024-10-05T00:00:00.000Z, or raise it: \
             stoke limit set acme --endpoint draw --budget-usd-per-day 1.00"
        );
        assert_eq!((why("write", NOON), why("draw", until_ms)), (None, None));
    }

    #[test]
    fn who_is_paused_stays_so_until_midnight() {
        let paused = Budgeted { paused_until_ms: Some(NOON + 1), ..budgeted(0) };
        assert_eq!(stood(&paused, &[], NOON).standing, Standing::Reached, "what it released has cost nothing");
        assert_eq!(stood(&paused, &[], NOON + 1).standing, Standing::Within);
    }
}
