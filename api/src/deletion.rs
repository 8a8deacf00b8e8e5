//! Deleting: what depends on a resource, what happens to the jobs that need it, and the stored objects that only it
//! named. docs/how-to/delete.md describes the rules.

pub(crate) mod dependents;
pub(crate) mod duty;
pub(crate) mod end;
pub(crate) mod objects;
pub(crate) mod routes;
mod walk;

use stokehold_objects::Error as ObjectsError;
use stokehold_queue::Error as QueueError;

use crate::database;

/// Reasons for which a deletion, or a part of it, failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The queue or the registry failed.
    #[error(transparent)]
    Database(#[from] database::Error),
    /// A call without the timeout of a request failed.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// The object store failed.
    #[error(transparent)]
    Objects(#[from] ObjectsError),
    /// Objects could not be checked and deleted in time. The next round tries again.
    #[error("objects of deleted versions could not be deleted in time")]
    Timeout,
    /// The object is being deleted at this moment.
    #[error("an equal file of a deleted version is being deleted at this moment; try again")]
    Busy,
}

/// The resource to delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Subject {
    /// Versions of an endpoint.
    Versions {
        /// Name of the endpoint.
        endpoint: String,
        /// Numbers of the versions.
        numbers: Vec<u32>,
        /// Whether the endpoint is deleted with them.
        is_whole: bool,
    },
    /// An uploaded file.
    File {
        /// Id of the file.
        id: String,
    },
    /// A requirement set of the tenant.
    Requirements {
        /// Number of the set.
        number: u32,
    },
}
