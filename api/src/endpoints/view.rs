//! Views of lists of endpoints and of their versions.

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
