//! `stoke backup drill`: a test restore into a temporary Redis.

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;
use stokehold_backup::{BackupId, Outcome};
use stokehold_queue::RedisConfig;
use tokio::time::Instant;

use super::settings::Settings;
use super::show;
use crate::dev::redis_server::RedisServer;
use crate::dev::{Durability, provision};
use crate::{Global, output};

/// Test a backup: restore it into a temporary Redis and compare
///
/// The installation is not touched. The command fails if anything is missing: schedule it next to the backup, and
/// monitor it.
#[derive(Args)]
#[command(after_help = "Examples:\n  stoke backup drill\n  stoke backup drill --create")]
pub(super) struct DrillArgs {
    /// Backup id [default: the newest backup]
    #[arg(conflicts_with = "create")]
    id: Option<BackupId>,
    /// Create a backup first and restore that one
    #[arg(long)]
    create: bool,
    /// Check that every job result in S3 still exists
    #[arg(long)]
    verify_objects: bool,
}

pub(super) async fn run(global: &Global, settings: Settings, args: &DrillArgs) -> Result<()> {
    let began = Instant::now();
    let id = match args.create {
        true => Some(super::copy(&settings, super::PAUSE_MS, None).await?.id.parse::<BackupId>()?),
        false => args.id.clone(),
    };
    let copied = began.elapsed();
    let binary = provision::redis_binary().await?;
    let folder = tempfile::tempdir().context("cannot create a temporary folder for Redis")?;
    let password = hex::encode(rand::random::<[u8; 32]>());
    let server = RedisServer::start(&binary, folder.path(), Durability::Standard, &password).await?;
    // The temporary server has no replicas.
    let redis = RedisConfig { url: server.url.clone(), replicas_to_wait: Some(0), ..settings.redis.clone() };
    let began = Instant::now();
    let poured = super::pour(&settings, redis, id.as_ref(), args.verify_objects).await;
    let took = began.elapsed();
    server.stop().await;
    let outcome = poured?;
    let ms = |took: std::time::Duration| u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let (copy_ms, restore_ms) = (args.create.then(|| ms(copied)), ms(took));
    let passed = passed(&outcome);
    if global.json {
        let drill =
            json!({"passed": passed, "copy_ms": copy_ms, "restore_ms": restore_ms, "restore": show::outcome(&outcome)});
        output::json(&drill)?;
    } else {
        show::restored(&outcome)?;
        if let Some(copy_ms) = copy_ms {
            output::line(format_args!("created in {}", output::millis(copy_ms)))?;
        }
        output::line(format_args!("restored on {} in {}", binary.version, output::millis(restore_ms)))?;
    }
    if !passed {
        bail!("the drill failed: this backup does not restore everything");
    }
    Ok(())
}

/// Returns whether the drill passed. A consistent copy must also need no repair.
fn passed(outcome: &Outcome) -> bool {
    outcome.is_whole() && (outcome.restored.repaired.is_empty() || !outcome.manifest.is_exact())
}
