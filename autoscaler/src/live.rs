//! The loop: poll, plan, execute. [`stokehold_planner::decide`] makes all decisions; [`reconcile`] applies the
//! consequences of earlier ones.

mod budget;
pub(crate) mod collect;
pub(crate) mod eta;
mod lead;
pub(crate) mod notices;
pub(crate) mod pause;
pub(crate) mod reconcile;
pub(crate) mod round;
#[cfg(test)]
mod storm;

use std::sync::Arc;
use std::time::Duration;

use stokehold_planner::observation::Observation;
use stokehold_planner::plan::Plan;
use stokehold_planner::{Planner, Policy, millis};

use serde::Serialize;
use stokehold_metrics::Metrics;
use stokehold_queue::queue::{AUTOSCALER, Signal};
use stokehold_queue::registry::{AutoscalerStatus, Caps, Eta, Registry, Term};
use stokehold_queue::{Clock, Queue, Shards, now_ms};
use stokehold_supervise::Supervisor;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::apply::{Executor, ExecutorError};
use crate::cost_ledger::writer::CostLedger;
use crate::history::Recorder;
use crate::metrics::{self, Led};
use crate::observe::{self, RawState};
use crate::provider::{Invites, Provider};
use crate::providers::Providers;
use crate::rental_ledger::RentalLedger;

use collect::{Collector, Poll};
use lead::Lead;
use notices::Notices;
use reconcile::ReconcileLimits;
use round::round;
use stokehold_units::UsdMicros;

/// Time to collect further wake-ups before a round, because they come in groups and one poll serves all.
const WAKE_PAUSE: Duration = Duration::from_millis(100);

/// The timeout of a round. Each call of a provider has its own timeout.
const ROUND_TIMEOUT: Duration = Duration::from_secs(600);

/// Timeout for updating the ledger when the process ends.
const LEAVE_LIMIT: Duration = Duration::from_secs(5);

/// Settings of the loop.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Interval between two rounds.
    pub tick: Duration,
    /// Limits and weights of decisions.
    pub policy: Policy,
    /// Name under which this autoscaler leads. A restart under the same name does not wait for the old lease to expire.
    /// Set it only if no other autoscaler can use it; random if `None`.
    pub holder: Option<String>,
}

/// Maximum interval between two status reports, milliseconds.
const STATUS_EVERY_MS: u64 = 5_000;

impl Settings {
    fn limits(&self) -> ReconcileLimits {
        ReconcileLimits {
            drain_ms: millis(self.policy.drain_deadline_s),
            cooldown_ms: millis(self.policy.host_penalty_s),
            most_usd_micros_per_hour: self.policy.max_per_hour().micros(),
        }
    }

    fn executor<'a>(
        &self,
        ledger: &'a dyn RentalLedger,
        clock: &'a Clock,
        term: Term,
        providers: &'a Providers,
        invites: Option<&'a dyn Invites>,
    ) -> Executor<'a> {
        let policy = &self.policy;
        let caps = Caps {
            machines: policy.max_machines,
            usd_micros_per_hour: policy.max_per_hour().micros(),
            rents: policy.max_rents_per_hour,
            window_ms: 3_600_000,
        };
        Executor { ledger, clock, term, caps, providers, invites, is_urgent: false }
    }
}

/// A running autoscaler.
pub struct Autoscaler {
    queue: Shards,
    providers: Providers,
    settings: Settings,
    collector: Collector,
    planner: Planner,
    recorder: Option<Recorder>,
    invites: Option<Arc<dyn Invites>>,
    cost_ledger: CostLedger,
    exposition: Metrics,
    supervisor: Supervisor,
    /// Whether the last poll failed, so that a lasting failure is logged once.
    was_redis_unreachable: bool,
    notices: Notices,
    /// Time of the last status report, unix milliseconds.
    told_ms: u64,
}

/// Result of one round.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Round {
    /// The observation.
    pub seen: Observation,
    /// The plan.
    pub plan: Plan,
    /// Providers that could not be reached, and why.
    #[serde(rename = "blind")]
    pub unreachable: Vec<String>,
}

impl Round {
    /// Plans for the last of these observations after learning from the earlier ones; `None` without observations.
    #[must_use]
    pub fn decided_of(moments: Vec<Observation>, policy: &Policy) -> Option<Self> {
        let mut planner = Planner::new(policy.clone());
        let mut last = None;
        for seen in moments {
            let plan = planner.plan(&seen);
            last = Some(Self { seen, plan, unreachable: Vec::new() });
        }
        last
    }
}

impl Autoscaler {
    /// Creates an autoscaler. Nothing is read yet.
    #[must_use]
    pub fn new(queue: Shards, providers: Providers, settings: Settings, recorder: Option<Recorder>) -> Self {
        let planner = Planner::new(settings.policy.clone());
        let collector = Collector::new(queue.clone(), settings.policy.min_credit());
        Self {
            queue,
            providers,
            settings,
            collector,
            planner,
            recorder,
            invites: None,
            cost_ledger: CostLedger::default(),
            exposition: Metrics::default(),
            supervisor: Supervisor::default(),
            was_redis_unreachable: false,
            notices: Notices::default(),
            told_ms: 0,
        }
    }

    /// Adds the issuer of join tokens for rented machines.
    #[must_use]
    pub fn with_invites(mut self, invites: Arc<dyn Invites>) -> Self {
        self.invites = Some(invites);
        self
    }

    /// Adds the endpoint that exposes metrics.
    #[must_use]
    pub fn with_exposition(mut self, exposition: Metrics) -> Self {
        self.exposition = exposition;
        self
    }

    /// Sets the supervisor of its background duties.
    #[must_use]
    pub fn with_supervisor(mut self, supervisor: Supervisor) -> Self {
        self.supervisor = supervisor;
        self
    }

    /// Polls once and plans without executing anything.
    ///
    /// # Errors
    /// If Redis fails.
    pub async fn plan(&mut self) -> anyhow::Result<Round> {
        let mut poll = self.collector.poll(&self.providers).await?;
        // A single poll has no history, so it excuses no silent worker.
        poll.seen.pause = None;
        let seen = observe::observation(&poll.seen);
        let plan = self.planner.plan(&seen);
        let unreachable = poll.unreachable.iter().map(|(name, why)| format!("{name}: {why}")).collect();
        Ok(Round { seen, plan, unreachable })
    }

    /// Runs rounds until `shutdown`. Then it ends the machines that cannot outlive this process; others stay. Call it
    /// on the main thread, because machines of `local` are tied to the life of that thread.
    ///
    /// # Errors
    /// If it cannot subscribe to the signals of the queue.
    pub async fn run(&mut self, shutdown: CancellationToken) -> anyhow::Result<()> {
        let mut wakeups = self.queue.listen(AUTOSCALER).await?;
        let mut lead = Lead::claim(self.queue.registry(), self.settings.holder.clone(), &self.supervisor);
        let rounds = self.supervisor.rounds("autoscaler_round", ROUND_TIMEOUT);
        let mut tick = interval(self.settings.tick);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = wanted(&mut wakeups) => tick.reset(),
                () = lead.changed() => {}
                () = shutdown.cancelled() => break,
            }
            metrics::leads(lead.term().is_some());
            if lead.term().is_none() {
                self.collector.lose_sight();
                metrics::not_led(&self.exposition);
            }
            if let Some(term) = lead.term() {
                let started = Instant::now();
                tokio::select! {
                    done = rounds.run(async { self.round(term).await; Ok(()) }) => {
                        if done.is_ok() {
                            metrics::ticked(started.elapsed());
                        }
                    }
                    // A call in progress gets an unknown outcome, which the next leader resolves.
                    () = shutdown.cancelled() => break,
                }
            }
        }
        self.leave(&lead).await;
        Ok(())
    }

    /// Runs one round. Failures are logged and end it.
    async fn round(&mut self, term: Term) {
        let poll = match self.collector.poll(&self.providers).await {
            Ok(poll) => poll,
            Err(error) => {
                metrics::unreachable("redis");
                self.collector.lose_sight();
                if !std::mem::replace(&mut self.was_redis_unreachable, true) {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "cannot read the state from Redis; machines stay as they are"
                    );
                }
                return;
            }
        };
        self.was_redis_unreachable = false;
        poll.unreachable.iter().for_each(|(provider, _)| metrics::unreachable(provider));
        let registry = self.queue.registry();
        if self.cost_ledger.spent_today(poll.seen.now_ms).is_none() {
            // Costs must be known before anything is rented.
            self.cost_ledger.keep(&registry, term, &self.providers, &poll.seen).await;
        }
        let poll = Poll { spent_usd_micros: self.cost_ledger.spent_today(poll.seen.now_ms), ..poll };
        let executor = self.settings.executor(&registry, &Clock::Own, term, &self.providers, self.invites.as_deref());
        let unreachable: Vec<&str> = poll.unreachable.iter().map(|(name, _)| *name).collect();
        let mut led = Led {
            usd_per_hour: UsdMicros::ZERO,
            spent_usd_micros: poll.spent_usd_micros,
            providers: self.providers.iter().map(|it| (it.name(), unreachable.contains(&it.name()))).collect(),
        };
        let tied = self.tied(&poll.seen);
        let (recorder, mut etas) = (&mut self.recorder, Vec::new());
        let record = |seen: &Observation, plan: &Plan| {
            led.usd_per_hour = metrics::usd_per_hour(seen);
            etas = eta::etas(seen, &self.settings.policy);
            if let Some(recorder) = recorder
                && let Err(error) = recorder.note(seen, plan)
            {
                tracing::warn!(%error, "cannot record this round");
            }
        };
        let gone = round(&executor, &mut self.planner, self.settings.limits(), poll, &mut self.notices, record).await;
        let seen = match gone {
            Ok(seen) => seen,
            Err(stop) => {
                return tracing::warn!(
                    error = &stop as &dyn std::error::Error,
                    "round stopped early; the next one follows"
                );
            }
        };
        for worker in tied.iter().filter(|id| seen.workers.iter().all(|worker| worker.worker_id != **id)) {
            // Jobs that cannot be queued again now are queued again when their leases expire.
            match self.queue.abandon(worker).await {
                Ok(0) => {}
                Ok(jobs) => tracing::info!(worker.id = worker, jobs, "worker process ended; its jobs are queued again"),
                Err(error) => {
                    tracing::warn!(worker.id = worker, %error, "cannot queue the jobs of an ended worker process; they are queued again when their leases expire")
                }
            }
        }
        metrics::led(&self.exposition, &self.settings.policy, &led);
        self.cost_ledger.keep(&registry, term, &self.providers, &seen).await;
        self.publish_status(&registry, term, etas).await;
    }

    /// Workers on machines that end with this process. Once such a machine is struck off, it has certainly ended.
    fn tied(&self, seen: &RawState) -> Vec<String> {
        let is_tied = |name: &String| {
            let provider = seen.machines.get(name).and_then(|machine| self.providers.get(&machine.provider));
            provider.is_some_and(Provider::leaves_with_us)
        };
        let workers = seen.workers.iter().filter(|worker| is_tied(&worker.name));
        workers.map(|worker| worker.worker_id.clone()).collect()
    }

    /// Publishes the status after a change, and every few seconds.
    async fn publish_status(&mut self, registry: &Registry, term: Term, etas: Vec<Eta>) {
        let at_ms = now_ms();
        let (notices, changed) = self.notices.end_round(at_ms);
        if !changed && at_ms.saturating_sub(self.told_ms) < STATUS_EVERY_MS {
            return;
        }
        let decisions = self.notices.decisions();
        let (boots_s, resume_s) = eta::boots(self.planner.learned());
        let status = AutoscalerStatus { at_ms, notices, etas, decisions, boots_s, resume_s };
        match registry.put_autoscaler(term, &status).await {
            Ok(_) => self.told_ms = at_ms,
            Err(error) => tracing::debug!(%error, "cannot publish the status of the autoscaler; retrying"),
        }
    }

    /// Ends the machines that cannot outlive this process and gives up the lead.
    async fn leave(&mut self, lead: &Lead) {
        for provider in self.providers.iter() {
            provider.leave().await;
        }
        let Some(term) = lead.term() else { return lead.give_up().await };
        let registry = self.queue.registry();
        let executor = self.settings.executor(&registry, &Clock::Own, term, &self.providers, self.invites.as_deref());
        let forgetting = async {
            let workers = registry.workers().await?;
            for machine in registry.machines().await?.into_values() {
                if self.providers.get(&machine.provider).is_some_and(Provider::leaves_with_us) {
                    executor.forget(&machine.id, &workers).await?;
                }
            }
            Ok::<_, ExecutorError>(())
        };
        if !matches!(timeout(LEAVE_LIMIT, forgetting).await, Ok(Ok(()))) {
            tracing::debug!("cannot remove machines that ended with this process; the next leader removes them");
        }
        lead.give_up().await;
    }
}

/// Completes when a job is ready and no worker waits for it.
async fn wanted(wakeups: &mut mpsc::Receiver<Signal>) {
    loop {
        match wakeups.recv().await {
            Some(Signal::Unmet | Signal::Missed) => break,
            Some(_) => {}
            // The periodic rounds continue.
            None => std::future::pending().await,
        }
    }
    let until = Instant::now() + WAKE_PAUSE;
    loop {
        tokio::select! {
            more = wakeups.recv() => if more.is_none() { return },
            () = sleep_until(until) => return,
        }
    }
}
