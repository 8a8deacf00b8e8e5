//! Endpoints: deploying and reading their versions, and what their jobs require.

pub(crate) mod catalog;
pub(crate) mod deploy;
pub(crate) mod needs;
mod openai_names;
mod options;
pub(crate) mod packages;
mod request;
pub(crate) mod requirement_set_routes;
pub(crate) mod requirement_sets;
pub(crate) mod requirements;
pub(crate) mod routes;
pub(crate) mod runner;
pub(crate) mod schema;
pub(crate) mod stats;
mod steps;
pub(crate) mod traffic;
pub(crate) mod undeploy;
mod view;
pub(crate) mod weights;
