//! `stoke backup`: what Redis holds, sealed in S3, and back.

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
use crate::{Global, logging, output, progress};

/// Shorter than the API waits for Redis (`limits.queue_timeout_ms`): nobody is told 503 because of it.
const PAUSE_MS: u64 = 2_500;

/// Back up an installation into S3, and restore it
///
/// A backup has what Redis has: jobs with their small results, endpoints, schedules, limits, token hashes, sealed secrets, machines, costs. It is
/// sealed with STOKE_BACKUP_KEY before it leaves this process. Results, files and packages lie in S3 already and are not copied.
#[derive(Args)]
#[command(after_help = "Keep three keys, and none of them beside the backups:
  STOKE_BACKUP_KEY    opens the backup
  STOKE_TOKEN_KEY     without it no token is known, and secrets stay sealed
  STOKE_SECRET_KEYS   opens secrets, where it is set")]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    settings: SettingsArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Create(CreateArgs),
    /// List the backups that there are, the newest first
    List,
    Restore(RestoreArgs),
    Drill(drill::DrillArgs),
}

/// Make a backup, then delete those that are too many
///
/// Kept are all of the last 24 hours, the last of each day for 7 days, of each week for 5 weeks, of each month for 12 months.
#[derive(Args)]
#[command(after_help = "Example, hourly by cron:
  7 * * * *  set -a; . /etc/stokehold/backup.env; stoke backup create")]
struct CreateArgs {
    /// How long writers of Redis may be made to wait for each shard, so that the copy is of one moment; 0: never
    #[arg(long, value_name = "MILLISECONDS", default_value_t = PAUSE_MS, value_parser = clap::value_parser!(u64).range(..=60_000))]
    pause_ms: u64,
    /// Where sealed parts wait until they are sent [default: the system's]
    #[arg(long, value_name = "FOLDER")]
    scratch: Option<PathBuf>,
    /// Delete no older backup
    #[arg(long)]
    keep_all: bool,
}

/// Restore a backup into a Redis that holds nothing
///
/// Every API and autoscaler of this installation must be stopped. What had ended is as it was; what was open is queued, scheduled or blocked
/// again, and no lease of before ends anything.
#[derive(Args)]
struct RestoreArgs {
    /// Its name [default: the newest]
    id: Option<BackupId>,
    /// Look for every result that jobs have in S3
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
    let manifest = copy(settings, args.pause_ms, args.scratch.clone()).await?;
    // The backup is there: what cannot be deleted now is deleted the next time.
    let deleted = match args.keep_all {
        true => Vec::new(),
        false => settings.store.thin_out(now_ms()).await.unwrap_or_else(|error| {
            tracing::warn!(error = &error as &dyn std::error::Error, "older backups were not thinned out");
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
        gone => output::line(format_args!("deleted {gone} older: {}", deleted.join(", "))),
    }
}

/// Makes a backup, with a spinner.
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
        bail!("the backup was restored, but not all is as it was: see above");
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
