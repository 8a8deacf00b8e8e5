//! From a configuration to a serving replica.

use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::http::{HeaderName, Method, header};
use stokehold_exposition::Exposition;
use stokehold_objects::{Error as ObjectsError, Objects};
use stokehold_queue::queue::Signal;
use stokehold_queue::{Error as QueueError, Fitness, Queue, Shards, nonce};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{Any, CorsLayer};

use crate::batches::Runner;
use crate::budgets::Keeper;
use crate::config::Config;
use crate::figures::Teller;
use crate::history::Sweeper;
use crate::maintenance::Maintenance;
use crate::observe::{self, REQUEST_ID};
use crate::recovery::Recovery;
use crate::schedules::Scheduler;
use crate::series;
use crate::serve::{self, Bounds};
use crate::settle::Settler;
use crate::state::App;
use crate::watch::Watch;
use crate::webhooks::deliver::Deliverer;
use crate::{dashboard, descriptors, error, gateway, metrics, routes};

/// A Redis that loads a long append-only file, or an S3 that starts beside us, gets this long.
const BOOT_MAX: Duration = Duration::from_secs(60);
const BOOT_PAUSE: Duration = Duration::from_millis(250);

/// How long one boot step may take before it is tried again.
const BOOT_STEP: Duration = Duration::from_secs(10);

/// Serves the API on `listener` until `shutdown`: checks what it stands on first, and refuses to start on a Redis that could lose
/// jobs.
///
/// # Errors
/// When Redis or the object store cannot be reached, or are unfit; the message says what to change.
pub async fn run(config: Config, listener: TcpListener, shutdown: CancellationToken) -> Result<()> {
    run_showing(config, Exposition::default(), listener, shutdown).await
}

/// [`run`] in a process of which other parts have something to show too.
///
/// # Errors
/// As [`run`].
pub async fn run_showing(
    config: Config,
    exposition: Exposition,
    listener: TcpListener,
    shutdown: CancellationToken,
) -> Result<()> {
    metrics::install();
    let replica = format!("r_{}", nonce());
    let (queue, fitness, heard) = queue(&config, &replica).await?;
    let objects = objects(&config).await?;
    let bounds = Bounds::of(descriptors::room_for(config.limits.connections));
    let app = App::start(config, (replica, heard), queue, objects, fitness.durability, exposition, shutdown.clone());
    let mut loops = JoinSet::new();
    loops.spawn(Maintenance::new(app.clone()).run(shutdown.clone()));
    loops.spawn(Sweeper::new(app.clone()).run(shutdown.clone()));
    loops.spawn(Settler::new(app.clone()).run(shutdown.clone()));
    loops.spawn(Teller::new(app.clone()).run(shutdown.clone()));
    loops.spawn(series::Keeper::new(app.clone()).run(shutdown.clone()));
    for shard in app.queue.all() {
        loops.spawn(Watch::new(app.clone(), shard.clone()).run(shutdown.clone()));
        loops.spawn(Recovery::new(app.clone(), shard.clone()).run(shutdown.clone()));
        loops.spawn(Deliverer::new(app.clone(), shard)?.run(shutdown.clone()));
        loops.spawn(Keeper::new(app.clone(), shard.clone()).run(shutdown.clone()));
        loops.spawn(Runner::new(app.clone(), shard.clone()).run(shutdown.clone()));
        loops.spawn(Scheduler::new(app.clone(), shard).run(shutdown.clone()));
    }
    let address = listener.local_addr().context("failed to read the listener's address")?;
    tracing::info!(%address, durability = fitness.durability.as_str(), replicas = fitness.replicas_to_wait, "the API serves");
    serve::serve(listener, self::app(app), bounds, shutdown).await;
    while let Some(ended) = loops.join_next().await {
        ended.context("a background loop panicked")?;
    }
    Ok(())
}

/// Every route, around a running replica. Needs no socket.
pub fn app(app: App) -> Router {
    Router::new()
        .merge(routes::router())
        .merge(gateway::router())
        .merge(dashboard::router())
        .fallback(error::no_route)
        .method_not_allowed_fallback(error::no_method)
        .layer(CatchPanicLayer::custom(error::panicked))
        .layer(cors())
        .layer(axum::middleware::from_fn(observe::observe))
        .with_state(app)
}

/// Pages of any origin may call: a bearer token, unlike a cookie, is never sent by itself. With a session's cookie `session.rs` turns away
/// those of another host, whose scripts are not allowed its header either.
fn cors() -> CorsLayer {
    let ours = ["idempotency-key", "prefer", "last-event-id"].map(HeaderName::from_static);
    CorsLayer::new()
        .allow_origin(Any)
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::DELETE])
        .allow_headers(
            [header::AUTHORIZATION, header::CONTENT_TYPE, REQUEST_ID].into_iter().chain(ours).collect::<Vec<_>>(),
        )
        .expose_headers([REQUEST_ID, header::RETRY_AFTER, HeaderName::from_static("stokehold-durability")])
        .max_age(Duration::from_secs(3600))
}

/// The queue, what it keeps, and what `replica` is told of it from now on.
async fn queue(config: &Config, replica: &str) -> Result<(Shards, Fitness, mpsc::Receiver<Signal>)> {
    let fit = || async {
        let queue = Shards::connect(config.redis.clone()).await?;
        let fitness = queue.check_fitness(config.ephemeral).await?;
        let heard = queue.listen(replica).await?;
        Ok((queue, fitness, heard))
    };
    let passing = |error: &QueueError| matches!(error, QueueError::Unavailable { .. });
    let (queue, fitness, heard) = patiently("Redis", fit, passing).await?;
    for note in &fitness.notes {
        tracing::warn!(note, "Redis can be used, but");
    }
    Ok((queue, fitness, heard))
}

async fn objects(config: &Config) -> Result<Objects> {
    let objects = Objects::connect(config.s3.clone()).await.context("failed to set up the S3 client")?;
    let passing = |error: &ObjectsError| matches!(error, ObjectsError::Unavailable { .. });
    patiently("S3", || objects.ensure_bucket(), passing).await?;
    Ok(objects)
}

/// Tries a boot step until it works, fails for good, or [`BOOT_MAX`] is over.
async fn patiently<T, E, F>(what: &str, step: impl Fn() -> F, passing: impl Fn(&E) -> bool) -> Result<T>
where
    F: Future<Output = Result<T, E>>,
    E: std::error::Error + Send + Sync + 'static,
{
    let deadline = Instant::now() + BOOT_MAX;
    loop {
        match timeout(BOOT_STEP, step()).await {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) if !passing(&error) || Instant::now() >= deadline => {
                return Err(error).with_context(|| format!("{what} cannot be used"));
            }
            Ok(Err(error)) => {
                tracing::warn!(what, error = &error as &dyn std::error::Error, "not ready yet, trying again");
            }
            Err(_) if Instant::now() >= deadline => anyhow::bail!("{what} does not answer"),
            Err(_) => tracing::warn!(what, "does not answer yet, trying again"),
        }
        sleep(BOOT_PAUSE).await;
    }
}
