//! The names of lanes.

use stokehold_queue::job::Priority;

/// The parts of a lane's name.
pub(crate) struct LaneParts<'a> {
    pub(crate) priority: Priority,
    /// The class of its jobs.
    pub(crate) class: u32,
    pub(crate) tenant: &'a str,
    pub(crate) endpoint: &'a str,
}

/// Parses a lane's name. Returns `None` when the text is not one.
pub(crate) fn parts_of_lane(lane: &str) -> Option<LaneParts<'_>> {
    let mut parts = lane.splitn(4, ':');
    let (priority, class, tenant, endpoint) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let priority = Priority::ALL.into_iter().find(|known| known.digit().to_string() == priority)?;
    Some(LaneParts { priority, class: class.parse().ok()?, tenant, endpoint })
}
