//! What can go wrong, one variant per thing an operator would do about it.

/// The error of backups.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Redis.
    #[error(transparent)]
    Queue(#[from] stokehold_queue::Error),
    /// S3.
    #[error(transparent)]
    Objects(#[from] stokehold_objects::Error),
    /// A setting that means nothing.
    #[error("{0}")]
    Setting(String),
    /// There is no whole backup of this name.
    #[error("there is no backup {0}; `stoke backup list` shows the existing ones")]
    NotFound(String),
    /// The key that it was sealed with is not here.
    #[error("the backup was sealed with the key {wanted}, but STOKE_BACKUP_KEY holds {held}")]
    WrongKey {
        /// The fingerprint of its key.
        wanted: String,
        /// Those of the keys that are here.
        held: String,
    },
    /// It is not what was written.
    #[error("{object} is damaged: {why}; create another backup")]
    Damaged {
        /// Which object.
        object: String,
        /// What is wrong with it.
        why: String,
    },
    /// It was made by a later release.
    #[error(
        "the backup has format {format} (release {release}), and this release reads up to {known}; restore it with that release"
    )]
    Newer {
        /// Its format.
        format: u32,
        /// Who made it.
        release: String,
        /// The newest that is known here.
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
        /// As many as it has.
        wanted: u8,
        /// As many as there are here.
        here: u8,
    },
    /// The folder for parts that wait to be sent.
    #[error("cannot {step} a part in the scratch folder (--scratch)")]
    Scratch {
        /// What was being done.
        step: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// No random numbers.
    #[error("the system's random generator failed")]
    Random,
}
