//! Filters that select jobs, and bulk operations on them.

use std::collections::HashSet;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::{Map, Value, json};

use crate::client::Client;
use crate::submit::options::{self, Priority};

/// Maximum number of jobs per call.
const PAGE: u32 = 1_000;

/// Maximum number of calls per command. It allows ten million jobs.
const CALLS_MAX: u32 = 10_000;

/// Maximum number of consecutive calls that do nothing although the API reports more jobs.
const EMPTY_MAX: u32 = 100;

/// Filter options that several subcommands share.
#[derive(Args, Debug, Default, PartialEq)]
pub(crate) struct FilterArgs {
    /// Only jobs of this batch
    #[arg(long, value_name = "BATCH")]
    pub(crate) batch: Option<String>,
    /// Only jobs of this schedule
    #[arg(long, value_name = "SCHEDULE")]
    pub(crate) schedule: Option<String>,
    /// Only jobs of this priority
    #[arg(long, value_enum)]
    pub(crate) priority: Option<Priority>,
    /// Only jobs with this label; repeat to require several
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) metadata: Vec<String>,
}

impl FilterArgs {
    /// The filter as an API object, with the other given members.
    pub(crate) fn members(&self, others: &[(&str, Option<&str>)]) -> Result<Map<String, Value>> {
        let given = [
            ("batch", self.batch.as_deref()),
            ("schedule", self.schedule.as_deref()),
            ("priority", self.priority.map(Priority::word)),
        ];
        let members = others.iter().chain(&given);
        let mut filter: Map<String, Value> =
            members.filter_map(|(name, value)| Some(((*name).to_owned(), (*value)?.into()))).collect();
        if !self.metadata.is_empty() {
            filter.insert("metadata".to_owned(), options::metadata(&self.metadata)?.into());
        }
        Ok(filter)
    }
}

/// Cancels every job that `filter` matches. Calls `seen` with the number of jobs so far.
pub(crate) async fn cancel_all(client: &Client, filter: &Map<String, Value>, seen: impl Fn(u64)) -> Result<u64> {
    let (mut total, mut pages) = (0, Pages::default());
    loop {
        let answer = page(client, "/v1/jobs/cancel", &json!({"filter": filter, "limit": PAGE})).await?;
        let cancelled = answer["cancelled"].as_u64().context("the API's response has no number of cancelled jobs")?;
        total += cancelled;
        seen(total);
        if !pages.goes_on(&answer, cancelled == 0)? {
            return Ok(total);
        }
    }
}

/// Retries jobs that `filter` matches, at most `limit`. Returns `[old, new]` ids. Calls `seen` with the number of jobs
/// so far.
pub(crate) async fn retry_all(
    client: &Client,
    filter: &Map<String, Value>,
    same_version: bool,
    limit: u32,
    seen: impl Fn(u64),
) -> Result<Vec<[String; 2]>> {
    let (mut retried, mut made, mut pages) = (Vec::<[String; 2]>::new(), HashSet::new(), Pages::default());
    let mut left = limit;
    let body = |limit: u32| {
        let mut body = json!({"filter": filter, "limit": limit});
        // Sent only if set: an API of the previous release rejects the member.
        if same_version {
            body["same_version"] = true.into();
        }
        body
    };
    while left > 0 {
        let answer = page(client, "/v1/jobs/retry", &body(left.min(PAGE))).await?;
        let found = answer["retried"].as_array().context("the API's response has no list of retried jobs")?;
        let mut again = None;
        for pair in found {
            let id =
                |name: &str| pair[name].as_str().map(str::to_owned).context("a job in the API's response has no id");
            let (old, new) = (id("id")?, id("new_id")?);
            if made.contains(&old) {
                again = Some(old.clone());
            }
            made.insert(new.clone());
            retried.push([old, new]);
        }
        left = left.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
        seen(retried.len() as u64);
        // Jobs that fail as fast as they are retried would keep this loop and their workers busy forever.
        if let Some(id) = again {
            bail!(
                "stopped after {} jobs, because retried jobs are failing again, e.g. job {id}: see `stoke get {id}`",
                retried.len()
            );
        }
        if !pages.goes_on(&answer, found.is_empty())? {
            break;
        }
    }
    Ok(retried)
}

async fn page(client: &Client, path: &str, body: &Value) -> Result<Value> {
    Ok(client.post(path, Some(body)).await?.1)
}

/// Bounds of a loop that ends when the API reports no more jobs.
#[derive(Default)]
struct Pages {
    read: u32,
    empty: u32,
}

impl Pages {
    fn goes_on(&mut self, answer: &Value, was_empty: bool) -> Result<bool> {
        self.read += 1;
        self.empty = if was_empty { self.empty + 1 } else { 0 };
        let more = answer["more"] == true;
        ensure!(
            !more || (self.read < CALLS_MAX && self.empty < EMPTY_MAX),
            "the API still reports more jobs after {} calls without progress; run the same command again to continue",
            self.read
        );
        Ok(more)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::sync::{Arc, Mutex};

    use axum::routing::post;
    use axum::{Json, Router};

    use super::*;
    use crate::stub;

    /// A stub API that returns these pages in order and records the requests.
    async fn pages(path: &str, answers: Vec<Value>) -> (Client, Arc<Mutex<Vec<Value>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (seen, answers) = (asked.clone(), Arc::new(Mutex::new(answers.into_iter())));
        let answer = move |Json(body): Json<Value>| async move {
            seen.lock().unwrap().push(body);
            Json(answers.lock().unwrap().next().unwrap())
        };
        (stub::serve(Router::new().route(path, post(answer))).await, asked)
    }

    fn filter() -> Map<String, Value> {
        let args = FilterArgs { metadata: vec!["run=7".to_owned()], ..FilterArgs::default() };
        args.members(&[("endpoint", Some("echo")), ("state", None)]).unwrap()
    }

    #[tokio::test]
    async fn cancelling_goes_on_while_there_are_more() {
        let answers = [(1_000, true), (0, true), (17, false)].map(|(n, more)| json!({"cancelled": n, "more": more}));
        let (client, asked) = pages("/v1/jobs/cancel", answers.to_vec()).await;
        let seen = Mutex::new(Vec::new());
        let total = cancel_all(&client, &filter(), |total| seen.lock().unwrap().push(total)).await.unwrap();
        assert_eq!((total, seen.into_inner().unwrap()), (1_017, vec![1_000, 1_000, 1_017]));
        let body = json!({"filter": {"endpoint": "echo", "metadata": {"run": "7"}}, "limit": 1_000});
        assert_eq!(*asked.lock().unwrap(), vec![body; 3]);
    }

    #[tokio::test]
    async fn an_api_that_does_not_get_ahead_is_left() {
        let (client, _) = pages("/v1/jobs/cancel", vec![json!({"cancelled": 0, "more": true}); 100]).await;
        let said = cancel_all(&client, &filter(), |_| ()).await.unwrap_err().to_string();
        assert!(said.contains("after 100 calls"), "{said}");
    }

    fn retried(pairs: &[(&str, &str)], more: bool) -> Value {
        let pairs: Vec<Value> = pairs.iter().map(|(old, new)| json!({"id": old, "new_id": new})).collect();
        json!({"retried": pairs, "more": more})
    }

    #[tokio::test]
    async fn retrying_goes_on_while_there_are_more() {
        let answers = vec![retried(&[("1", "11"), ("2", "12")], true), retried(&[("3", "13")], false)];
        let (client, asked) = pages("/v1/jobs/retry", answers).await;
        let done = retry_all(&client, &filter(), false, 5_000, |_| ()).await.unwrap();
        assert_eq!(done, [["1", "11"], ["2", "12"], ["3", "13"]].map(|pair| pair.map(str::to_owned)));
        assert_eq!(asked.lock().unwrap().len(), 2);
    }

    #[tokio::test]
    async fn retrying_stops_at_the_limit() {
        let (client, asked) = pages("/v1/jobs/retry", vec![retried(&[("1", "11"), ("2", "12")], true)]).await;
        assert_eq!(retry_all(&client, &filter(), true, 2, |_| ()).await.unwrap().len(), 2);
        assert_eq!(asked.lock().unwrap()[0]["limit"], 2);
        assert_eq!(asked.lock().unwrap()[0]["same_version"], true);
    }

    #[tokio::test]
    async fn what_fails_again_is_not_chased() {
        let answers = vec![retried(&[("1", "11")], true), retried(&[("11", "21")], true)];
        let (client, _) = pages("/v1/jobs/retry", answers).await;
        let said = retry_all(&client, &filter(), false, 5_000, |_| ()).await.unwrap_err().to_string();
        assert!(said.contains("stoke get 11"), "{said}");
    }
}
