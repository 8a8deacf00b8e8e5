//! Paginated lists of the API.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{Client, query};

/// Maximum page size.
const PAGE: usize = 100;

/// Collects up to `limit` items from the member `member` of the pages of `path`.
pub async fn collect(
    client: &Client,
    path: &str,
    filter: &[(&str, Option<&str>)],
    member: &str,
    limit: u32,
) -> Result<Vec<Value>> {
    let (limit, path) = (limit as usize, query(path, filter));
    let (mut items, mut cursor) = (Vec::<Value>::new(), None::<String>);
    while items.len() < limit {
        let size = (limit - items.len()).min(PAGE).to_string();
        let asked = query(&path, &[("limit", Some(&size)), ("cursor", cursor.as_deref())]);
        let mut page = client.get(&asked).await?;
        let found = page[member].as_array_mut().map(std::mem::take);
        items.extend(found.with_context(|| {
            format!("the API's response has no {member:?}; check that the API is not an older release")
        })?);
        // An empty page is not always the last: the API bounds how many records it reads per page.
        cursor = match page["next_cursor"].take() {
            Value::String(next) if cursor.as_ref() != Some(&next) => Some(next),
            _ => break,
        };
    }
    items.truncate(limit);
    Ok(items)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::collections::HashMap;

    use axum::extract::Query;
    use axum::routing::get;
    use axum::{Json, Router};
    use serde_json::json;

    use super::*;
    use crate::stub;

    #[tokio::test]
    async fn pages_are_read_until_there_is_enough_or_no_more() {
        let list = |Query(asked): Query<HashMap<String, String>>| async move {
            assert_eq!(asked["state"], "failed");
            let from: u32 = asked.get("cursor").map_or(0, |cursor| cursor.parse().unwrap());
            let to = (from + asked["limit"].parse::<u32>().unwrap()).min(250);
            let next = (to < 250).then(|| to.to_string());
            Json(json!({"jobs": (from..to).collect::<Vec<_>>(), "next_cursor": next}))
        };
        let client = stub::serve(Router::new().route("/v1/jobs", get(list))).await;
        for (limit, expected) in [(20, 20), (100, 100), (230, 230), (1_000, 250)] {
            let filter = [("state", Some("failed")), ("endpoint", None)];
            let jobs = collect(&client, "/v1/jobs", &filter, "jobs", limit).await.unwrap();
            assert_eq!(jobs, (0..expected).map(Value::from).collect::<Vec<_>>());
        }
    }
}
