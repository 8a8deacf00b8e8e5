//! Estimated cost of a file of lines before it is submitted.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use stokehold_client::models::{BatchEstimate, Estimate, EstimateRequest, EstimateUnknown};

use crate::client::{Client, decode};
use crate::failure::{Failure, usage};
use crate::upload::lines::Lines;
use crate::{Global, money, output};

/// An estimate and its range, as text.
pub(super) fn words(estimate: &Estimate) -> String {
    let range = [estimate.low_usd_micros, estimate.high_usd_micros].map(money::dollars);
    let [low, high] = range.map(|text| text.trim_start_matches('$').to_owned());
    format!("about {} ({low} to {high})", money::dollars(estimate.usd_micros))
}

/// Implements `--estimate`: prints the estimate, or fails if there is none.
pub(super) async fn run(global: &Global, client: &Client, endpoint: Option<&str>, lines: &Lines) -> Result<()> {
    let Some(count) = lines.count().await? else {
        usage!("--estimate needs a file: lines from a pipe cannot be counted before they are sent");
    };
    let told =
        ask(client, endpoint.context(Failure::usage("--estimate needs an endpoint: name it with --endpoint"))?, count)
            .await?;
    if global.json {
        return output::json(&told);
    }
    match said(&decode(&told)?) {
        Ok(said) => output::line(said),
        Err(why) => bail!(why),
    }
}

/// Prints the estimate if there is one. A batch can be submitted without it.
pub(super) async fn say(client: &Client, endpoint: Option<&str>, lines: &Lines) {
    let (Some(endpoint), Ok(Some(count))) = (endpoint, lines.count().await) else { return };
    if let Ok(told) = ask(client, endpoint, count).await
        && let Ok(Ok(said)) = decode(&told).map(|told| said(&told))
    {
        output::note(said);
    }
}

async fn ask(client: &Client, endpoint: &str, count: u64) -> Result<Value> {
    let request = EstimateRequest { endpoint: Some(endpoint.to_owned()), line_count: Some(count), lines: None };
    Ok(client.post("/v1/batches/estimate", Some(&serde_json::to_value(request)?)).await?.1)
}

fn said(told: &BatchEstimate) -> Result<String, String> {
    if let Some(estimate) = &told.estimate {
        let (lines, jobs) = (output::counted(told.lines, "line"), output::counted(estimate.basis_jobs, "job"));
        return Ok(format!("{} for {lines}, based on {jobs} of the last week", words(estimate)));
    }
    Err(match told.estimate_unknown {
        Some(EstimateUnknown::NoPrice) => {
            "cannot estimate the cost: the workers that ran this endpoint have no price".to_owned()
        }
        Some(EstimateUnknown::Mixed) => "cannot estimate the cost: the lines are for several endpoints".to_owned(),
        _ => "cannot estimate the cost: no job of this endpoint ended in the last week".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use axum::routing::post;
    use axum::{Json, Router};
    use serde_json::json;

    use super::*;
    use crate::stub;

    fn told() -> Value {
        json!({"lines": 12_000, "estimate": {"usd_micros": 3_200_000, "low_usd_micros": 2_900_000, "high_usd_micros": 3_700_000,
            "per_line_usd_micros": 266.7, "basis_jobs": 5_000}})
    }

    #[test]
    fn an_estimate_is_said_with_its_range() {
        assert_eq!(
            said(&decode(&told()).unwrap()).unwrap(),
            "about $3.20 (2.90 to 3.70) for 12,000 lines, based on 5,000 jobs of the last week"
        );
        let none = json!({"lines": 5, "estimate": null, "estimate_unknown": "no_price"});
        assert!(said(&decode(&none).unwrap()).unwrap_err().contains("no price"));
    }

    #[tokio::test]
    async fn a_file_is_counted_and_asked_about() {
        let answer = |Json(body): Json<Value>| async move {
            assert_eq!(body, json!({"endpoint": "echo", "line_count": 3}));
            Json(told())
        };
        let client = stub::serve(Router::new().route("/v1/batches/estimate", post(answer))).await;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("in.jsonl");
        std::fs::write(&file, "{}\n{}\n{}").unwrap();
        let lines = Lines::open(&file).await.unwrap();
        assert_eq!(lines.count().await.unwrap(), Some(3), "the last line needs no end");
        ask(&client, "echo", 3).await.unwrap();
        std::fs::write(&file, "{}\n{}\n\n").unwrap();
        assert_eq!(lines.count().await.unwrap(), Some(2), "empty lines at the end are none");
        assert_eq!(Lines::Pipe(None).count().await.unwrap(), None);
    }
}
