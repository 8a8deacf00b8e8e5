//! Room on cards: what is reserved for a model, and who makes way for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use stokehold_queue::gateway::CardReach;
use stokehold_queue::job::{ErrorCode, JobError};

use super::failure::{failure, infra};
use super::{Loaded, Model, NotReady, Pool, Using, lock};
use crate::ledger::{Claim, Idle, Reservation, Ticket};

/// How long a claim waits for the runs on its card to end.
const CLAIM_MAX: Duration = Duration::from_secs(120);

impl Pool {
    /// Reserves what the model needs, evicting idle runners until it fits. `None`: no card needed.
    pub(super) async fn make_room(&self, model: &Using, claim: Option<Claim>) -> Result<Option<Reservation>, NotReady> {
        let ledger = self.cards.ledger();
        let need_mib = model.need_mib(ledger);
        if need_mib == 0 {
            let mut idle = self.idle();
            while self.loaded() >= self.max_loaded && !idle.is_empty() {
                self.evict(&idle.remove(0)).await;
            }
            return Ok(None);
        }
        if !ledger.could_hold(need_mib, &model.cards) {
            let message = format!("it was seen to need {need_mib} MiB of a card, and the largest here has less");
            return Err(NotReady::Outgrown(failure(ErrorCode::OomGpu, message), need_mib));
        }
        if model.alone.load(Ordering::SeqCst) {
            return self.make_empty(model, need_mib).await.map(Some);
        }
        // It was held for the class that was known of it; if it needs more by now, it is as any other.
        if let Some(reservation) = claim.and_then(|claim| ledger.reserve_claimed(&claim, need_mib)) {
            return Ok(Some(reservation));
        }
        loop {
            if let Some(reservation) = ledger.reserve(need_mib, &model.cards) {
                return Ok(Some(reservation));
            }
            // Memory of a process that is gone counts as free when the card says so.
            if ledger.is_about_to_fit(need_mib, &model.cards) {
                if !self.cards.look_again().await {
                    return Err(NotReady::NoRoom);
                }
                continue;
            }
            let idle = self.idle();
            let values: Vec<Idle> = idle.iter().filter_map(|model| model.value()).collect();
            let victims = ledger.victims(need_mib, &model.cards, &values).ok_or(NotReady::NoRoom)?;
            if !self.evict_all(&idle, &victims).await {
                return Err(NotReady::NoRoom);
            }
        }
    }

    /// Claims a card for a model that is to have it for itself: nothing new begins there, what runs ends, idle models go.
    async fn make_empty(&self, model: &Using, need_mib: u64) -> Result<Reservation, NotReady> {
        let claim = self.clear(need_mib, &model.cards, Some(&model.0)).await.ok_or(NotReady::NoRoom)?;
        self.cards.ledger().reserve_claimed(&claim, need_mib).ok_or(NotReady::NoRoom)
    }

    /// Claims one of these cards and makes room there for so much. `None` when none can be had.
    pub(crate) async fn hold(&self, need_mib: u64, on: &[u32]) -> Option<Claim> {
        self.clear(need_mib, on, None).await
    }

    async fn clear(&self, need_mib: u64, on: &[u32], spared: Option<&Arc<Model>>) -> Option<Claim> {
        let ledger = self.cards.ledger();
        let claim = ledger.claim(need_mib, on, &self.ended)?;
        let until = Instant::now() + CLAIM_MAX;
        // A card that has failed meanwhile will never be empty.
        while Instant::now() < until && ledger.is_open(claim.card) {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if ledger.has_room_claimed(&claim, need_mib) {
                return Some(claim);
            }
            let is_spared = |other: &Arc<Model>| spared.is_some_and(|spared| Arc::ptr_eq(other, spared));
            let here = |other: &Arc<Model>| *lock(&other.on) == Some(claim.card) && !is_spared(other);
            let mut evicted = false;
            for other in self.known().into_iter().filter(here) {
                evicted = self.evict_if(&other, |other| other.runs.load(Ordering::SeqCst) == 0).await;
                if evicted {
                    break;
                }
            }
            if evicted || ledger.is_clearing(claim.card) {
                self.cards.look_again().await;
                continue;
            }
            tokio::select! {
                () = ended => {}
                () = tokio::time::sleep_until(until.into()) => {}
            }
        }
        None
    }

    /// Evicts what can still be. `false`: nothing could.
    async fn evict_all(&self, idle: &[Arc<Model>], victims: &[Ticket]) -> bool {
        let mut evicted = false;
        for model in idle.iter().filter(|model| model.ticket().is_some_and(|ticket| victims.contains(&ticket))) {
            evicted |= self.evict(model).await;
        }
        evicted
    }

    /// Gives memory back where cards are short of it, as far as idle runners hold any, and ends the runners on cards that have failed.
    pub(crate) async fn relieve(&self) {
        if self.cards.are_fenced() {
            for model in self.known() {
                let failed = |loaded: &&Loaded| loaded.card.is_some_and(|card| self.cards.fenced(card).is_some());
                // One that is loading there fails by itself.
                let runner = model
                    .loaded
                    .try_lock()
                    .ok()
                    .and_then(|loaded| Some(Arc::clone(&loaded.as_ref().filter(failed)?.runner)));
                if let Some(runner) = runner {
                    runner.kill().await;
                }
            }
        }
        for (card, short_mib) in self.cards.short() {
            let idle = self.idle();
            let values: Vec<Idle> = idle.iter().filter_map(|model| model.value()).collect();
            let victims = self.cards.ledger().relief(card, short_mib, &values);
            tracing::warn!(gpu.index = card, short_mib, evicting = victims.len(), "a card is short of memory");
            self.evict_all(&idle, &victims).await;
        }
    }

    /// `false`: it is in use again, or gone already.
    async fn evict(&self, model: &Model) -> bool {
        self.evict_if(model, |model| model.users.load(Ordering::SeqCst) == 0).await
    }

    async fn evict_if(&self, model: &Model, is_idle: impl Fn(&Model) -> bool) -> bool {
        let Ok(mut loaded) = model.loaded.try_lock() else { return false };
        if !is_idle(model) {
            return false;
        }
        let Some(idle) = loaded.take() else { return false };
        *lock(&model.on) = None;
        tracing::info!(endpoint.id = %model.spec.version.name, "idle runner evicted");
        idle.runner.stop().await;
        true
    }

    /// Loaded models that nobody uses, the longest unused first.
    fn idle(&self) -> Vec<Arc<Model>> {
        let mut idle: Vec<Arc<Model>> = self.known();
        idle.retain(|model| model.users.load(Ordering::SeqCst) == 0 && model.is_loaded());
        idle.sort_by_key(|model| *lock(&model.used));
        idle
    }

    fn loaded(&self) -> usize {
        self.known().iter().filter(|model| model.is_loaded()).count()
    }

    /// The largest VRAM class that could be loaded now, by card.
    pub(crate) fn reach(&self) -> Vec<CardReach> {
        let idle: Vec<Ticket> = self.idle().iter().filter_map(|model| model.ticket()).collect();
        self.cards.ledger().reach(&idle)
    }

    /// What a job is told that failed on this card: on one that has failed, it is the card's failure and not the model's.
    pub(crate) fn blamed(&self, error: JobError, card: Option<u32>) -> JobError {
        match card.and_then(|card| Some((card, self.cards.fenced(card)?))) {
            Some((card, why)) => {
                JobError { stderr: error.stderr, ..infra(format!("card {card} has failed ({why}): {}", error.message)) }
            }
            None => error,
        }
    }
}
