//! Traffic changes after a verdict.

use anyhow::Result;
use serde_json::Value;

use crate::client::Client;
use crate::endpoint::traffic;

/// Sends all new jobs to the version.
pub(super) async fn promote(client: &Client, endpoint: &str, version: u32) -> Result<Value> {
    traffic::set(client, endpoint, version, 100).await
}

/// Sends no new jobs to the version; `None` if it gets none, or if there is no version to send them to.
pub(super) async fn roll_back(client: &Client, endpoint: &str, version: u32) -> Result<Option<Value>> {
    match traffic::without(&traffic::of(client, endpoint).await?, version) {
        Some(target) => Ok(Some(traffic::set(client, endpoint, target, 100).await?)),
        None => Ok(None),
    }
}
