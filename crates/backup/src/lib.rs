//! Backups of a whole installation: what Redis holds, in parts that are sealed before they leave this process, in a bucket of yours.
//!
//! A backup is a folder: its parts, and a manifest that is written last, so that half a backup is none. [`create()`] makes one,
//! [`Store::list`] finds them, [`restore()`] brings one back into a queue that holds nothing and counts what came, [`retention`] says
//! which are too many. What is copied of Redis, and how it becomes a queue again, is `stokehold_queue::backup`; results and packages
//! lie in S3 already and are not copied.

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
