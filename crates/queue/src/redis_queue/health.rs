//! The health of the Redis behind a queue: the boot checks, the regular inspection, and what follows for admission.

use super::RedisQueue;
use crate::error::Error;
use crate::gate::Gate;
use crate::redis_checks::{self, Durability, RedisChecks};
use crate::redis_health::{RedisHealth, Refusal, info_field};

/// How the Redis behind a queue was when it was last looked at.
#[derive(Debug, Clone)]
pub struct Health {
    /// Its last INFO.
    pub vitals: RedisHealth,
    /// How many replicas are waited for before anything is promised.
    pub replicas_to_wait: u32,
    /// Why no new work is taken; `None` when it is.
    pub refusal: Option<Refusal>,
}

impl RedisQueue {
    /// The boot checks: whether this Redis can provide what a 202 promises. With `allow_ephemeral`, a Redis that loses
    /// its data is accepted. From now on writes wait for the number of replicas in the result.
    ///
    /// # Errors
    /// [`Error::Unfit`] with what to change.
    pub async fn check_fitness(&self, allow_ephemeral: bool) -> Result<RedisChecks, Error> {
        let wanted = redis_checks::Wanted {
            class: self.config.durability,
            ephemeral: allow_ephemeral,
            replicas_to_wait: self.config.replicas_to_wait,
        };
        let fitness = redis_checks::check(&self.connection, &self.keys, wanted).await?;
        self.connection.commits().wait_for(fitness.replicas_to_wait);
        self.connection.load_scripts().await?;
        Ok(fitness)
    }

    /// Inspects Redis and opens or closes admission: every process that accepts new work calls this once per second.
    /// Returns whether the server was replaced or restarted; true at the first call.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: unknown, try again.
    pub async fn look(&self) -> Result<bool, Error> {
        let mut ask = redis::cmd("INFO");
        ask.arg(&RedisHealth::SECTIONS);
        let info: String =
            ask.query_async(&mut self.connection.redis()).await.map_err(Error::redis("inspect Redis"))?;
        let (vitals, commits) = (RedisHealth::parse(&info), self.connection.commits());
        // Once there is a replica, what is promised is on it, also when it goes: fewer are never waited for.
        let by_class = self.config.replicas_to_wait.is_none() && self.config.durability == Durability::Strict;
        if by_class && commits.replicas() == 0 && vitals.replicas > 0 {
            commits.wait_for(1);
        }
        Ok(self.pulse.note(vitals, commits.replicas()))
    }

    /// What the latest [`RedisQueue::look`] found.
    #[must_use]
    pub fn health(&self) -> Health {
        Health {
            vitals: self.pulse.vitals(),
            replicas_to_wait: self.connection.commits().replicas(),
            refusal: self.pulse.refusal(),
        }
    }

    /// Whether new work is taken.
    ///
    /// # Errors
    /// [`Error::Closed`] when not, with the reason.
    pub fn admits(&self) -> Result<(), Error> {
        self.pulse.refusal().map_or(Ok(()), |refusal| Err(Error::Closed(refusal.to_string())))
    }

    /// Bytes of this Redis that a tenant may take which has no limit of its own; `None` while there is enough for all.
    pub(crate) fn share_bytes(&self) -> Option<u64> {
        self.pulse.vitals().share_bytes()
    }

    /// Bytes that a tenant's jobs take, ended ones too, and its schedules and webhook messages, as they are counted
    /// against its share. Outputs that jobs have streamed in the last hours are counted on top of that.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn memory_of(&self, tenant: &str) -> Result<u64, Error> {
        let (jobs, beside): (Option<u64>, Option<u64>) = redis::pipe()
            .hget(self.keys.bytes(), Gate::Tenant(tenant.to_owned()).to_string())
            .hget(self.keys.beside(), tenant)
            .query_async(&mut self.connection.redis())
            .await
            .map_err(Error::redis("read the usage of a tenant"))?;
        Ok(jobs.unwrap_or(0) + beside.unwrap_or(0))
    }

    /// Asks whether Redis answers.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn ping(&self) -> Result<(), Error> {
        redis::cmd("PING").query_async(&mut self.connection.redis()).await.map_err(Error::redis("ping"))
    }

    /// Whether an API replica of the release before listens here: its name begins with `r_`.
    pub(crate) async fn has_older_replicas(&self) -> Result<bool, Error> {
        let older = self.keys.signal("r_*");
        let listening: Vec<String> = redis::cmd("PUBSUB")
            .arg("CHANNELS")
            .arg(older)
            .query_async(&mut self.connection.redis())
            .await
            .map_err(Error::redis("list the replicas"))?;
        Ok(!listening.is_empty())
    }

    /// Milliseconds since this Redis started, as far as it reports.
    pub(super) async fn uptime_ms(&self) -> Result<u64, Error> {
        let info: String = redis::cmd("INFO")
            .arg("server")
            .query_async(&mut self.connection.redis())
            .await
            .map_err(Error::redis("read the uptime of Redis"))?;
        Ok(info_field(&info, "uptime_in_seconds").and_then(|text| text.parse::<u64>().ok()).unwrap_or(0) * 1000)
    }
}
