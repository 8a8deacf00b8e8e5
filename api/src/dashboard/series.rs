//! Records every ten seconds how many jobs arrived, ran and waited, for the dashboard's charts. One replica at a time
//! does this. The first step after a change of replica is missing, because counts cover a step.

use std::collections::BTreeMap;
use std::time::Duration;

use stokehold_queue::flow::Flow;
use stokehold_queue::job::Priority;
use stokehold_queue::series::{Point, STEP_MS};
use stokehold_queue::{Queue, now_ms};
use stokehold_supervise::{BoxError, Duty};
use tokio::time::sleep;

use crate::database::Error;
use crate::state::App;
use crate::workers::fleet_routes as fleet;

/// Timeout of a step, which is shorter than its length.
const STEP_MAX: Duration = Duration::from_secs(8);

/// Time for which a replica keeps the role without renewing it, milliseconds: a little more than two steps.
const ROLE_MS: u64 = 25_000;

/// Counters of one tenant, which only grow: jobs that became ready, started, ended, failed.
type Counters = [u64; 4];

/// A snapshot of counters and gauges.
#[derive(Debug, Default)]
struct Stood {
    at_ms: u64,
    /// Counters by tenant.
    counters: BTreeMap<String, Counters>,
    /// Gauges by tenant: waiting jobs by priority, and running jobs.
    gauges: BTreeMap<String, [u64; 4]>,
}

/// The recording loop.
pub(crate) struct Keeper {
    app: App,
    before: Option<Stood>,
    /// End of the next step to record, Unix milliseconds.
    at_ms: u64,
}

impl Keeper {
    /// Creates the loop for all tenants of `app`.
    pub(crate) fn new(app: App) -> Self {
        Self { app, before: None, at_ms: 0 }
    }

    /// Records the step that ends at `at_ms`, if this replica has the role.
    async fn step(&mut self, at_ms: u64) -> Result<(), Error> {
        let before = self.before.take();
        let Some(first) = self.app.db.queue.all().first() else { return Ok(()) };
        if !first.claim_role("series", &self.app.replica, ROLE_MS).await? {
            return Ok(());
        }
        let stood = Stood::of(at_ms, &self.app.db.queue.flow().await?);
        if let Some(before) = before.filter(|before| before.at_ms + STEP_MS == at_ms) {
            let (machines, usd_micros_per_hour) = fleet::look(&self.app).await?.totals();
            let tenants = points(&before, &stood);
            let all = Point { machines: small(machines as u64), usd_micros_per_hour, ..sum(tenants.values()) };
            self.app.db.registry.series().write(at_ms, all, &tenants).await?;
        }
        self.before = Some(stood);
        Ok(())
    }
}

impl Duty for Keeper {
    const NAME: &'static str = "series";
    const ROUND_TIMEOUT: Duration = STEP_MAX;
    const BLOCKS_READINESS: bool = false;

    async fn round(&mut self) -> Result<Duration, BoxError> {
        self.step(self.at_ms).await?;
        Ok(Duration::ZERO)
    }

    /// Waits for the end of the current step.
    async fn wait(&mut self, _: Duration) {
        self.at_ms = (now_ms() / STEP_MS + 1) * STEP_MS;
        sleep(Duration::from_millis(self.at_ms.saturating_sub(now_ms()))).await;
    }
}

impl Stood {
    fn of(at_ms: u64, flows: &[Flow]) -> Self {
        let mut stood = Self { at_ms, ..Self::default() };
        for flow in flows {
            let counters = stood.counters.entry(flow.tenant.clone()).or_default();
            let gauges = stood.gauges.entry(flow.tenant.clone()).or_default();
            for lane in &flow.lanes {
                counters[0] += lane.arrived;
                counters[1] += lane.started;
                let place = match lane.priority {
                    Priority::Interactive => 0,
                    Priority::Standard => 1,
                    Priority::Batch => 2,
                };
                gauges[place] += lane.waiting;
            }
            counters[2] += flow.ended;
            counters[3] += flow.failed;
            gauges[3] += flow.running;
        }
        stood
    }
}

/// Changes between two snapshots, by tenant. Counters that fell were lost with their Redis; their tenant gets no point.
fn points(before: &Stood, now: &Stood) -> BTreeMap<String, Point> {
    let point = |(tenant, counters): (&String, &Counters)| {
        let known = before.counters.get(tenant).copied().unwrap_or_default();
        let [arrived, started, ended, failed] = [0, 1, 2, 3].map(|n| small(counters[n].saturating_sub(known[n])));
        let [interactive, standard, batch, running] = now.gauges.get(tenant).copied().unwrap_or_default().map(small);
        let waiting = [interactive, standard, batch];
        (tenant.clone(), Point { arrived, started, ended, failed, waiting, running, ..Point::default() })
    };
    now.counters.iter().map(point).collect()
}

fn sum<'a>(points: impl Iterator<Item = &'a Point>) -> Point {
    points.fold(Point::default(), |sum, point| Point {
        arrived: sum.arrived.saturating_add(point.arrived),
        started: sum.started.saturating_add(point.started),
        ended: sum.ended.saturating_add(point.ended),
        failed: sum.failed.saturating_add(point.failed),
        waiting: [0, 1, 2].map(|n| sum.waiting[n].saturating_add(point.waiting[n])),
        running: sum.running.saturating_add(point.running),
        ..sum
    })
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use stokehold_queue::flow::LaneFlow;

    use super::*;

    fn flow(tenant: &str, arrived: u64, waiting: u64, ended: u64) -> Flow {
        let lane = |priority, waiting| LaneFlow {
            priority,
            class: 0,
            arrived,
            started: ended,
            late: 0,
            waiting,
            oldest_ms: 0,
        };
        let lanes = vec![lane(Priority::Interactive, 0), lane(Priority::Batch, waiting)];
        Flow { tenant: tenant.to_owned(), running: 1, ended, lanes, ..Flow::default() }
    }

    #[test]
    fn counts_are_of_the_step_and_the_rest_is_as_it_was_at_its_end() {
        let before = Stood::of(0, &[flow("acme", 5, 9, 3)]);
        let now = Stood::of(STEP_MS, &[flow("acme", 7, 4, 6), flow("acme", 1, 1, 0), flow("zoo", 2, 2, 0)]);
        let points = points(&before, &now);
        let acme = points["acme"];
        assert_eq!((acme.arrived, acme.ended, acme.waiting, acme.running), (6, 3, [0, 0, 5], 2));
        assert_eq!(points["zoo"].arrived, 4, "one that is new began with nothing");
        assert_eq!(sum(points.values()).waiting, [0, 0, 7]);
    }

    #[test]
    fn counters_that_were_lost_tell_nothing() {
        let points = points(&Stood::of(0, &[flow("acme", 5, 0, 3)]), &Stood::of(STEP_MS, &[flow("acme", 1, 0, 1)]));
        assert_eq!((points["acme"].arrived, points["acme"].ended), (0, 0));
    }
}
