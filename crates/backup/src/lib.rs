//! Backups of a whole installation: the content of Redis, in parts that are sealed before they leave this process, in a
//! bucket of yours.
//!
//! A backup is a folder: its parts, and a manifest that is written last, so that an incomplete backup has none.
//! [`create()`] creates one, [`Store::list`] finds them, [`restore()`] restores one into an empty queue and compares
//! the counts, and [`retention`] decides which ones to delete. `stokehold_queue::backup` defines what is copied from
//! Redis and how it becomes a queue again; results and packages are already in S3 and are not copied.

mod create;
mod error;
mod id;
mod key;
mod manifest;
mod part;
mod restore;
pub mod retention;
mod store;

pub use create::{Creation, create};
pub use error::Error;
pub use id::BackupId;
pub use key::BackupKeys;
pub use manifest::{Manifest, Part};
pub use restore::{Outcome, Restoration, restore};
pub use store::{Listed, Store};
