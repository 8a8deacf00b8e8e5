//! Frees requirement sets that nothing uses (`registry/requirements.rs` has their numbers). Records are read only if
//! there is a use that may have ended.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::AsyncCommands;
use redis::streams::StreamRangeReply;
use tokio::time::{Instant, sleep};

use crate::capability::parts_of;
use crate::error::Error;
use crate::job::JobState;
use crate::keys;
use crate::redis_queue::{RedisQueue, index_entry};
use crate::registry::RequirementUse;
use crate::scripts::Cursor;
use crate::shards::Shards;

/// Number of records that one step reads.
const STEP: usize = 500;

/// Pause after each step, as a multiple of its duration: a sweep takes at most a twentieth of Redis's time.
const REST: u32 = 19;
const REST_MAX: Duration = Duration::from_millis(100);

impl Shards {
    /// Ends the uses of requirement sets that have not been recorded again for `idle_ms`, and returns how many sets
    /// became free. A use continues while a version with traffic has the set, or a job that has not ended is of its
    /// class.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: safe to retry.
    pub async fn free_requirements(&self, idle_ms: u64) -> Result<u32, Error> {
        let registry = self.registry();
        let (mut idle, cutoff_ms) = registry.idle_requirements(idle_ms).await?;
        if idle.is_empty() {
            return Ok(0);
        }
        // All tenants are checked: the use by a tenant that the previous release serves is not recorded yet.
        let numbers: BTreeSet<u32> = idle.iter().map(|one| one.number).collect();
        let mut in_use = self.requirements_of_versions().await?;
        for shard in self.all() {
            let mut cursor = None;
            loop {
                let began = Instant::now();
                let (more, next) = shard.requirements_of_jobs(cursor.as_ref()).await?;
                in_use.extend(more);
                cursor = next;
                if cursor.is_none() {
                    break;
                }
                rest(began).await;
            }
        }
        in_use.retain(|one| numbers.contains(&one.number));
        let kept: Vec<RequirementUse> = in_use.iter().cloned().collect();
        registry.keep_requirements(&kept).await?;
        idle.retain(|one| !in_use.contains(one));
        // The script frees only sets whose use is still not recorded.
        registry.free_requirements(&idle, cutoff_ms).await
    }

    async fn requirements_of_versions(&self) -> Result<BTreeSet<RequirementUse>, Error> {
        let registry = self.registry();
        let numbered = registry.demands().await?;
        let mut found = BTreeSet::new();
        for tenant in registry.tenant_names().await? {
            let began = Instant::now();
            for demands in registry.routed_demands(&tenant).await? {
                let known = numbered.iter().find(|(number, known)| **number > 0 && **known == demands);
                found.extend(known.map(|(number, _)| RequirementUse { number: *number, tenant: tenant.clone() }));
            }
            rest(began).await;
        }
        Ok(found)
    }
}

async fn rest(began: Instant) {
    sleep((began.elapsed() * REST).min(REST_MAX)).await;
}

impl RedisQueue {
    /// The next step of a walk over all records: the requirement sets of jobs that have not ended, and where to
    /// continue; `None` at the end.
    async fn requirements_of_jobs(
        &self,
        cursor: Option<&Cursor>,
    ) -> Result<(BTreeSet<RequirementUse>, Option<Cursor>), Error> {
        let (mut redis, step) = (self.connection().long(), "read the requirement sets of jobs");
        let mut found = BTreeSet::new();
        let (tenant, after) = match cursor {
            Some(Cursor { tenant, entry }) => (tenant.clone(), entry.clone()),
            None => match self.next_tenant(None).await? {
                Some(tenant) => (tenant, String::new()),
                None => return Ok((found, None)),
            },
        };
        let from = if after.is_empty() { "-".to_owned() } else { format!("({after}") };
        let page: StreamRangeReply =
            redis.xrange_count(self.keys().index(&tenant), from, "+", STEP).await.map_err(Error::redis(step))?;
        let ids: Vec<_> = page.ids.iter().filter_map(index_entry).collect();
        let mut pipe = redis::pipe();
        for (_, id) in &ids {
            pipe.hmget(self.keys().job(*id), &["state", "lane", "spec"]);
        }
        let records: Vec<[Option<String>; 3]> = match ids.is_empty() {
            true => Vec::new(),
            false => pipe.query_async(&mut redis).await.map_err(Error::redis(step))?,
        };
        for [state, lane, spec] in records {
            if state.as_deref().and_then(JobState::from_word).is_some_and(JobState::is_terminal) {
                continue;
            }
            let lane = lane.as_deref().and_then(keys::parse_lane).map(|(_, class, ..)| parts_of(class).0);
            let steps = spec.as_deref().map(named_in).unwrap_or_default();
            let numbers = lane.into_iter().chain(steps).filter(|number| *number > 0);
            found.extend(numbers.map(|number| RequirementUse { number, tenant: tenant.clone() }));
        }
        let next = match page.ids.last() {
            Some(last) if page.ids.len() == STEP => Some(Cursor { tenant, entry: last.id.clone() }),
            _ => self.next_tenant(Some(&tenant)).await?.map(|tenant| Cursor { tenant, entry: String::new() }),
        };
        Ok((found, next))
    }

    /// The tenant with records after `after`, ordered by name.
    async fn next_tenant(&self, after: Option<&str>) -> Result<Option<String>, Error> {
        let from = after.map_or_else(|| "-".to_owned(), |after| format!("({after}"));
        let next: Vec<String> = self
            .connection()
            .redis()
            .zrangebylex_limit(self.keys().tenants(), from, "+", 0, 1)
            .await
            .map_err(Error::redis("list the tenants of a shard"))?;
        Ok(next.into_iter().next())
    }
}

/// The numbers of the requirement sets of a spec's steps. The spec is not parsed: a later step must keep its number
/// even if this release cannot read the rest.
fn named_in(spec: &str) -> Vec<u32> {
    let numbers = spec.split("\"demands\":").skip(1);
    let digits = numbers.map(|text| text.split(|sign: char| !sign.is_ascii_digit()).next().unwrap_or_default());
    digits.filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::named_in;

    #[test]
    fn the_steps_of_a_spec_name_their_requirement_sets() {
        let spec = r#"{"version":1,"metadata":{"demands":"9"},"steps":[{"demands":12,"name":"a"},{"name":"b"},{"demands":3}]}"#;
        assert_eq!(named_in(spec), [12, 3]);
        assert!(named_in(r#"{"version":1}"#).is_empty());
    }
}
