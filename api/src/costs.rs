//! Amounts spent and billed, some seconds old, computed once for all callers.

pub(crate) mod budgets;
pub(crate) mod routes;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use stokehold_queue::Queue;
use stokehold_queue::costs::{Factors, JobCost, Line, MachineBill, day_of, reckon};
use stokehold_queue::job::Job;
use tokio::sync::Mutex;

use crate::database::{Database, Error};

/// Cache time of computed costs.
const CACHE_TTL: Duration = Duration::from_secs(5);

/// Maximum number of cached days, or ranges of days.
const KEPT: u64 = 32;

type Bills = Arc<Vec<MachineBill>>;
type Span = (u32, u32, bool);

/// Cache of computed costs.
pub(crate) struct Costs {
    db: Arc<Database>,
    bills: Cache<(), Bills>,
    lines: Cache<Span, Arc<Vec<Line>>>,
    factors: Cache<u32, Arc<Factors>>,
    /// Held while reading, so that concurrent requests cause one computation.
    reading: Mutex<()>,
}

impl Costs {
    pub(crate) fn new(db: Arc<Database>) -> Self {
        Self {
            db,
            bills: Cache::builder().max_capacity(1).time_to_live(CACHE_TTL).build(),
            lines: Cache::builder().max_capacity(KEPT).time_to_live(CACHE_TTL).build(),
            factors: Cache::builder().max_capacity(KEPT).time_to_live(CACHE_TTL).build(),
            reading: Mutex::new(()),
        }
    }

    /// Cost of each instance on these days, by the work that it did; see [`reckon`] for `apart`.
    pub(crate) async fn lines(&self, days: RangeInclusive<u32>, apart: bool) -> Result<Arc<Vec<Line>>, Error> {
        let span = (*days.start(), *days.end(), apart);
        if let Some(lines) = self.lines.get(&span) {
            return Ok(lines);
        }
        let _reading = self.reading.lock().await;
        if let Some(lines) = self.lines.get(&span) {
            return Ok(lines);
        }
        let bills = match self.bills.get(&()) {
            Some(bills) => bills,
            None => self.read_bills().await?,
        };
        self.bills.insert((), bills.clone());
        let lines = Arc::new(self.reckoned(&bills, days, apart).await?);
        self.lines.insert(span, lines.clone());
        Ok(lines)
    }

    /// Computes the same now, without the cache; for rare callers.
    pub(crate) async fn lines_now(&self, days: RangeInclusive<u32>) -> Result<Vec<Line>, Error> {
        self.reckoned(&self.read_bills().await?, days, false).await
    }

    async fn read_bills(&self) -> Result<Bills, Error> {
        Ok(Arc::new(
            self.db.ask("read the bills of the instances", self.db.registry.bills()).await?.into_values().collect(),
        ))
    }

    async fn reckoned(
        &self,
        bills: &[MachineBill],
        days: RangeInclusive<u32>,
        apart: bool,
    ) -> Result<Vec<Line>, Error> {
        let spent = self.db.ask("read the spending", self.db.queue.spent(days.clone(), None)).await?;
        Ok(reckon(&spent, bills, days, self.db.now_ms(), apart))
    }

    /// Costs of these jobs, in order, computed from the known costs of the days on which their attempts ended.
    pub(crate) async fn of_jobs(&self, jobs: &[Job]) -> Result<Vec<JobCost>, Error> {
        let ends = jobs.iter().flat_map(|job| &job.attempts).filter_map(|attempt| attempt.ended_ms);
        let mut days: Vec<u32> = ends.map(day_of).collect();
        days.sort_unstable();
        days.dedup();
        let mut costs: Vec<JobCost> = vec![JobCost::default(); jobs.len()];
        for day in days {
            let factors = match self.factors.get(&day) {
                Some(factors) => factors,
                None => Arc::new(Factors::new(&self.lines(day..=day, false).await?)),
            };
            self.factors.insert(day, factors.clone());
            for (job, cost) in jobs.iter().zip(&mut costs) {
                *cost += factors.on(day, job);
            }
        }
        Ok(costs)
    }
}
