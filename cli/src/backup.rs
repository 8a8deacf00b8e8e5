//! `stoke backup`: encrypted backups of Redis in S3.

mod drill;
mod settings;
mod show;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use serde_json::json;
use stokehold_backup::{BackupId, Creation, Outcome, Restoration, create, restore};
use stokehold_queue::now_ms;

use self::settings::{Settings, SettingsArgs};
use crate::{Global, duration, logging, output, progress};

/// Default write pause. It is shorter than the API's Redis timeout (`limits.queue_timeout_ms`), so that no request
/// fails with 503.
const PAUSE_MS: u64 = 2_500;

/// Back up an installation to S3, and restore it
///
/// A backup contains everything in Redis: jobs with their small results, endpoints, schedules, limits, token hashes,
/// encrypted secrets, machines and costs. It is encrypted with STOKE_BACKUP_KEY before it leaves this process. Results,
/// files and packages are already in S3 and are not copied.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke backup create
  stoke backup list
  stoke backup drill

Keep these keys, and store them apart from the backups:
  STOKE_BACKUP_KEY    decrypts the backup
  STOKE_TOKEN_KEY     verifies tokens and, without STOKE_SECRET_KEYS, decrypts secrets
  STOKE_SECRET_KEYS   decrypts secrets, if set")]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    settings: SettingsArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Create(CreateArgs),
    /// List backups, newest first
    #[command(after_help = "Examples:\n  stoke backup list")]
    List,
    Restore(RestoreArgs),
    Drill(drill::DrillArgs),
}

/// Create a backup, then delete old ones
///
/// Keeps every backup of the last 24 hours, and the last backup of each day for 7 days, of each week for 5 weeks and of
/// each month for 12 months.
#[derive(Args)]
#[command(after_help = "Examples:
  stoke backup create --to s3://backups/stokehold
  stoke backup create --pause 0s --keep-all")]
struct CreateArgs {
    /// Longest time to pause writes to each shard for a consistent copy, up to 60s; 0s never pauses
    #[arg(long, value_name = "DURATION", default_value = "2500ms", value_parser = duration::millis(60_000))]
    pause: u64,
    /// Folder for encrypted parts before the upload [default: the system's temporary folder]
    #[arg(long, value_name = "FOLDER")]
    scratch: Option<PathBuf>,
    /// Do not delete older backups
    #[arg(long)]
    keep_all: bool,
}

/// Restore a backup into an empty Redis
///
/// Stop every API and autoscaler of this installation first. Ended jobs are restored unchanged. Open jobs are queued,
/// scheduled or blocked again, and leases from before the backup are void.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  stoke backup restore\n  stoke backup restore 20261123T050000Z-9f3c1d2e --verify-objects"
)]
struct RestoreArgs {
    /// Backup id [default: the newest backup]
    id: Option<BackupId>,
    /// Check that every job result in S3 still exists
    #[arg(long)]
    verify_objects: bool,
}

pub(crate) async fn run(global: &Global, args: BackupArgs) -> Result<()> {
    logging::to_stderr();
    let settings = Settings::load(&args.settings).await?;
    match args.verb {
        Verb::Create(args) => make(global, &settings, &args).await,
        Verb::List => show::list(global, settings.store.list().await?),
        Verb::Restore(args) => bring_back(global, settings, &args).await,
        Verb::Drill(args) => Box::pin(drill::run(global, settings, &args)).await,
    }
}

async fn make(global: &Global, settings: &Settings, args: &CreateArgs) -> Result<()> {
    let manifest = copy(settings, args.pause, args.scratch.clone()).await?;
    // The backup exists; what cannot be deleted now is deleted by the next run.
    let deleted = match args.keep_all {
        true => Vec::new(),
        false => settings.store.thin_out(now_ms()).await.unwrap_or_else(|error| {
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot delete old backups");
            Vec::new()
        }),
    };
    let deleted: Vec<&str> = deleted.iter().map(BackupId::as_str).collect();
    if global.json {
        return output::json(&json!({"created": show::manifest(&manifest), "deleted": deleted}));
    }
    show::created(&manifest)?;
    match deleted.len() {
        0 => Ok(()),
        gone => output::line(format_args!("deleted {gone} old backups: {}", deleted.join(", "))),
    }
}

/// Creates a backup, with a spinner.
async fn copy(settings: &Settings, pause_ms: u64, scratch: Option<PathBuf>) -> Result<stokehold_backup::Manifest> {
    let spinner = progress::spinner("copying");
    let (redis, store, keys) = (&settings.redis, &settings.store, settings.keys()?);
    let scratch = scratch.unwrap_or_else(std::env::temp_dir);
    let said = |copied: u64| {
        if copied.is_multiple_of(1_000) {
            spinner.set_message(format!("copied {} keys", output::count(copied)));
        }
    };
    let pause = (pause_ms > 0).then(|| Duration::from_millis(pause_ms));
    let made = create(Creation { redis, store, keys, pause, scratch: &scratch, progress: &said }).await;
    spinner.finish_and_clear();
    Ok(made?)
}

async fn bring_back(global: &Global, settings: Settings, args: &RestoreArgs) -> Result<()> {
    let redis = settings.redis.clone();
    let outcome = pour(&settings, redis, args.id.as_ref(), args.verify_objects).await?;
    if global.json {
        output::json(&show::outcome(&outcome))?;
    } else {
        show::restored(&outcome)?;
    }
    if !outcome.is_whole() {
        bail!("the backup was restored with differences; see above");
    }
    Ok(())
}

/// Restores a backup, with a spinner.
async fn pour(
    settings: &Settings,
    redis: stokehold_queue::RedisConfig,
    id: Option<&BackupId>,
    verify_objects: bool,
) -> Result<Outcome> {
    let spinner = progress::spinner("restoring");
    let said = |read: u64, all: u64| {
        spinner.set_message(format!("restored {} of {} keys", output::count(read), output::count(all)));
    };
    let (store, keys) = (&settings.store, settings.keys()?);
    let results = verify_objects.then_some(&settings.results);
    let done = restore(Restoration { redis, store, keys, id, results, progress: &said }).await;
    spinner.finish_and_clear();
    Ok(done?)
}
