//! GPU workers: the gateway that they call, what they offer and are advised to load, and the machines that they run on.

pub(crate) mod archives;
pub(crate) mod capacity;
pub(crate) mod evicted;
pub(crate) mod fleet;
pub(crate) mod fleet_routes;
pub(crate) mod gateway;
pub(crate) mod lease_polls;
pub(crate) mod readings;
pub(crate) mod rented;
pub(crate) mod routes;
pub(crate) mod warm_placement;
