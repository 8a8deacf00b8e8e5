//! Limit scopes, which a job passes one after the other, like `lua/lib/limits.lua` and `lua/lib/room.lua`, with the
//! same names. The Lua files have the explanations.

use std::collections::HashMap;

use stokehold_protocol::job::JobSpec;
use stokehold_queue::budgets::{Budget, Budgeted, FOREVER_MS, Stood};
use stokehold_queue::implementation::ScopeUsage;
use stokehold_queue::queue::{HeldBy, LimitScope, Limits};

use super::Inner;

pub(super) fn tenant_scope(tenant: &str) -> String {
    format!("t:{tenant}")
}

pub(super) fn endpoint_scope(tenant: &str, endpoint: &str) -> String {
    format!("e:{tenant}:{endpoint}")
}

pub(super) fn scopes_of(spec: &JobSpec) -> [String; 2] {
    [tenant_scope(&spec.tenant), endpoint_scope(&spec.tenant, &spec.endpoint)]
}

/// The limit scope of the job's concurrency key, and its maximum of running jobs.
pub(super) fn key_scope(spec: &JobSpec) -> Option<(String, u64)> {
    let concurrency = spec.concurrency.as_ref()?;
    Some((format!("k:{}:{}", spec.tenant, concurrency.key), u64::from(concurrency.max)))
}

/// Counters that are removed when they reach zero, so that a drained queue is empty.
#[derive(Debug, Default)]
pub(super) struct Counts(HashMap<String, u64>);

impl Counts {
    pub(super) fn of(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    pub(super) fn add(&mut self, name: &str, by: u64) {
        *self.0.entry(name.to_owned()).or_default() += by;
    }

    pub(super) fn take_one(&mut self, name: &str) {
        let left = self.of(name).saturating_sub(1);
        if left == 0 {
            self.0.remove(name)
        } else {
            self.0.insert(name.to_owned(), left)
        };
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, u64)> {
        self.0.iter().map(|(name, number)| (name, *number))
    }
}

/// The rate of a limit scope: milliseconds between starts, and the size of a burst.
fn rate(limits: &Limits) -> Option<(f64, f64)> {
    let rate = f64::from(limits.starts_per_minute?);
    Some((60_000.0 / rate, (rate / 60.0).floor().max(1.0)))
}

impl Inner {
    pub(super) fn limits_of(&self, scope: &str) -> Limits {
        self.limits.get(scope).copied().unwrap_or_default()
    }

    pub(super) fn weight(&self, tenant: &str) -> f64 {
        self.limits_of(&tenant_scope(tenant)).weight.filter(|weight| *weight > 0.0).unwrap_or(1.0)
    }

    /// The number of jobs that may start now, and when to check again if only time can let the next one start.
    pub(super) fn room(&self, scope: &str) -> (f64, Option<f64>) {
        let (limits, now) = (self.limits_of(scope), self.now as f64);
        if self.disabled.contains(scope) {
            return (0.0, None);
        }
        if let Some(until_ms) = self.paused.get(scope).filter(|until_ms| **until_ms > self.now) {
            return (0.0, Some(*until_ms as f64));
        }
        let places = limits.max_running.map_or(f64::INFINITY, |most| f64::from(most) - self.running.of(scope) as f64);
        let Some((every, burst)) = rate(&limits).filter(|_| places >= 1.0) else { return (places, None) };
        if limits.starts_per_minute == Some(0) {
            return (0.0, None);
        }
        let arrival = now.max(self.rates.get(scope).copied().unwrap_or(0.0));
        let allowed = ((now + burst * every - arrival) / every + 1e-6).floor();
        (places.min(allowed), Some((arrival + every - burst * every).ceil()))
    }

    pub(super) fn held_by(&self, spec: &JobSpec) -> Option<HeldBy> {
        if self.disabled.contains(&tenant_scope(&spec.tenant)) {
            return Some(HeldBy::Disabled);
        }
        let at_gate = LimitScope::of(spec).into_iter().find_map(|scope| {
            let name = scope.to_string();
            let arrival_ms = self.rates.get(&name).copied().unwrap_or(0.0);
            let stands = ScopeUsage { limits: self.limits_of(&name), running: self.running.of(&name), arrival_ms };
            HeldBy::at(scope, &stands, self.now)
        });
        at_gate.or_else(|| {
            let (key, max) = key_scope(spec)?;
            let most = spec.concurrency.as_ref()?.max;
            (self.running.of(&key) >= max).then_some(HeldBy::Key { most })
        })
    }

    pub(super) fn start_at(&mut self, scope: &str, jobs: u64) {
        self.running.add(scope, jobs);
        if let Some(rate) = self.limits_of(scope).starts_per_minute.filter(|rate| *rate > 0) {
            let arrival = (self.now as f64).max(self.rates.get(scope).copied().unwrap_or(0.0));
            self.rates.insert(scope.to_owned(), arrival + jobs as f64 * 60_000.0 / f64::from(rate));
        }
    }

    /// Blocks `member` until the limit scope has room: when one of its running jobs stops, or at `due`.
    pub(super) fn hold(&mut self, scope: &str, member: String, due: Option<f64>) {
        let now = self.now as f64;
        self.held.entry(scope.to_owned()).or_default().put_new(member, now);
        if let Some(due) = due {
            self.holds.put(scope.to_owned(), due);
        }
    }

    pub(super) fn limit(&mut self, scope: &str, limits: Option<&Limits>) {
        let per_day = |limits: Option<&Limits>| limits.and_then(|limits| limits.budget).map(|it| it.usd_micros_per_day);
        let (before, budget) = (per_day(self.limits.get(scope)), per_day(limits));
        if budget.unwrap_or(u64::MAX) > before.unwrap_or(u64::MAX) {
            self.paused.remove(scope);
        }
        if budget == Some(0) {
            self.paused.insert(scope.to_owned(), FOREVER_MS);
        }
        if budget.is_none() {
            self.stood.remove(scope);
        }
        match limits {
            Some(limits) => self.limits.insert(scope.to_owned(), *limits),
            None => self.limits.remove(scope),
        };
        self.rates.remove(scope);
        self.resume(scope);
    }

    pub(super) fn disable(&mut self, tenant: &str, disabled: bool) {
        let scope = tenant_scope(tenant);
        if disabled {
            self.disabled.insert(scope);
        } else {
            self.disabled.remove(&scope);
            self.resume(&scope);
        }
    }

    pub(super) fn budgets(&self, day: u32) -> Vec<Budgeted> {
        let budgeted = |(name, limits): (&String, &Limits)| {
            let (scope, budget) = LimitScope::parse(name).zip(limits.budget)?;
            let named = match &scope {
                LimitScope::Tenant(tenant) => format!("{tenant}|"),
                LimitScope::Endpoint { tenant, endpoint } => format!("{tenant}|{endpoint}|"),
            };
            let of_day = self.spent.get(&day).into_iter().flatten().filter(|(field, _)| field.starts_with(&named));
            let spent_usd_micros = of_day.map(|(_, [_, _, run, load, ..])| run + load).sum();
            let (stood, paused_until_ms) = (self.stood.get(name).copied(), self.paused.get(name).copied());
            Some(Budgeted { scope, budget, spent_usd_micros, stood, paused_until_ms })
        };
        let mut all: Vec<Budgeted> = self.limits.iter().filter_map(budgeted).collect();
        all.sort_by_key(|budgeted| budgeted.scope.to_string());
        all
    }

    pub(super) fn pause(&mut self, scope: &str, budget: &Budget, stood: &Stood) -> Option<Option<Stood>> {
        if self.limits_of(scope).budget != Some(*budget) {
            return None;
        }
        let until_ms = if budget.usd_micros_per_day == 0 { Some(FOREVER_MS) } else { stood.pause_until_ms() };
        if let Some(until_ms) = until_ms {
            self.paused.insert(scope.to_owned(), until_ms);
        }
        Some(self.stood.insert(scope.to_owned(), *stood))
    }
}
