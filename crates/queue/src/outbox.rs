//! The outbox: webhook events that the scripts wrote together with the change they describe, and the record of each
//! delivery. A replica claims a delivery for a limited time and reports under the claim. If the replica dies, the
//! delivery becomes due for the others when the claim expires.

mod record;

use redis::AsyncCommands;

use crate::clock::Clock;
use crate::connection::Connection;
use crate::error::Error;
use crate::id::{JobId, nonce};
use crate::keys::Keys;
use crate::scripts::{HOOK_BODY, HOOK_CLAIM, HOOK_REPLAY, HOOK_REPORT};

pub use record::{
    Claimed, Claims, Delivery, DeliveryFilter, DeliveryPage, DeliveryState, Message, Outcome, Report, Try,
};
use record::{SHOWN, corrupt, decode, decode_claimed};

/// Maximum number of deliveries per claim and per report.
pub const CLAIM_MAX: usize = 100;

/// Number of tries that a record keeps: a little more than two full schedules. Older ones are dropped.
const TRIES_KEPT: u32 = 25;

/// Retention of a record after its end.
const KEPT_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// Retention of a record that the tenant's list had no room for. It is visible only by its id.
const UNLISTED_MS: u64 = 60 * 60 * 1000;

/// Maximum number of ids and of records that one list call reads, however few match.
const IDS_MAX: usize = 10_000;
const RECORDS_MAX: usize = 1_000;
const LIST_STEP: usize = 500;

/// The outbox. Clones share one connection.
#[derive(Clone)]
pub struct Outbox {
    connection: Connection,
    keys: Keys,
    clock: Clock,
}

impl Outbox {
    pub(crate) fn new(connection: Connection, keys: Keys, clock: Clock) -> Self {
        Self { connection, keys, clock }
    }

    /// Claims up to `most` due deliveries. Each becomes due again after `visibility_ms` unless it is reported by then.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; claimed deliveries become due again when the claim expires.
    pub async fn claim(&self, most: usize, visibility_ms: u64) -> Result<Claims, Error> {
        let claim = nonce();
        let mut call = HOOK_CLAIM.call(&[self.keys.root()]);
        call.arg(self.clock.script_arg()).arg(most.min(CLAIM_MAX)).arg(visibility_ms).arg(&claim);
        let reply: redis::Value = self.connection.eval_durably(&HOOK_CLAIM, &call).await?;
        let redis::Value::Array(reply) = reply else {
            return Err(Error::Corrupt { key: "the reply of hook_claim".to_owned(), why: format!("{reply:?}") });
        };
        let mut reply = reply.into_iter();
        let next_due: String = reply.next().map(read).transpose()?.unwrap_or_default();
        let mut deliveries = Vec::new();
        for row in reply {
            match read(row).and_then(|row: Vec<Option<String>>| decode_claimed(row, &claim)) {
                Ok(claimed) => deliveries.push(claimed),
                // One corrupt record must not block the others. Every claim returns and logs it again.
                Err(error) => tracing::error!(%error, "a webhook delivery cannot be read"),
            }
        }
        Ok(Claims { deliveries, next_due_ms: next_due.parse().ok() })
    }

    /// Fixes the content of a claimed delivery and returns it; `None` if the caller no longer has the claim.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn fix(&self, id: &str, claim: &str, message: &Message) -> Result<Option<Message>, Error> {
        let mut call = HOOK_BODY.call(&[self.keys.root()]);
        call.arg(id).arg(claim).arg(&message.body).arg(message.traceparent.as_deref().unwrap_or_default());
        let reply: Vec<String> = self.connection.eval(&HOOK_BODY, &call).await?;
        let [_ok, body, trace] = reply.as_slice() else { return Ok(None) };
        Ok(Some(Message { body: body.clone(), traceparent: Some(trace.clone()).filter(|trace| !trace.is_empty()) }))
    }

    /// Reports the outcomes of claimed deliveries. The result is `false` for a report whose claim the caller no longer
    /// had, which changes nothing.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry. A report that was already applied then returns `false`.
    pub async fn report(&self, reports: &[Report]) -> Result<Vec<bool>, Error> {
        if reports.is_empty() {
            return Ok(Vec::new());
        }
        let mut call = HOOK_REPORT.call(&[self.keys.root()]);
        call.arg(self.clock.script_arg()).arg(TRIES_KEPT).arg(KEPT_MS).arg(UNLISTED_MS);
        for report in reports {
            let (word, delay_ms) = match report.outcome {
                Outcome::Delivered => ("delivered", 0),
                Outcome::Retry { delay_ms } => ("retry", delay_ms),
                Outcome::PutOff { delay_ms } => ("put_off", delay_ms),
                Outcome::Exhausted => ("exhausted", 0),
                Outcome::Disabled => ("disabled", 0),
            };
            let tried = report.tried.as_ref().map(serde_json::to_string).transpose();
            let tried = tried.map_err(|error| corrupt(&report.id, error.to_string()))?.unwrap_or_default();
            call.arg(&report.id).arg(&report.claim).arg(word).arg(delay_ms).arg(tried);
        }
        let reply: Vec<String> = self.connection.eval(&HOOK_REPORT, &call).await?;
        Ok(reply.iter().map(|word| word == "ok").collect())
    }

    /// A tenant's delivery.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn get(&self, tenant: &str, id: &str) -> Result<Option<Delivery>, Error> {
        let found = self.read(&[id.to_owned()]).await?.pop().transpose()?.flatten();
        Ok(found.filter(|delivery| delivery.tenant == tenant))
    }

    /// The deliveries about the end of a job and the starts of this many attempts, if they were requested and are still
    /// stored.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn of_job(&self, job: JobId, attempts: impl Iterator<Item = u32>) -> Result<Vec<Delivery>, Error> {
        let mut ids: Vec<String> = attempts.map(|attempt| format!("msg_{job}_started_{attempt}")).collect();
        ids.push(format!("msg_{job}_completed"));
        Ok(self.read(&ids).await?.into_iter().filter_map(readable).collect())
    }

    /// One page of a tenant's deliveries, newest first. `cursor` is a page's `next_cursor`.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn list(
        &self,
        tenant: &str,
        filter: &DeliveryFilter,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<DeliveryPage, Error> {
        let limit = limit.max(1) as usize;
        let prefix = filter.id_prefix();
        let mut place = match cursor {
            Some(cursor) => self.after(tenant, cursor).await?,
            None => 0,
        };
        let (mut page, mut gone, mut ids_seen, mut records_seen) = (DeliveryPage::default(), Vec::new(), 0, 0);
        'pages: loop {
            let rows = self.ids(tenant, place).await?;
            let wanted: Vec<&(String, f64)> =
                rows.iter().filter(|(id, _)| prefix.as_ref().is_none_or(|prefix| id.starts_with(prefix))).collect();
            // Reads as many records at a time as the page can hold, without bodies.
            for part in wanted.chunks(limit) {
                let ids: Vec<String> = part.iter().map(|(id, _)| id.clone()).collect();
                records_seen += ids.len();
                for (row, delivery) in part.iter().zip(self.read(&ids).await?) {
                    if let Ok(None) = delivery {
                        gone.push(row.0.clone());
                    }
                    let Some(delivery) = readable(delivery) else { continue };
                    if filter.state.is_none_or(|state| state == delivery.state) {
                        page.deliveries.push(delivery);
                    }
                    if page.deliveries.len() == limit {
                        page.next_cursor = Some(cursor_of(row));
                        break 'pages;
                    }
                }
                if records_seen >= RECORDS_MAX {
                    page.next_cursor = part.last().map(|row| cursor_of(row));
                    break 'pages;
                }
            }
            ids_seen += rows.len();
            place += rows.len();
            if rows.len() < LIST_STEP {
                break;
            }
            if ids_seen >= IDS_MAX {
                page.next_cursor = rows.last().map(cursor_of);
                break;
            }
        }
        // The next page starts at the cursor, so its entry stays.
        gone.retain(|id| page.next_cursor.as_ref().is_none_or(|cursor| !cursor.ends_with(id)));
        self.forget(tenant, &gone).await?;
        Ok(page)
    }

    /// Makes a tenant's delivery due now, with the same id and body. `None` if it does not exist.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; a retry may send it once more.
    pub async fn replay(&self, tenant: &str, id: &str) -> Result<Option<Delivery>, Error> {
        let mut call = HOOK_REPLAY.call(&[self.keys.root()]);
        call.arg(self.clock.script_arg()).arg(tenant).arg(id);
        let reply: Vec<String> = self.connection.eval(&HOOK_REPLAY, &call).await?;
        if reply.first().is_some_and(|word| word == "ok") { self.get(tenant, id).await } else { Ok(None) }
    }

    /// The position after a cursor in the tenant's list. A cursor whose entry was trimmed is located by its time.
    async fn after(&self, tenant: &str, cursor: &str) -> Result<usize, Error> {
        let (score, id) = cursor.split_once('.').unwrap_or((cursor, ""));
        let (key, mut redis) = (self.keys.deliveries(tenant), self.connection.redis());
        let rank: Option<usize> = redis.zrevrank(&key, id).await.map_err(Error::redis("list webhook deliveries"))?;
        match rank {
            Some(rank) => Ok(rank + 1),
            None => redis
                .zcount(&key, score.parse::<u64>().unwrap_or(0), "+inf")
                .await
                .map_err(Error::redis("list webhook deliveries")),
        }
    }

    /// A range of the tenant's list, with times.
    async fn ids(&self, tenant: &str, place: usize) -> Result<Vec<(String, f64)>, Error> {
        redis::cmd("ZREVRANGE")
            .arg(self.keys.deliveries(tenant))
            .arg(place)
            .arg(place + LIST_STEP - 1)
            .arg("WITHSCORES")
            .query_async(&mut self.connection.redis())
            .await
            .map_err(Error::redis("list webhook deliveries"))
    }

    /// Removes ids without a record from the tenant's list.
    async fn forget(&self, tenant: &str, gone: &[String]) -> Result<(), Error> {
        if gone.is_empty() {
            return Ok(());
        }
        let forgotten: Result<u32, _> = self.connection.redis().zrem(self.keys.deliveries(tenant), gone).await;
        forgotten.map(|_| ()).map_err(Error::redis("list webhook deliveries"))
    }

    /// Reads the records with these ids, in order.
    async fn read(&self, ids: &[String]) -> Result<Vec<Result<Option<Delivery>, Error>>, Error> {
        let mut pipe = redis::pipe();
        for id in ids {
            pipe.hmget(self.keys.delivery(id), &SHOWN).zscore(self.keys.hooks(), id);
        }
        let rows: Vec<Option<redis::Value>> =
            self.connection.read_each(&mut pipe).await.map_err(Error::redis("read webhook deliveries"))?;
        let mut rows = rows.into_iter();
        let mut records = Vec::with_capacity(ids.len());
        for id in ids {
            let (Some(row), Some(score)) = (rows.next(), rows.next()) else { break };
            records.push(delivery(id, row, score));
        }
        Ok(records)
    }
}

/// Decodes a record and the time at which it is due.
fn delivery(id: &str, row: Option<redis::Value>, score: Option<redis::Value>) -> Result<Option<Delivery>, Error> {
    let row: Vec<Option<String>> = read(row.ok_or_else(|| corrupt(id, "it is not a record".to_owned()))?)?;
    let score: Option<f64> = score.map(read).transpose()?.flatten();
    if row.iter().all(Option::is_none) {
        return Ok(None);
    }
    decode(id, whole(score), row).map(Some)
}

/// A delivery of a list. A corrupt record is left out, so that it does not hide the others.
fn readable(read: Result<Option<Delivery>, Error>) -> Option<Delivery> {
    read.unwrap_or_else(|error| {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "a webhook delivery cannot be read; leaving it out of a list"
        );
        None
    })
}

/// Rounds a score to whole milliseconds.
fn whole(score: Option<f64>) -> Option<u64> {
    format!("{:.0}", score?).parse().ok()
}

fn read<T: redis::FromRedisValue>(value: redis::Value) -> Result<T, Error> {
    redis::from_redis_value(value).map_err(|error| corrupt("a reply", error.to_string()))
}

/// The cursor of the page after this row.
fn cursor_of((id, score): &(String, f64)) -> String {
    format!("{score:.0}.{id}")
}
