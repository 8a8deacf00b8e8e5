//! Feedback on results, counted per endpoint version. The feedback itself is in the object store.

use std::collections::{BTreeMap, HashMap};

use redis::AsyncCommands;

use crate::connection::Connection;
use crate::error::Error;
use crate::id::JobId;
use crate::keys::RegistryKeys;
use crate::scripts;

/// The counted part of one job's feedback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verdict {
    /// Whether the result was useful, if given.
    pub accepted: Option<bool>,
    /// 1 to 5, if given.
    pub score: Option<u8>,
}

/// The totals of one endpoint version.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    /// The endpoint.
    pub endpoint: String,
    /// Version of the endpoint.
    pub version: u32,
    /// Number of jobs with feedback.
    pub rated: u64,
    /// Number of these with `accepted`.
    pub judged: u64,
    /// Number of these with `accepted` true.
    pub accepted: u64,
    /// Number of jobs with a score.
    pub scored: u64,
    /// The sum of the scores.
    pub score_sum: u64,
}

/// The counters. Clones share a connection.
#[derive(Clone)]
pub struct FeedbackCounters {
    connection: Connection,
    keys: RegistryKeys,
}

impl FeedbackCounters {
    pub(crate) fn new(connection: Connection, prefix: &str) -> Self {
        Self { connection, keys: RegistryKeys::new(prefix) }
    }

    /// Counts a verdict in place of the job's previous one, and returns whether there was one. The counters remember
    /// each verdict for 90 days; for later replacements the caller passes the `former` one.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the outcome is unknown; retry.
    pub async fn judge(
        &self,
        tenant: &str,
        id: JobId,
        (endpoint, version): (&str, u32),
        verdict: Verdict,
        former: Option<Verdict>,
    ) -> Result<bool, Error> {
        let (counters, judged) = (self.keys.feedback(tenant), self.keys.judged(id));
        scripts::Judge { counters: &counters, judged: &judged, endpoint, version, verdict, former }
            .run(&self.connection)
            .await
    }

    /// The totals of every endpoint version that has feedback, or of one endpoint's versions; by name, newest version
    /// first.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn tallies(&self, tenant: &str, endpoint: Option<&str>) -> Result<Vec<Tally>, Error> {
        let fields: HashMap<String, i64> = self
            .connection
            .redis()
            .hgetall(self.keys.feedback(tenant))
            .await
            .map_err(Error::redis("read the feedback"))?;
        let mut tallies: BTreeMap<(String, u32), Tally> = BTreeMap::new();
        for (field, count) in fields {
            let mut parts = field.splitn(3, ':');
            let (Some(name), Some(Ok(version)), Some(what)) =
                (parts.next(), parts.next().map(str::parse), parts.next())
            else {
                return Err(Error::Corrupt { key: format!("the feedback of {tenant}"), why: field });
            };
            if endpoint.is_some_and(|wanted| wanted != name) {
                continue;
            }
            let tally = tallies.entry((name.to_owned(), version)).or_insert_with(|| Tally {
                endpoint: name.to_owned(),
                version,
                ..Tally::default()
            });
            let count = u64::try_from(count).unwrap_or(0);
            match what {
                "rated" => tally.rated = count,
                "judged" => tally.judged = count,
                "accepted" => tally.accepted = count,
                "scored" => tally.scored = count,
                "score_sum" => tally.score_sum = count,
                // A field of a newer release.
                _ => {}
            }
        }
        let mut tallies: Vec<Tally> = tallies.into_values().collect();
        tallies.sort_by(|a, b| (&a.endpoint, b.version).cmp(&(&b.endpoint, a.version)));
        Ok(tallies)
    }
}
