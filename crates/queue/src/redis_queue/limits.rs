//! Limit scopes: sets and reads their limits, and reports why they block a job.

use super::RedisQueue;
use crate::budgets::{Budget, Stood};
use crate::error::Error;
use crate::job::JobSpec;
use crate::limit_scope::LimitScope;
use crate::limits::{HeldBy, Limits, ScopeUsage, Usage};
use crate::scripts;

impl RedisQueue {
    pub(super) async fn set_limits(&self, scope: &LimitScope, limits: Option<&Limits>) -> Result<(), Error> {
        let mut call = scripts::LIMIT.call(&[self.keys.root()]);
        let budget = limits.and_then(|limits| limits.budget).map_or(String::new(), |budget| budget.to_string());
        let limits = limits.filter(|limits| **limits != Limits { budget: limits.budget, ..Limits::default() });
        call.arg(scope.to_string()).arg(limits.map_or(String::new(), Limits::encode)).arg(budget);
        let _: Vec<String> = self.connection.eval(&scripts::LIMIT, &call).await?;
        Ok(())
    }

    pub(super) async fn read_usage(&self, scope: &LimitScope) -> Result<(Limits, Usage), Error> {
        let field = scope.to_string();
        let (limits, budget, open, running): (Option<String>, Option<String>, Option<u64>, Option<u64>) = redis::pipe()
            .hget(self.keys.limits(), &field)
            .hget(self.keys.budgets(), &field)
            .hget(self.keys.open(), &field)
            .hget(self.keys.running(), &field)
            .query_async(&mut self.connection.redis())
            .await
            .map_err(Error::redis("read limits"))?;
        let usage = Usage { open: open.unwrap_or(0), running: running.unwrap_or(0) };
        let budget = budget.and_then(|text| Budget::parse(&text));
        Ok((Limits { budget, ..limits.map_or_else(Limits::default, |text| Limits::decode(&text)) }, usage))
    }

    pub(super) async fn read_held_by(&self, spec: &JobSpec) -> Result<Option<HeldBy>, Error> {
        let limit_scopes = LimitScope::of(spec);
        let names = limit_scopes.each_ref().map(LimitScope::to_string);
        let key = spec.concurrency.as_ref();
        let key_scope = key.map(|concurrency| format!("k:{}:{}", spec.tenant, concurrency.key)).unwrap_or_default();
        type Read = (Vec<Option<String>>, Vec<Option<u64>>, Vec<Option<f64>>);
        let (limits, running, rates): Read = redis::pipe()
            .hmget(self.keys.limits(), &[&names[0], &names[1], &format!("d:{}", names[0])])
            .hmget(self.keys.running(), &[&names[0], &names[1], &key_scope])
            .hmget(self.keys.rate(), &names)
            .query_async(&mut self.connection.redis())
            .await
            .map_err(Error::redis("read what blocks a job"))?;
        if limits.get(2).is_some_and(Option::is_some) {
            return Ok(Some(HeldBy::Disabled));
        }
        let now_ms = self.config.clock.now_ms();
        for (n, scope) in limit_scopes.into_iter().enumerate() {
            let stands = ScopeUsage {
                limits: limits.get(n).and_then(Option::as_deref).map(Limits::decode).unwrap_or_default(),
                running: running.get(n).copied().flatten().unwrap_or(0),
                arrival_ms: rates.get(n).copied().flatten().unwrap_or(0.0),
            };
            if let Some(held) = HeldBy::at(scope, &stands, now_ms) {
                return Ok(Some(held));
            }
        }
        let running = running.get(2).copied().flatten().unwrap_or(0);
        let full = key.filter(|concurrency| running >= u64::from(concurrency.max));
        Ok(full.map(|concurrency| HeldBy::Key { most: concurrency.max }))
    }

    pub(super) async fn set_pause(
        &self,
        scope: &LimitScope,
        budget: &Budget,
        stood: &Stood,
    ) -> Result<Option<Option<Stood>>, Error> {
        let mut call = scripts::PAUSE.call(&[self.keys.root()]);
        call.arg(scope.to_string()).arg(budget.to_string()).arg(stood.to_string());
        call.arg(stood.pause_until_ms().map_or(String::new(), |until_ms| until_ms.to_string()));
        let reply: Vec<String> = self.connection.eval(&scripts::PAUSE, &call).await?;
        match reply.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["ok", before] => Ok(Some(Stood::parse(before))),
            ["stale"] => Ok(None),
            other => Err(scripts::unexpected(&scripts::PAUSE, &other)),
        }
    }

    pub(super) async fn set_disabled(&self, tenant: &str, disabled: bool) -> Result<(), Error> {
        let mut call = scripts::DISABLE.call(&[self.keys.root()]);
        call.arg(tenant).arg(u8::from(disabled));
        let _: Vec<String> = self.connection.eval(&scripts::DISABLE, &call).await?;
        Ok(())
    }
}
