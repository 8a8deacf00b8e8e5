use super::finish::json;
use super::{DISCARD, QUARANTINE, READMIT, unexpected};
use crate::clock::Clock;
use crate::connection::Connection;
use crate::error::Error;
use crate::id::JobId;
use crate::job::{ErrorCode, JobError, JobState};
use crate::keys::Keys;
use crate::quarantine::{Discarded, Readmitted};

/// Call of `quarantine.lua`.
pub(crate) struct Put<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) clock: &'a Clock,
    pub(crate) id: &'a str,
    pub(crate) why: &'a str,
}

impl Put<'_> {
    pub(crate) async fn run(&self, connection: &Connection) -> Result<(), Error> {
        let mut call = QUARANTINE.call(&[self.keys.root()]);
        call.arg(self.clock.script_arg()).arg(self.id).arg(self.why);
        let _: Vec<String> = connection.eval(&QUARANTINE, &call).await?;
        Ok(())
    }
}

/// Call of `readmit.lua`.
pub(crate) struct Readmit<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) clock: &'a Clock,
    pub(crate) retention_ms: u64,
    pub(crate) id: JobId,
}

impl Readmit<'_> {
    pub(crate) async fn run(&self, connection: &Connection) -> Result<Readmitted, Error> {
        let mut call = READMIT.call(&[self.keys.root()]);
        call.arg(self.clock.script_arg()).arg(self.retention_ms).arg(self.id.to_string());
        let reply: Vec<String> = connection.eval_durably(&READMIT, &call).await?;
        match reply.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["ok", state] => JobState::from_word(state).map(Readmitted::Ok).ok_or_else(|| unexpected(&READMIT, &reply)),
            ["not_found"] => Ok(Readmitted::NotFound),
            ["unreadable", why] => Ok(Readmitted::Unreadable((*why).to_owned())),
            other => Err(unexpected(&READMIT, &other)),
        }
    }
}

/// Call of `discard.lua`.
pub(crate) struct Discard<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) clock: &'a Clock,
    pub(crate) retention_ms: u64,
    pub(crate) id: JobId,
    pub(crate) delete: bool,
}

impl Discard<'_> {
    pub(crate) async fn run(&self, connection: &Connection) -> Result<Discarded, Error> {
        let error =
            JobError::new(ErrorCode::Infra, "the job's record could not be read, and an operator ended the job");
        let mut call = DISCARD.call(&[self.keys.root()]);
        call.arg(self.clock.script_arg()).arg(self.retention_ms).arg(self.id.to_string()).arg(json(&error)?);
        call.arg(if self.delete { "1" } else { "" });
        let reply: Vec<String> = connection.eval_durably(&DISCARD, &call).await?;
        match reply.first().map(String::as_str) {
            Some("failed") => Ok(Discarded::Failed),
            Some("deleted") => Ok(Discarded::Deleted),
            Some("not_found") => Ok(Discarded::NotFound),
            _ => Err(unexpected(&DISCARD, &reply)),
        }
    }
}
