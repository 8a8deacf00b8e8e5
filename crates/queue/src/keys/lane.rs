//! The names of lanes.

use crate::job::{JobSpec, Priority};

/// The lane of a job.
#[must_use]
pub fn lane(spec: &JobSpec) -> String {
    format!("{}:{}:{}:{}", spec.priority.digit(), spec.class(), spec.tenant, spec.endpoint)
}

/// Splits the name of a lane into priority, class, tenant and endpoint.
pub(crate) fn parse_lane(lane: &str) -> Option<(Priority, u32, &str, &str)> {
    let mut parts = lane.splitn(4, ':');
    let digit: u8 = parts.next()?.parse().ok()?;
    let priority = Priority::ALL.into_iter().find(|priority| priority.digit() == digit)?;
    Some((priority, parts.next()?.parse().ok()?, parts.next()?, parts.next()?))
}
