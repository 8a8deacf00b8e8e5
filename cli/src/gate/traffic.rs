//! What a verdict does to the traffic of an endpoint.

use anyhow::Result;
use serde_json::Value;

use crate::client::Client;
use crate::endpoints::traffic;

/// All new jobs go to the version.
pub(super) async fn promote(client: &Client, endpoint: &str, version: u32) -> Result<Value> {
    traffic::set(client, endpoint, version.into(), 100).await
}

/// No new job goes to the version; `None` when none did, or nothing was current before it.
pub(super) async fn roll_back(client: &Client, endpoint: &str, version: u32) -> Result<Option<Value>> {
    match traffic::of(client, endpoint).await?.without(version.into()) {
        Some(target) => Ok(Some(traffic::set(client, endpoint, target, 100).await?)),
        None => Ok(None),
    }
}
