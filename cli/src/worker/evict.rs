//! `stoke worker evict`.

use anyhow::Result;
use clap::Args;
use reqwest::Method;
use serde_json::Value;
use stokehold_client::models::{Evicted, Eviction};

use crate::client::{Client, decode, segment};
use crate::failure::require;
use crate::{Global, output};

/// Evict a worker (takes effect within 5 s)
///
/// The worker's jobs go back to the queue without losing an attempt, and its reports are refused. It cannot join again
/// with the same name and join token; a rented machine cannot join again at all. Use --revoke-join-token if the host
/// may change its name.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke worker evict w_0123456789abcdef
  stoke worker evict w_0123456789abcdef --revoke-join-token
  stoke token revoke TOKEN --with-workers")]
pub(crate) struct EvictArgs {
    /// Worker id, from `stoke worker list`
    #[arg(value_name = "ID")]
    id: String,
    /// Also revoke its join token, so that no worker can join with it
    #[arg(long)]
    revoke_join_token: bool,
}

pub(crate) async fn run(global: &Global, args: EvictArgs) -> Result<()> {
    let client = Client::connect(global)?;
    let evicted = evict(&client, &args).await?;
    if global.json {
        return output::json(&evicted);
    }
    let evicted: Evicted = decode(&evicted)?;
    output::line(describe(&evicted))?;
    if !args.revoke_join_token
        && let Some(token) = &evicted.join_token
    {
        output::note(output::dim(format_args!(
            "Its join token is still valid; `stoke token revoke {token} --with-workers` revokes it and evicts every worker that joined with it."
        )));
    }
    Ok(())
}

async fn evict(client: &Client, args: &EvictArgs) -> Result<Value> {
    require!(args.id.starts_with("w_"), "not a worker id: it begins with w_ (see `stoke worker list`)");
    let request = serde_json::to_value(Eviction { revoke_join_token: Some(args.revoke_join_token) })?;
    client.once(Method::POST, &format!("/v1/workers/{}/evict", segment(&args.id)), Some(&request)).await
}

fn describe(evicted: &Evicted) -> String {
    let (name, id) = (output::text(evicted.name.as_str()), &evicted.id);
    let jobs = match evicted.requeued {
        0 => "it ran no job".to_owned(),
        jobs => format!("{} went back to the queue", output::counted(jobs.into(), "job")),
    };
    let token = if evicted.join_token_revoked { ", and its join token is revoked" } else { "" };
    format!("worker {name} ({id}) is evicted: {jobs}{token}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use axum::routing::post;
    use axum::{Json, Router};
    use serde_json::json;

    use super::*;
    use crate::stub;

    #[test]
    fn a_worker_is_evicted_by_its_id_and_works_without_a_verb_as_before() {
        for line in ["worker evict w_1", "worker evict w_1 --revoke-join-token", "worker --gateway http://a", "worker"]
        {
            assert!(stub::parse(line).is_ok(), "{line}");
        }
        assert!(stub::parse("worker evict").is_err());
    }

    #[tokio::test]
    async fn what_is_asked_for_is_sent_and_told() {
        let answer = async |Json(body): Json<Value>| {
            let revoked = body["revoke_join_token"].clone();
            Json(
                json!({"id": "w_1", "name": "desk", "requeued": 2, "join_token": "00ff", "join_token_revoked": revoked}),
            )
        };
        let client = stub::serve(Router::new().route("/v1/workers/w_1/evict", post(answer))).await;
        let args = |id: &str| EvictArgs { id: id.to_owned(), revoke_join_token: true };
        let evicted = evict(&client, &args("w_1")).await.unwrap();
        assert_eq!(
            describe(&decode(&evicted).unwrap()),
            "worker desk (w_1) is evicted: 2 jobs went back to the queue, and its join token is revoked"
        );
        assert!(evict(&client, &args("desk")).await.unwrap_err().to_string().contains("stoke worker list"));
    }
}
