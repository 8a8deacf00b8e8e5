//! Readiness: checks at most once a second whether Redis and S3 answer.

use std::sync::Arc;
use std::time::Duration;

use stokehold_objects::Objects;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::database::Database;

/// Timeout of one check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);

/// Cache time of the result, so that any number of probes costs one check a second.
const CACHE_TTL: Duration = Duration::from_secs(1);

/// Checks whether Redis and S3 answer.
pub(crate) struct Readiness {
    db: Arc<Database>,
    objects: Arc<Objects>,
    latest: Mutex<Option<(Instant, Reachable)>>,
}

/// The services that a replica can reach.
#[derive(Clone, Copy)]
pub(crate) struct Reachable {
    pub(crate) redis: bool,
    pub(crate) s3: bool,
}

impl Readiness {
    pub(crate) fn new(db: Arc<Database>, objects: Arc<Objects>) -> Self {
        Self { db, objects, latest: Mutex::default() }
    }

    pub(crate) async fn reachable(&self) -> Reachable {
        let mut latest = self.latest.lock().await;
        match *latest {
            Some((at, reachable)) if at.elapsed() < CACHE_TTL => reachable,
            _ => {
                let (redis, s3) = tokio::join!(
                    timeout(CHECK_TIMEOUT, self.db.queue.ping()),
                    timeout(CHECK_TIMEOUT, self.objects.ping())
                );
                let reachable = Reachable { redis: matches!(redis, Ok(Ok(()))), s3: matches!(s3, Ok(Ok(()))) };
                *latest = Some((Instant::now(), reachable));
                reachable
            }
        }
    }
}
