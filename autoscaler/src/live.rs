//! The loop: look, decide, do. Everything that is decided is decided by [`crate::decide`], and [`chores`] says what follows from what was decided
//! before.

pub(crate) mod chores;
mod lead;
mod look;

use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use stokehold_queue::queue::{AUTOSCALER, Signal};
use stokehold_queue::{Queue, Shards};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::Policy;
use crate::apply::{Hands, Outcome, Stop, adopted};
use crate::bills::books::Books;
use crate::history::Recorder;
use crate::metrics;
use crate::mind::Mind;
use crate::name::Name;
use crate::observation::Observation;
use crate::observe::{self, SILENT_MS, Seen};
use crate::plan::{Action, Plan, Step, Withheld};
use crate::provider::{Invites, Provider};
use crate::providers::Providers;

use chores::{Chore, Patience, chores};
use lead::Lead;
use look::Eyes;

/// A wake is waited on for so long: more of them come at once, and one look is enough for all.
const WAKE_PAUSE: Duration = Duration::from_millis(100);

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
    /// What is so for longer is logged once.
    was_blind: bool,
    /// As last told.
    withheld: Vec<Discriminant<Withheld>>,
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
        let eyes = Eyes::new(queue.clone());
        Self {
            queue,
            providers,
            settings,
            eyes,
            mind,
            recorder,
            invites: None,
            books: Books::default(),
            was_blind: false,
            withheld: Vec::new(),
        }
    }

    /// With somebody who lets the workers of rented machines join.
    #[must_use]
    pub fn with_invites(mut self, invites: Arc<dyn Invites>) -> Self {
        self.invites = Some(invites);
        self
    }

    /// One look, and what would be done now. Does nothing.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn plan(&mut self) -> anyhow::Result<Round> {
        let look = self.eyes.look(&self.providers).await?;
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
        let mut lead = Lead::claim(self.queue.registry(), self.settings.holder.clone());
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
            if let Some(term) = lead.term() {
                let started = Instant::now();
                tokio::select! {
                    () = self.round(term) => metrics::ticked(started.elapsed()),
                    // A call under way is of unknown outcome, and is cleared up by the next one that leads.
                    () = shutdown.cancelled() => break,
                }
            }
        }
        self.leave(&lead).await;
        Ok(())
    }

    /// One round, whatever comes of it.
    async fn round(&mut self, term: stokehold_queue::registry::Term) {
        let look = match self.eyes.look(&self.providers).await {
            Ok(look) => look,
            Err(blind) => {
                metrics::blind("redis");
                if !std::mem::replace(&mut self.was_blind, true) {
                    tracing::warn!(
                        error = &blind as &dyn std::error::Error,
                        "nothing can be seen; machines stay as they are"
                    );
                }
                return;
            }
        };
        let was_blind = std::mem::replace(&mut self.was_blind, !look.blind.is_empty());
        for (provider, failure) in look.blind.iter().filter(|_| !was_blind) {
            tracing::warn!(provider, %failure, "a provider cannot be asked; its machines stay as they are");
        }
        look.blind.iter().for_each(|(provider, _)| metrics::blind(provider));
        let blind: Vec<&'static str> = look.blind.iter().map(|(provider, _)| *provider).collect();
        let mut seen = look.seen;
        let registry = self.queue.registry();
        let hands = Hands { registry: &registry, term, providers: &self.providers, invites: self.invites.as_deref() };
        if let Err(stop) = self.housekeep(&hands, &mut seen).await {
            return tracing::warn!(error = &stop as &dyn std::error::Error, "this round ends here");
        }
        self.books.keep(&registry, term, &self.providers, &seen).await;
        let observation = observe::observation(&seen);
        let plan = self.mind.plan(&observation);
        metrics::machines(&observation);
        if let Some(recorder) = &mut self.recorder
            && let Err(error) = recorder.note(&observation, &plan)
        {
            tracing::warn!(%error, "this round cannot be recorded");
        }
        tell_withheld(&mut self.withheld, &plan);
        for step in &plan.steps {
            if touches(&observation, step).is_some_and(|provider| blind.contains(&provider.as_str())) {
                tracing::info!(action = word(&step.action), reason = %step.reason, "left: its provider cannot be asked");
                continue;
            }
            match hands.step(&mut seen, step).await {
                Ok(outcome) => tell(step, &outcome),
                Err(stop) => return tracing::warn!(error = &stop as &dyn std::error::Error, "this round ends here"),
            }
        }
    }

    async fn housekeep(&self, hands: &Hands<'_>, seen: &mut Seen) -> Result<(), Stop> {
        self.adopt(hands, seen).await?;
        let policy = &self.settings.policy;
        let patience = Patience { drain_ms: millis(policy.drain_deadline_s), shun_ms: millis(policy.host_penalty_s) };
        for chore in chores(seen, patience, |name| self.providers.get(name)) {
            match chore {
                Chore::Note(machine) => {
                    hands.write(&machine).await?;
                    seen.machines.insert(machine.id.clone(), machine);
                }
                Chore::Forget { id, why } => {
                    tracing::info!(machine.id = id, "gone: {why}");
                    hands.forget(&id, &seen.workers).await?;
                    seen.machines.remove(&id);
                    seen.workers.retain(|worker| worker.name != id);
                }
                Chore::Ask { machine, wanted, why } => {
                    let id = machine.id.clone();
                    let (after, failure) = hands.ended(machine, wanted).await?;
                    match failure {
                        None => tracing::info!(machine.id = id, wanted = ?wanted, "{why}"),
                        Some(failure) => tracing::warn!(machine.id = id, wanted = ?wanted, %failure, "{why}"),
                    }
                    match after {
                        Some(machine) => seen.machines.insert(id, machine),
                        None => seen.machines.remove(&id),
                    };
                }
                Chore::Shun { host, until_ms } => {
                    hands.shun(&host, until_ms).await?;
                    seen.shunned.insert(host, until_ms);
                }
            }
        }
        Ok(())
    }

    /// Machines of ours that somebody else has started are ours from now on.
    async fn adopt(&self, hands: &Hands<'_>, seen: &mut Seen) -> Result<(), Stop> {
        let mut found = Vec::new();
        for worker in seen.workers.iter().filter(|worker| !seen.is_silent(worker)) {
            if seen.machines.contains_key(&worker.name) {
                continue;
            }
            let offer = self.providers.iter().find_map(|provider| Some((provider, provider.adopts(&worker.name)?)));
            found.extend(offer.map(|(provider, offer)| (worker.name.clone(), provider.name(), offer)));
        }
        for (id, provider, offer) in found {
            tracing::info!(machine.id = id, provider, "runs already: one of ours from now on");
            // Its worker was heard of before now.
            let machine = adopted(seen.now_ms.saturating_sub(SILENT_MS), &id, &offer);
            hands.write(&machine).await?;
            seen.machines.insert(id, machine);
        }
        Ok(())
    }

    /// Ends what cannot outlive this process, and the lead.
    async fn leave(&mut self, lead: &Lead) {
        for provider in self.providers.iter() {
            provider.leave().await;
        }
        let Some(term) = lead.term() else { return lead.give_up().await };
        let registry = self.queue.registry();
        let hands = Hands { registry: &registry, term, providers: &self.providers, invites: self.invites.as_deref() };
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

/// What would be done if it could, each time that this has changed.
fn tell_withheld(told: &mut Vec<Discriminant<Withheld>>, plan: &Plan) {
    let kinds: Vec<Discriminant<Withheld>> = plan.withheld.iter().map(discriminant).collect();
    if kinds != *told {
        plan.withheld.iter().for_each(|withheld| tracing::info!("withheld: {withheld}"));
        *told = kinds;
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

/// The provider whose machine or offer a step is about.
fn touches(seen: &Observation, step: &Step) -> Option<String> {
    let of_machine =
        |id: &Name| seen.machines.iter().find(|known| known.id == *id).map(|known| known.provider.to_string());
    match &step.action {
        Action::Rent { offer, .. } => {
            seen.offers.iter().find(|known| known.id == *offer).map(|known| known.provider.to_string())
        }
        action => action.machine().and_then(of_machine),
    }
}

pub(crate) fn word(action: &Action) -> &'static str {
    match action {
        Action::Rent { .. } => "rent",
        Action::Resume { .. } => "resume",
        Action::Drain { .. } => "drain",
        Action::Undrain { .. } => "undrain",
        Action::Stop { .. } => "stop",
        Action::Release { .. } => "release",
    }
}

/// One line for each decision: what, why, and what became of it.
fn tell(step: &Step, outcome: &Outcome) {
    let (action, reason) = (word(&step.action), &step.reason);
    let machine = step.action.machine().map(|machine| &**machine);
    let offer = match &step.action {
        Action::Rent { offer, .. } => Some(&**offer),
        _ => None,
    };
    let outcome_word = match outcome {
        Outcome::Done { machine: made } => {
            tracing::info!(machine.id = machine.unwrap_or(made), offer.id = offer, "{action}: {reason}");
            "done"
        }
        Outcome::AfterItsJobs => {
            tracing::info!(machine.id = machine, "{action}, after the jobs that it has: {reason}");
            "after_its_jobs"
        }
        Outcome::Failed(why) => {
            tracing::warn!(machine.id = machine, offer.id = offer, failure = why, "{action} failed: {reason}");
            "failed"
        }
        Outcome::LeftAlone(why) => {
            tracing::debug!(machine.id = machine, offer.id = offer, "{action} left, {why}: {reason}");
            "left"
        }
    };
    metrics::decided(action, &step.reason, outcome_word);
}
