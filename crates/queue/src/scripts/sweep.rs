use super::finish::json;
use super::{EXPIRE, PROMOTE, REAP, Script, unexpected};
use crate::clock::Clock;
use crate::connection::Connection;
use crate::error::Error;
use crate::job::JobError;
use crate::keys::Keys;
use crate::queue::Swept;
use crate::retry::MAX_INFRA_ATTEMPTS;

/// Number of jobs per call, so that the script does not block Redis for long.
pub(crate) const SWEEP_MAX: u32 = 100;

/// Call of `promote.lua`.
pub(crate) struct Promote<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) clock: &'a Clock,
}

impl Promote<'_> {
    pub(crate) async fn run(&self, connection: &Connection) -> Result<Swept, Error> {
        let mut call = PROMOTE.call(&[self.keys.root()]);
        call.arg(self.clock.script_arg()).arg(SWEEP_MAX);
        swept(&PROMOTE, connection.eval(&PROMOTE, &call).await?)
    }
}

/// Call of `reap.lua`.
pub(crate) struct Reap<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) clock: &'a Clock,
    pub(crate) retention_ms: u64,
    /// Maximum number of jobs; those whose leases expired first come first.
    pub(crate) most: u32,
}

impl Reap<'_> {
    pub(crate) async fn run(&self, connection: &Connection) -> Result<Swept, Error> {
        let error = json(&JobError::worker_lost())?;
        let mut call = REAP.call(&[self.keys.root()]);
        call.arg(self.clock.script_arg())
            .arg(self.most.min(SWEEP_MAX))
            .arg(self.retention_ms)
            .arg(MAX_INFRA_ATTEMPTS)
            .arg(error);
        swept(&REAP, connection.eval(&REAP, &call).await?)
    }
}

/// Call of `expire.lua`.
pub(crate) struct Expire<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) clock: &'a Clock,
    pub(crate) retention_ms: u64,
}

impl Expire<'_> {
    pub(crate) async fn run(&self, connection: &Connection) -> Result<Swept, Error> {
        let mut call = EXPIRE.call(&[self.keys.root()]);
        call.arg(self.clock.script_arg()).arg(SWEEP_MAX).arg(self.retention_ms);
        call.arg(json(&JobError::queue_timeout())?).arg(json(&JobError::deadline())?);
        swept(&EXPIRE, connection.eval(&EXPIRE, &call).await?)
    }
}

fn swept(script: &Script, (jobs, next_due_ms): (u32, String)) -> Result<Swept, Error> {
    let next_due_ms = match next_due_ms.as_str() {
        "" => None,
        // A score is a double and can be formatted like 1.7e12.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "unix ms fits a double's 53 bits")]
        score => Some(score.parse::<f64>().map_err(|_| unexpected(script, &score))? as u64),
    };
    Ok(Swept { jobs, next_due_ms })
}
