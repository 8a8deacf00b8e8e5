//! The health of the Redis behind a queue: the boot checks, the regular inspection, and its effect on admission.

use super::RedisQueue;
use crate::connection::Connection;
use crate::error::Error;
use crate::limit_scope::LimitScope;
use crate::redis_checks::{self, Durability, RedisChecks};
use crate::redis_health::{NoAdmission, RedisHealth, info_field};

/// The health of the Redis behind a queue at the last inspection.
#[derive(Debug, Clone)]
pub struct Health {
    /// The latest INFO of Redis.
    pub vitals: RedisHealth,
    /// Number of replicas that acknowledge a write before the reply.
    pub replicas_to_wait: u32,
    /// The reason why no new work is admitted; `None` if it is admitted.
    pub refusal: Option<NoAdmission>,
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

    /// Inspects Redis and opens or closes admission. Every process that accepts new work calls this once per second.
    /// Returns whether the server was replaced or restarted; true at the first call.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn look(&self) -> Result<bool, Error> {
        let mut ask = redis::cmd("INFO");
        ask.arg(&RedisHealth::SECTIONS);
        let info: String =
            ask.query_async(&mut self.connection.redis()).await.map_err(Error::redis("inspect Redis"))?;
        let (vitals, commits) = (RedisHealth::parse(&info), self.connection.commits());
        // Writes wait for a replica once there has been one, even if it goes away. The number never falls.
        let by_class = self.config.replicas_to_wait.is_none() && self.config.durability == Durability::Strict;
        if by_class && commits.replicas() == 0 && vitals.replicas > 0 {
            commits.wait_for(1);
        }
        Ok(self.pulse.note(vitals, commits.replicas()))
    }

    /// The result of the latest [`RedisQueue::look`].
    #[must_use]
    pub fn health(&self) -> Health {
        Health {
            vitals: self.pulse.vitals(),
            replicas_to_wait: self.connection.commits().replicas(),
            refusal: self.pulse.refusal(),
        }
    }

    /// Checks whether new work is admitted.
    ///
    /// # Errors
    /// [`Error::Closed`] with the reason if it is not.
    pub fn admits(&self) -> Result<(), Error> {
        self.pulse.refusal().map_or(Ok(()), |refusal| Err(Error::Closed(refusal.to_string())))
    }

    /// Memory that a tenant without a limit of its own may use, bytes; `None` while there is enough for all.
    pub(crate) fn share_bytes(&self) -> Option<u64> {
        self.pulse.vitals().share_bytes()
    }

    /// Memory that a tenant's jobs (including ended ones), schedules and webhook deliveries use, bytes, as counted
    /// towards its share. It includes outputs that jobs have streamed in the last hours.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn memory_of(&self, tenant: &str) -> Result<u64, Error> {
        let (jobs, beside): (Option<u64>, Option<u64>) = redis::pipe()
            .hget(self.keys.bytes(), LimitScope::Tenant(tenant.to_owned()).to_string())
            .hget(self.keys.beside(), tenant)
            .query_async(&mut self.connection.redis())
            .await
            .map_err(Error::redis("read the usage of a tenant"))?;
        Ok(jobs.unwrap_or(0) + beside.unwrap_or(0))
    }

    /// Checks whether Redis answers.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn ping(&self) -> Result<(), Error> {
        redis::cmd("PING").query_async(&mut self.connection.redis()).await.map_err(Error::redis("ping"))
    }

    /// Whether an API replica of the previous release listens here: its name begins with `r_`.
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

    /// Milliseconds since the server of this connection started, as far as it reports.
    pub(super) async fn uptime_ms(connection: &Connection) -> Result<u64, Error> {
        let info: String = redis::cmd("INFO")
            .arg("server")
            .query_async(&mut connection.redis())
            .await
            .map_err(Error::redis("read the uptime of Redis"))?;
        Ok(info_field(&info, "uptime_in_seconds").and_then(|text| text.parse::<u64>().ok()).unwrap_or(0) * 1000)
    }
}
