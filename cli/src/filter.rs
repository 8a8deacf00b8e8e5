//! Filters that select jobs, and bulk operations on them.

use std::collections::HashSet;

use anyhow::{Result, bail, ensure};
use clap::Args;
use serde::Serialize;
use serde_json::Value;
use stokehold_client::models::{CancelledMany, JobFilter, ManyRequest, Priority, Retried, RetriedMany, RetryRequest};

use crate::client::{Client, decode};
use crate::output;
use crate::submit::options::{self, words};

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
    #[arg(long, value_parser = words::<Priority>())]
    pub(crate) priority: Option<Priority>,
    /// Only jobs with this label; repeat to require several
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) metadata: Vec<String>,
}

impl FilterArgs {
    /// The filter as an API object.
    pub(crate) fn job_filter(&self) -> Result<JobFilter> {
        Ok(JobFilter {
            batch: self.batch.clone(),
            schedule: self.schedule.clone(),
            priority: self.priority.clone(),
            metadata: options::labels(&self.metadata)?,
            ..JobFilter::default()
        })
    }
}

/// Cancels every job that `filter` matches. Calls `seen` with the number of jobs so far.
pub(crate) async fn cancel_all(client: &Client, filter: &JobFilter, seen: impl Fn(u64)) -> Result<u64> {
    let (mut total, mut pages) = (0, Pages::default());
    loop {
        let request = ManyRequest { filter: filter.clone(), limit: Some(PAGE) };
        let CancelledMany { cancelled, more } = decode(&page(client, "/v1/jobs/cancel", &request).await?)?;
        total += cancelled;
        seen(total);
        if !pages.goes_on(more, cancelled == 0)? {
            return Ok(total);
        }
    }
}

/// Retries jobs that `filter` matches, at most `limit`. Returns `[old, new]` ids. Calls `seen` with the number of jobs
/// so far.
pub(crate) async fn retry_all(
    client: &Client,
    filter: &JobFilter,
    same_version: bool,
    limit: u32,
    seen: impl Fn(u64),
) -> Result<Vec<[String; 2]>> {
    let (mut retried, mut made, mut pages) = (Vec::<[String; 2]>::new(), HashSet::new(), Pages::default());
    let mut left = limit;
    while left > 0 {
        let request = RetryRequest {
            filter: filter.clone(),
            limit: Some(left.min(PAGE)),
            // Sent only if set: an API of the previous release rejects the member.
            same_version: same_version.then_some(true),
        };
        let RetriedMany { retried: found, more } = decode(&page(client, "/v1/jobs/retry", &request).await?)?;
        let (count, mut again) = (found.len(), None);
        for Retried { id: old, new_id: new } in found {
            if made.contains(&old) {
                again = Some(old.clone());
            }
            made.insert(new.clone());
            retried.push([old, new]);
        }
        left = left.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
        seen(retried.len() as u64);
        // Jobs that fail as fast as they are retried would keep this loop and their workers busy forever.
        if let Some(id) = again {
            bail!(
                "stopped after {}, because retried jobs are failing again, e.g. job {id}: see `stoke get {id}`",
                output::counted(retried.len() as u64, "job")
            );
        }
        if !pages.goes_on(more, count == 0)? {
            break;
        }
    }
    Ok(retried)
}

async fn page(client: &Client, path: &str, request: &impl Serialize) -> Result<Value> {
    Ok(client.post(path, Some(&serde_json::to_value(request)?)).await?.1)
}

/// Bounds of a loop that ends when the API reports no more jobs.
#[derive(Default)]
struct Pages {
    read: u32,
    empty: u32,
}

impl Pages {
    fn goes_on(&mut self, more: bool, was_empty: bool) -> Result<bool> {
        self.read += 1;
        self.empty = if was_empty { self.empty + 1 } else { 0 };
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
    use serde_json::json;

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

    fn filter() -> JobFilter {
        let args = FilterArgs { metadata: vec!["run=7".to_owned()], ..FilterArgs::default() };
        JobFilter { endpoint: Some("echo".to_owned()), ..args.job_filter().unwrap() }
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
