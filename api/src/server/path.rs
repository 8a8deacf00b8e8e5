//! Path parameters. A parameter that cannot be parsed is answered like a missing resource.

use axum::extract::FromRequestParts;
use axum::extract::rejection::PathRejection;

use crate::error::Problem;

/// The parameters of a request's path.
#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Path), rejection(Problem))]
pub(crate) struct Path<T>(pub(crate) T);

impl From<PathRejection> for Problem {
    fn from(_: PathRejection) -> Self {
        Self::not_found("path")
    }
}
