//! The follow-up of deletions. A replica that died after the registry was changed leaves jobs of deleted versions open
//! and objects stored; this duty ends and deletes them. It also ends the jobs that other replicas accepted before their
//! caches expired.

use std::time::Duration;

use stokehold_queue::registry::Deletion;
use stokehold_supervise::{BoxError, Duty};

use super::{Error, Subject, end, objects};
use crate::state::App;

/// Interval of the rounds, and the timeout of one.
const EVERY: Duration = Duration::from_secs(5);
const ROUND_MAX: Duration = Duration::from_secs(300);

/// Time for which a replica keeps the duty, milliseconds. Two replicas at once do no harm.
const ROLE_MS: u64 = 20_000;

/// Age at which a deletion is taken over from the replica that began it, milliseconds.
const TAKEN_AFTER_MS: u64 = 3_000;

/// Age at which no replica accepts jobs of the deleted versions any more, milliseconds: longer than they are cached
/// (endpoints/catalog.rs) and a request lasts.
const OVER_AFTER_MS: u64 = 180_000;

/// The follow-up loop.
pub(crate) struct FollowUp(pub(crate) App);

impl Duty for FollowUp {
    const NAME: &'static str = "deletions";
    const ROUND_TIMEOUT: Duration = ROUND_MAX;
    const INITIAL_DELAY: Duration = EVERY;
    const RETRY_DELAY: Duration = EVERY;
    const BLOCKS_READINESS: bool = false;
    /// The next round continues the work.
    const CANCEL_ON_SHUTDOWN: bool = true;

    async fn round(&mut self) -> Result<Duration, BoxError> {
        let app = &self.0;
        let Some(first) = app.db.queue.all().first() else { return Ok(EVERY) };
        if first.claim_role("deletions", &app.replica, ROLE_MS).await? {
            run_once(app).await?;
        }
        Ok(EVERY)
    }
}

/// Runs one round. A deletion that fails does not block the others.
async fn run_once(app: &App) -> Result<(), Error> {
    let now_ms = app.db.now_ms();
    for deletion in app.db.registry.deletions().await? {
        let age_ms = now_ms.saturating_sub(deletion.at_ms);
        let is_over = age_ms >= OVER_AFTER_MS;
        if !(is_over || !deletion.is_followed && age_ms >= TAKEN_AFTER_MS) {
            continue;
        }
        let followed = match follow(app, &deletion).await {
            Ok(()) if is_over => close(app, &deletion).await,
            Ok(()) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = followed {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(deletion.id, error, "cannot finish a deletion; the next round tries again");
        }
    }
    for (tenant, orphans) in app.db.registry.orphans(now_ms).await? {
        match objects::sweep(&app.db, &app.objects, &tenant, &orphans).await {
            Ok(0) => {}
            Ok(bytes) => tracing::info!(tenant, bytes, "deleted objects that no version names"),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(
                    tenant,
                    error,
                    "cannot delete objects that no version names; the next round tries again"
                );
            }
        }
    }
    Ok(())
}

/// Ends what would use the deleted versions, and records that.
pub(crate) async fn follow(app: &App, deletion: &Deletion) -> Result<(), Error> {
    let Deletion { tenant, endpoint, versions, .. } = deletion;
    // What submits to the name goes on if the endpoint has been deployed again.
    let is_whole = deletion.is_whole && app.db.registry.traffic(tenant, endpoint).await?.is_none();
    let subject = Subject::Versions { endpoint: endpoint.clone(), numbers: versions.clone(), is_whole };
    let ended = end::end(&app.db, tenant, &subject).await?;
    if ended != end::Ended::default() {
        let end::Ended { jobs, batches, schedules } = ended;
        tracing::info!(deletion.id, jobs, batches, schedules, "ended what used deleted versions");
    }
    Ok(app.db.registry.follow_deletion(deletion).await?)
}

/// Removes what was learned about a deleted endpoint, unless it has been deployed again, and the record of its deletion.
async fn close(app: &App, deletion: &Deletion) -> Result<(), Error> {
    let Deletion { tenant, endpoint, .. } = deletion;
    if deletion.is_whole && app.db.registry.traffic(tenant, endpoint).await?.is_none() {
        app.db.home(tenant).await?.forget_run_time(tenant, endpoint).await?;
        // A deploy that was overtaken by the deletion may have set it since.
        app.db.registry.set_floor(tenant, endpoint, 0, 0).await?;
    }
    Ok(app.db.registry.end_deletion(&deletion.id).await?)
}
