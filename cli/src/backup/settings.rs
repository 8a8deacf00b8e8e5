//! Where the queue is, where backups go, and what they are sealed with: the API's own settings, and a few beside them.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use stokehold_api::Config;
use stokehold_backup::{BackupKeys, Store};
use stokehold_objects::{Objects, ObjectsConfig};
use stokehold_queue::RedisConfig;

/// What every verb takes.
#[derive(Args)]
pub(super) struct SettingsArgs {
    /// The API's settings as TOML; the environment overrides them, as it does for `stoke api`
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Where backups lie: a bucket of their own, better elsewhere than the results
    #[arg(long, value_name = "s3://BUCKET/PREFIX", global = true, env = "STOKE_BACKUP_URL")]
    to: Option<String>,
    /// The S3 server of that bucket [default: that of the API's bucket]
    #[arg(long, value_name = "URL", global = true, env = "STOKE_BACKUP_S3_ENDPOINT_URL")]
    endpoint_url: Option<String>,
    /// Its region [default: that of the API's bucket]
    #[arg(long, value_name = "REGION", global = true, env = "STOKE_BACKUP_S3_REGION")]
    region: Option<String>,
}

/// The variables that are never arguments: those are seen by whoever lists processes.
const KEY: &str = "STOKE_BACKUP_KEY";
const ACCESS_KEY_ID: &str = "STOKE_BACKUP_S3_ACCESS_KEY_ID";
const SECRET_ACCESS_KEY: &str = "STOKE_BACKUP_S3_SECRET_ACCESS_KEY";

/// What they mean.
pub(super) struct Settings {
    pub(super) redis: RedisConfig,
    pub(super) store: Store,
    /// The bucket of results.
    pub(super) results: Objects,
    keys: Option<BackupKeys>,
}

impl Settings {
    pub(super) async fn load(args: &SettingsArgs) -> Result<Self> {
        let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let file = args
            .config
            .as_deref()
            .map(|path| std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display())));
        let config = Config::load(file.transpose()?.as_deref(), |name| std::env::var(name).ok())?;
        let keys = variable(KEY).map(|text| BackupKeys::parse(&text)).transpose()?;
        let Some(url) = &args.to else {
            bail!("say where backups lie: STOKE_BACKUP_URL=s3://bucket/prefix, or --to");
        };
        let (bucket, prefix) = bucket(url)?;
        let mut there = ObjectsConfig { bucket: bucket.to_owned(), public_url: None, ..config.s3.clone() };
        if let Some(url) = &args.endpoint_url {
            there.endpoint_url = Some(url.clone());
        }
        if let Some(region) = &args.region {
            there.region.clone_from(region);
        }
        match (variable(ACCESS_KEY_ID), variable(SECRET_ACCESS_KEY)) {
            (Some(id), Some(secret)) => {
                there.access_key_id = Some(id);
                there.secret_access_key = Some(secret.into());
            }
            (None, None) => {}
            _ => bail!("{ACCESS_KEY_ID} and {SECRET_ACCESS_KEY} come together: set both, or neither"),
        }
        Ok(Self {
            redis: config.redis,
            store: Store::new(Objects::connect(there).await?, prefix),
            results: Objects::connect(config.s3).await?,
            keys,
        })
    }

    /// What backups are sealed with; a list needs none.
    pub(super) fn keys(&self) -> Result<&BackupKeys> {
        self.keys.as_ref().with_context(|| {
            format!("{KEY} is not set: `openssl rand -hex 32` makes one. Keep it, and not beside the backups")
        })
    }
}

/// Bucket and prefix of `s3://bucket/prefix`.
fn bucket(url: &str) -> Result<(&str, &str)> {
    let path = url.strip_prefix("s3://").unwrap_or_default();
    let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
    if bucket.is_empty() {
        bail!("STOKE_BACKUP_URL must be s3://bucket or s3://bucket/prefix, and not {url:?}");
    }
    Ok((bucket, prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_bucket_and_perhaps_a_prefix() {
        assert_eq!(bucket("s3://b/a/c").unwrap(), ("b", "a/c"));
        assert_eq!(bucket("s3://b").unwrap(), ("b", ""));
        for wrong in ["", "b/a", "https://b/a", "s3://", "s3:///a"] {
            assert!(bucket(wrong).is_err(), "{wrong}");
        }
    }
}
