//! Turns the folder of an endpoint into an archive and a deploy request.
//!
//! `stoke` and the Python SDK both use this crate, so that a folder becomes the same version with either. The steps:
//! [`Package::open`] reads the folder, the caller locks [`Package::requirements`] with uv and describes the handler
//! with Python ([`Package::describe_arguments`]), [`Package::pin`] resolves the weights, [`Package::pack`] writes the
//! archive, and [`Package::request`] builds the request.
//!
//! The crate opens no connection and runs no program: programs are the caller's, and HTTP is behind [`Host`].

mod archive;
mod cog;
mod describe;
mod error;
mod files;
mod kind;
mod manifest;
mod package;
mod request;
mod requirements;
mod weights;

pub use archive::Archive;
pub use describe::{Description, missing_module};
pub use error::{BoxError, Error};
pub use kind::Kind;
pub use manifest::{Overlay, WeightSource};
pub use package::Package;
pub use request::name_of;
pub use requirements::{Requirements, Unlocked};
pub use weights::{Host, HubFile, HubModel, Method, Pinned, Request, Response, forget_pins};
