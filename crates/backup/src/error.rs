//! The errors of backups, one variant for each action that an operator would take.

/// The error of backups.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Redis failed.
    #[error(transparent)]
    Queue(#[from] stokehold_queue::Error),
    /// S3 failed.
    #[error(transparent)]
    Objects(#[from] stokehold_objects::Error),
    /// A setting is invalid.
    #[error("{0}")]
    Setting(String),
    /// There is no complete backup with this name.
    #[error("there is no backup {0}; `stoke backup list` shows the existing ones")]
    NotFound(String),
    /// The key that sealed the backup is not configured.
    #[error("the backup was sealed with the key {wanted}, but STOKE_BACKUP_KEY holds {held}")]
    WrongKey {
        /// The fingerprint of that key.
        wanted: String,
        /// The fingerprints of the configured keys.
        held: String,
    },
    /// The backup differs from what was written.
    #[error("{object} is damaged: {why}; create another backup")]
    Damaged {
        /// The damaged object.
        object: String,
        /// Description of the damage.
        why: String,
    },
    /// A later release created the backup.
    #[error(
        "the backup has format {format} (release {release}), and this release reads up to {known}; restore it with that release"
    )]
    Newer {
        /// The format of the backup.
        format: u32,
        /// The release that created it.
        release: String,
        /// The newest format that this release reads.
        known: u32,
    },
    /// The target of the restore is not empty.
    #[error("the queue is not empty: it holds {}. Nothing was written; use an empty Redis, or another STOKE_REDIS_PREFIX", .0.join(", "))]
    Occupied(Vec<String>),
    /// There are fewer shards than the backup has.
    #[error(
        "the backup has {wanted} shards, but shards (STOKE_REDIS_SHARDS) is {here}; job ids name their shard, so the number can grow but not shrink"
    )]
    FewerShards {
        /// Shards of the backup.
        wanted: u8,
        /// Shards of the target.
        here: u8,
    },
    /// The scratch folder for parts failed.
    #[error("cannot {step} a part in the scratch folder (--scratch)")]
    Scratch {
        /// The step that failed.
        step: &'static str,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The system has no random numbers.
    #[error("the system's random generator failed")]
    Random,
}
