//! Settings of backups: the settings of the API, the bucket of the backups and their encryption key.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use stokehold_api::Config;
use stokehold_backup::{BackupKeys, Store};
use stokehold_objects::{Objects, ObjectsConfig};
use stokehold_queue::RedisConfig;

/// Options of every subcommand.
#[derive(Args)]
pub(super) struct SettingsArgs {
    /// TOML file with the API's settings; environment variables override it, as for `stoke api`
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Bucket for backups; use a separate bucket, preferably with another provider than the results
    #[arg(long, value_name = "s3://BUCKET/PREFIX", global = true, env = "STOKE_BACKUP_URL")]
    to: Option<String>,
    /// S3 server of the backup bucket [default: the S3 server of the API]
    #[arg(long, value_name = "URL", global = true, env = "STOKE_BACKUP_S3_ENDPOINT_URL")]
    endpoint_url: Option<String>,
    /// Region of the backup bucket [default: the region of the API's bucket]
    #[arg(long, value_name = "REGION", global = true, env = "STOKE_BACKUP_S3_REGION")]
    region: Option<String>,
}

/// Variables without a command-line option, because any user of the machine can see the arguments of a process.
const KEY: &str = "STOKE_BACKUP_KEY";
const ACCESS_KEY_ID: &str = "STOKE_BACKUP_S3_ACCESS_KEY_ID";
const SECRET_ACCESS_KEY: &str = "STOKE_BACKUP_S3_SECRET_ACCESS_KEY";

/// The validated settings.
pub(super) struct Settings {
    pub(super) redis: RedisConfig,
    pub(super) store: Store,
    /// The bucket that holds results.
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
            bail!("no backup bucket given: set STOKE_BACKUP_URL=s3://bucket/prefix or use --to");
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
            _ => bail!("set both {ACCESS_KEY_ID} and {SECRET_ACCESS_KEY}, or neither"),
        }
        Ok(Self {
            redis: config.redis,
            store: Store::new(Objects::connect(there).await?, prefix),
            results: Objects::connect(config.s3).await?,
            keys,
        })
    }

    /// Returns the encryption keys. Listing backups does not need them.
    pub(super) fn keys(&self) -> Result<&BackupKeys> {
        self.keys.as_ref().with_context(|| {
            format!("{KEY} is not set: create a key with `openssl rand -hex 32`, and store it apart from the backups")
        })
    }
}

/// Splits `s3://bucket/prefix` into bucket and prefix.
fn bucket(url: &str) -> Result<(&str, &str)> {
    let path = url.strip_prefix("s3://").unwrap_or_default();
    let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
    if bucket.is_empty() {
        bail!("STOKE_BACKUP_URL must be s3://bucket or s3://bucket/prefix, not {url:?}");
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
