use super::{FEEDBACK, unexpected};
use crate::connection::Connection;
use crate::error::Error;
use crate::feedback::Verdict;

/// Retention of a counted verdict, so that it can be replaced without the caller's help: 90 days.
const JUDGED_TTL_MS: u64 = 90 * 24 * 60 * 60 * 1000;

/// Call of `feedback.lua`.
pub(crate) struct Judge<'a> {
    pub(crate) counters: &'a str,
    pub(crate) judged: &'a str,
    pub(crate) endpoint: &'a str,
    pub(crate) version: u32,
    pub(crate) verdict: Verdict,
    pub(crate) former: Option<Verdict>,
}

impl Judge<'_> {
    /// Returns whether it replaced an earlier verdict.
    pub(crate) async fn run(&self, connection: &Connection) -> Result<bool, Error> {
        let accepted = |verdict: Verdict| verdict.accepted.map_or("", |accepted| if accepted { "1" } else { "0" });
        let score = |verdict: Verdict| verdict.score.map(|score| score.to_string()).unwrap_or_default();
        let mut call = FEEDBACK.call(&[self.counters, self.judged]);
        call.arg(JUDGED_TTL_MS).arg(format!("{}:{}:", self.endpoint, self.version));
        call.arg(accepted(self.verdict)).arg(score(self.verdict));
        call.arg(self.former.map(|former| format!("{},{}", accepted(former), score(former))).unwrap_or_default());
        let (word,): (String,) = connection.eval(&FEEDBACK, &call).await?;
        match word.as_str() {
            "new" => Ok(false),
            "replaced" => Ok(true),
            other => Err(unexpected(&FEEDBACK, &other)),
        }
    }
}
