//! The names of lanes.

use stokehold_queue::job::Priority;

/// A lane's name, taken apart.
pub(crate) struct LaneParts<'a> {
    pub(crate) priority: Priority,
    /// The class of its jobs.
    pub(crate) class: u32,
    pub(crate) tenant: &'a str,
    pub(crate) endpoint: &'a str,
}

/// Takes a lane's name apart; `None` for what is none.
pub(crate) fn parts_of_lane(lane: &str) -> Option<LaneParts<'_>> {
    let mut parts = lane.splitn(4, ':');
    let (priority, class, tenant, endpoint) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let priority = Priority::ALL.into_iter().find(|known| known.digit().to_string() == priority)?;
    Some(LaneParts { priority, class: class.parse().ok()?, tenant, endpoint })
}
