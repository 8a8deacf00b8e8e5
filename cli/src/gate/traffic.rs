//! What a verdict does to the traffic of an endpoint.

use anyhow::Result;
use serde_json::Value;

use crate::client::Client;
use crate::endpoints::traffic::{self, Part};

/// All new jobs go to the version.
pub(super) async fn promote(client: &Client, endpoint: &str, version: u32) -> Result<Value> {
    traffic::set(client, endpoint, version.into(), 100).await
}

/// No new job goes to the version; `None` when none did.
pub(super) async fn roll_back(client: &Client, endpoint: &str, version: u32) -> Result<Option<Value>> {
    match without(&traffic::of(client, endpoint).await?, version.into()) {
        Some(target) => Ok(Some(traffic::set(client, endpoint, target, 100).await?)),
        None => Ok(None),
    }
}

/// The version that gets what this one had: the current one instead of a canary, the one before instead of the current one. `None`
/// when it has nothing, or is the first.
fn without(parts: &[Part], version: u64) -> Option<u64> {
    let current = parts.first()?.version;
    parts.iter().any(|part| part.version == version).then_some(())?;
    let target = if version == current { version - 1 } else { current };
    (target > 0).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_gives_its_jobs_back_to_the_one_that_had_them() {
        let parts = |versions: &[u64]| -> Vec<Part> {
            versions.iter().map(|version| Part { version: *version, percent: 50 }).collect()
        };
        for (has, version, expected) in [
            (&[7, 8][..], 8, Some(7)),
            (&[8], 8, Some(7)),
            (&[8, 9], 8, Some(7)),
            (&[7], 8, None),
            (&[1], 1, None),
            (&[], 1, None),
        ] {
            assert_eq!(without(&parts(has), version), expected, "{version} of {has:?}");
        }
    }
}
