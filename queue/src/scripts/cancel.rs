use super::{CANCEL, Connection, unexpected};
use crate::clock::Clock;
use crate::error::Error;
use crate::id::JobId;
use crate::job::JobState;
use crate::keys::Keys;
use crate::queue::CancelAnswer;

/// Call of `cancel.lua`.
pub(crate) struct Cancel<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) clock: &'a Clock,
    pub(crate) retention_ms: u64,
    pub(crate) tenant: &'a str,
    pub(crate) id: JobId,
}

impl Cancel<'_> {
    pub(crate) async fn run(&self, connection: &Connection) -> Result<CancelAnswer, Error> {
        let mut call = CANCEL.call(&[self.keys.root()]);
        call.arg(self.clock.script_arg()).arg(self.retention_ms).arg(self.id.to_string()).arg(self.tenant);
        let reply: Vec<String> = connection.eval(&CANCEL, &call).await?;
        let words: Vec<&str> = reply.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["cancelled"] => Ok(CancelAnswer::Cancelled),
            ["not_found"] => Ok(CancelAnswer::NotFound),
            ["already_ended", state] => {
                JobState::from_word(state).map(CancelAnswer::AlreadyEnded).ok_or_else(|| unexpected(&CANCEL, &state))
            }
            other => Err(unexpected(&CANCEL, &other)),
        }
    }
}
