use super::{CANCEL, unexpected};
use crate::clock::Clock;
use crate::connection::Connection;
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
    pub(crate) ids: &'a [JobId],
}

impl Cancel<'_> {
    pub(crate) async fn run(&self, connection: &Connection) -> Result<Vec<CancelAnswer>, Error> {
        let mut call = CANCEL.call(&[self.keys.root()]);
        call.arg(self.clock.script_arg()).arg(self.retention_ms).arg(self.tenant);
        for id in self.ids {
            call.arg(id.to_string());
        }
        let reply: Vec<String> = connection.eval_durably(&CANCEL, &call).await?;
        let answer = |word: &String| match word.as_str() {
            "cancelled" => Ok(CancelAnswer::Cancelled),
            "not_found" => Ok(CancelAnswer::NotFound),
            "quarantined" => Ok(CancelAnswer::Quarantined),
            ended => match ended.strip_prefix("ended ").and_then(JobState::from_word) {
                Some(state) => Ok(CancelAnswer::AlreadyEnded(state)),
                None => Err(unexpected(&CANCEL, &word)),
            },
        };
        reply.iter().map(answer).collect()
    }
}
