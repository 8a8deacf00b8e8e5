//! GPU workers: the gateway that they call, their offers, the models that they are advised to load, and the instances
//! on which they run.

pub(crate) mod archives;
pub(crate) mod capacity;
pub(crate) mod coming;
pub(crate) mod evicted;
pub(crate) mod fleet;
pub(crate) mod fleet_routes;
pub(crate) mod gateway;
pub(crate) mod lease_polls;
pub(crate) mod readings;
pub(crate) mod rented;
pub(crate) mod routes;
pub(crate) mod warm_placement;
