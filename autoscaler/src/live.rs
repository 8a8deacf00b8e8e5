//! The loop: look, decide, do. Everything that is decided is decided by [`crate::decide`], and [`chores`] says what follows from what was decided
//! before.

pub(crate) mod chores;
pub(crate) mod eta;
mod lead;
pub(crate) mod look;
pub(crate) mod notices;
pub(crate) mod pause;
mod purse;
pub(crate) mod round;
#[cfg(test)]
mod storm;

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use stokehold_exposition::Exposition;
use stokehold_queue::queue::{AUTOSCALER, Signal};
use stokehold_queue::registry::{AutoscalerStatus, Caps, Eta, Registry, Term};
use stokehold_queue::{Clock, Queue, Shards, now_ms};
use stokehold_supervise::Supervisor;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::Policy;
use crate::apply::{Hands, Stop};
use crate::bills::books::Books;
use crate::history::Recorder;
use crate::live::chores::micros;
use crate::metrics::{self, Led};
use crate::mind::Mind;
use crate::observation::Observation;
use crate::observe::{self, Seen};
use crate::plan::Plan;
use crate::provider::{Invites, Provider};
use crate::providers::Providers;
use crate::rental_ledger::RentalLedger;

use chores::Patience;
use lead::Lead;
use look::{Eyes, Look};
use notices::Notices;
use round::round;

/// A wake is waited on for so long: more of them come at once, and one look is enough for all.
const WAKE_PAUSE: Duration = Duration::from_millis(100);

/// The timeout of a round. Providers take their time, and each of their calls has a timeout of its own.
const ROUND_TIMEOUT: Duration = Duration::from_secs(600);

/// What is to be given up when this process ends has so long to be written down.
const LEAVE_LIMIT: Duration = Duration::from_secs(5);

/// How to run the loop.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Between two looks.
    pub tick: Duration,
    /// What decisions go by.
    pub policy: Policy,
    /// What it leads under: one that comes back under the name of one that has died need not wait for the end of its lead. To be given only
    /// where nobody else can have it; random without.
    pub holder: Option<String>,
}

/// It is said so often how things are, milliseconds.
const TELL_EVERY_MS: u64 = 5_000;

impl Settings {
    fn patience(&self) -> Patience {
        Patience {
            drain_ms: millis(self.policy.drain_deadline_s),
            shun_ms: millis(self.policy.host_penalty_s),
            most_usd_micros_per_hour: micros(self.policy.max_usd_per_hour),
        }
    }

    fn hands<'a>(
        &self,
        ledger: &'a dyn RentalLedger,
        clock: &'a Clock,
        term: Term,
        providers: &'a Providers,
        invites: Option<&'a dyn Invites>,
    ) -> Hands<'a> {
        let policy = &self.policy;
        let caps = Caps {
            machines: policy.max_machines,
            usd_micros_per_hour: micros(policy.max_usd_per_hour),
            rents: policy.max_rents_per_hour,
            window_ms: 3_600_000,
        };
        Hands { ledger, clock, term, caps, providers, invites, is_urgent: false }
    }
}

/// The running autoscaler.
pub struct Autoscaler {
    queue: Shards,
    providers: Providers,
    settings: Settings,
    eyes: Eyes,
    mind: Mind,
    recorder: Option<Recorder>,
    invites: Option<Arc<dyn Invites>>,
    books: Books,
    exposition: Exposition,
    supervisor: Supervisor,
    /// What is so for longer is logged once.
    was_blind: bool,
    notices: Notices,
    /// When it was last said how it is, unix milliseconds.
    told_ms: u64,
}

/// What one round came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Round {
    /// What was seen.
    pub seen: Observation,
    /// What was decided.
    pub plan: Plan,
    /// Providers that could not be asked, and why.
    pub blind: Vec<String>,
}

impl Round {
    /// What would be decided at the last of these moments, with what was learned before; `None` of no moments.
    #[must_use]
    pub fn decided_of(moments: Vec<Observation>, policy: &Policy) -> Option<Self> {
        let mut mind = Mind::new(policy.clone());
        let mut last = None;
        for seen in moments {
            let plan = mind.plan(&seen);
            last = Some(Self { seen, plan, blind: Vec::new() });
        }
        last
    }
}

impl Autoscaler {
    /// Nothing is asked yet.
    #[must_use]
    pub fn new(queue: Shards, providers: Providers, settings: Settings, recorder: Option<Recorder>) -> Self {
        let mind = Mind::new(settings.policy.clone());
        let eyes = Eyes::new(queue.clone(), settings.policy.min_credit_usd);
        Self {
            queue,
            providers,
            settings,
            eyes,
            mind,
            recorder,
            invites: None,
            books: Books::default(),
            exposition: Exposition::default(),
            supervisor: Supervisor::default(),
            was_blind: false,
            notices: Notices::default(),
            told_ms: 0,
        }
    }

    /// With somebody who lets the workers of rented machines join.
    #[must_use]
    pub fn with_invites(mut self, invites: Arc<dyn Invites>) -> Self {
        self.invites = Some(invites);
        self
    }

    /// With where this process shows how things stand.
    #[must_use]
    pub fn with_exposition(mut self, exposition: Exposition) -> Self {
        self.exposition = exposition;
        self
    }

    /// With the supervisor of its background duties.
    #[must_use]
    pub fn with_supervisor(mut self, supervisor: Supervisor) -> Self {
        self.supervisor = supervisor;
        self
    }

    /// One look, and what would be done now. Does nothing.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn plan(&mut self) -> anyhow::Result<Round> {
        let mut look = self.eyes.look(&self.providers).await?;
        // Who looks once knows of no pause; it excuses nobody.
        look.seen.pause = None;
        let seen = observe::observation(&look.seen);
        let plan = self.mind.plan(&seen);
        let blind = look.blind.iter().map(|(name, why)| format!("{name}: {why}")).collect();
        Ok(Round { seen, plan, blind })
    }

    /// Looks, decides and does until `shutdown`; what cannot outlive this process is ended then, everything else stays. Call it on the main
    /// thread, to whose life machines of `local` are tied.
    ///
    /// # Errors
    /// When the queue's signals cannot be heard.
    pub async fn run(&mut self, shutdown: CancellationToken) -> anyhow::Result<()> {
        let mut heard = self.queue.listen(AUTOSCALER).await?;
        let mut lead = Lead::claim(self.queue.registry(), self.settings.holder.clone(), &self.supervisor);
        let rounds = self.supervisor.rounds("autoscaler_round", ROUND_TIMEOUT);
        let mut tick = interval(self.settings.tick);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = wanted(&mut heard) => tick.reset(),
                () = lead.changed() => {}
                () = shutdown.cancelled() => break,
            }
            metrics::leads(lead.term().is_some());
            if lead.term().is_none() {
                self.eyes.lose_sight();
                metrics::not_led(&self.exposition);
            }
            if let Some(term) = lead.term() {
                let started = Instant::now();
                tokio::select! {
                    done = rounds.run(async { Ok(self.round(term).await) }) => {
                        if done.is_ok() {
                            metrics::ticked(started.elapsed());
                        }
                    }
                    // A call under way is of unknown outcome, and is cleared up by the next one that leads.
                    () = shutdown.cancelled() => break,
                }
            }
        }
        self.leave(&lead).await;
        Ok(())
    }

    /// One round, whatever comes of it.
    async fn round(&mut self, term: Term) {
        let look = match self.eyes.look(&self.providers).await {
            Ok(look) => look,
            Err(blind) => {
                metrics::blind("redis");
                self.eyes.lose_sight();
                if !std::mem::replace(&mut self.was_blind, true) {
                    tracing::warn!(
                        error = &blind as &dyn std::error::Error,
                        "nothing can be seen; machines stay as they are"
                    );
                }
                return;
            }
        };
        self.was_blind = false;
        look.blind.iter().for_each(|(provider, _)| metrics::blind(provider));
        let registry = self.queue.registry();
        if self.books.spent_today(look.seen.now_ms).is_none() {
            // What is spent is known before anything is rented.
            self.books.keep(&registry, term, &self.providers, &look.seen).await;
        }
        let look = Look { spent_usd_micros: self.books.spent_today(look.seen.now_ms), ..look };
        let hands = self.settings.hands(&registry, &Clock::Own, term, &self.providers, self.invites.as_deref());
        let blind: Vec<&str> = look.blind.iter().map(|(name, _)| *name).collect();
        let mut led = Led {
            usd_per_hour: 0.0,
            spent_usd_micros: look.spent_usd_micros,
            providers: self.providers.iter().map(|it| (it.name(), blind.contains(&it.name()))).collect(),
        };
        let tied = self.tied(&look.seen);
        let (recorder, mut etas) = (&mut self.recorder, Vec::new());
        let record = |seen: &Observation, plan: &Plan| {
            led.usd_per_hour = metrics::usd_per_hour(seen);
            etas = eta::etas(seen, &self.settings.policy);
            if let Some(recorder) = recorder
                && let Err(error) = recorder.note(seen, plan)
            {
                tracing::warn!(%error, "this round cannot be recorded");
            }
        };
        let gone = round(&hands, &mut self.mind, self.settings.patience(), look, &mut self.notices, record).await;
        let seen = match gone {
            Ok(seen) => seen,
            Err(stop) => return tracing::warn!(error = &stop as &dyn std::error::Error, "this round ends here"),
        };
        for worker in tied.iter().filter(|id| seen.workers.iter().all(|worker| worker.worker_id != **id)) {
            // What cannot be done now is done when the leases end.
            match self.queue.abandon(worker).await {
                Ok(0) => {}
                Ok(jobs) => tracing::info!(worker.id = worker, jobs, "its jobs go back: its process has ended"),
                Err(error) => tracing::warn!(worker.id = worker, %error, "its jobs cannot be given back yet"),
            }
        }
        metrics::led(&self.exposition, &self.settings.policy, &led);
        self.books.keep(&registry, term, &self.providers, &seen).await;
        self.tell(&registry, term, etas).await;
    }

    /// The workers on machines whose end this process sees for itself: one that is struck off has ended, whatever it had.
    fn tied(&self, seen: &Seen) -> Vec<String> {
        let is_tied = |name: &String| {
            let provider = seen.machines.get(name).and_then(|machine| self.providers.get(&machine.provider));
            provider.is_some_and(Provider::leaves_with_us)
        };
        let workers = seen.workers.iter().filter(|worker| is_tied(&worker.name));
        workers.map(|worker| worker.worker_id.clone()).collect()
    }

    /// Says how it is, when that has changed, and every few seconds.
    async fn tell(&mut self, registry: &Registry, term: Term, etas: Vec<Eta>) {
        let at_ms = now_ms();
        let (notices, changed) = self.notices.end_round(at_ms);
        if !changed && at_ms.saturating_sub(self.told_ms) < TELL_EVERY_MS {
            return;
        }
        let status = AutoscalerStatus { at_ms, notices, etas, decisions: self.notices.decisions() };
        match registry.put_autoscaler(term, &status).await {
            Ok(_) => self.told_ms = at_ms,
            Err(error) => tracing::debug!(%error, "how things are cannot be written down; tried again"),
        }
    }

    /// Ends what cannot outlive this process, and the lead.
    async fn leave(&mut self, lead: &Lead) {
        for provider in self.providers.iter() {
            provider.leave().await;
        }
        let Some(term) = lead.term() else { return lead.give_up().await };
        let registry = self.queue.registry();
        let hands = self.settings.hands(&registry, &Clock::Own, term, &self.providers, self.invites.as_deref());
        let forgetting = async {
            let workers = registry.workers().await?;
            for machine in registry.machines().await?.into_values() {
                if self.providers.get(&machine.provider).is_some_and(Provider::leaves_with_us) {
                    hands.forget(&machine.id, &workers).await?;
                }
            }
            Ok::<_, Stop>(())
        };
        if !matches!(timeout(LEAVE_LIMIT, forgetting).await, Ok(Ok(()))) {
            tracing::debug!("what has ended with us could not be struck off; the next one does it");
        }
        lead.give_up().await;
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some hours, never negative")]
fn millis(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1e3) as u64
}

/// Completes when work is ready that nobody waits for.
async fn wanted(heard: &mut mpsc::Receiver<Signal>) {
    loop {
        match heard.recv().await {
            Some(Signal::Unmet | Signal::Missed) => break,
            Some(_) => {}
            // Looking every few seconds goes on.
            None => std::future::pending().await,
        }
    }
    let until = Instant::now() + WAKE_PAUSE;
    loop {
        tokio::select! {
            more = heard.recv() => if more.is_none() { return },
            () = sleep_until(until) => return,
        }
    }
}
