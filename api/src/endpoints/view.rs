//! Lists of endpoints and of their versions as the API shows them.

use serde::Serialize;
use utoipa::ToSchema;

use super::options::VersionView;

/// Endpoints by name, each with its current version.
#[derive(Serialize, ToSchema)]
pub(crate) struct EndpointList {
    pub(super) endpoints: Vec<VersionView>,
}

/// The versions of an endpoint, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct VersionList {
    pub(super) versions: Vec<VersionView>,
}
