//! Startup of a replica: from a configuration to a server.

use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::http::{HeaderName, Method, header};
use stokehold_metrics::Metrics;
use stokehold_objects::{Error as ObjectsError, Objects};
use stokehold_queue::queue::Signal;
use stokehold_queue::{Error as QueueError, Queue, RedisChecks, Shards, nonce};
use stokehold_supervise::{Backoff, Supervisor};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{Any, CorsLayer};

use crate::batches::Runner;
use crate::config::Config;
use crate::costs::budgets::Keeper;
use crate::dashboard::series;
use crate::deletion::duty::FollowUp;
use crate::endpoints::requirement_sets;
use crate::history::Sweeper;
use crate::maintenance::{Expire, Promote, Reap, Upkeep};
use crate::metrics::cluster::ClusterMetrics;
use crate::openai::expiry::FileExpiry;
use crate::pipelines::Settler;
use crate::recovery::Recovery;
use crate::redis_watch::Watch;
use crate::schedules::Scheduler;
use crate::server::observe;
use crate::server::observe::REQUEST_ID;
use crate::server::serve::{Bounds, Server};
use crate::server::starting;
use crate::signals::Signals;
use crate::state::App;
use crate::tenants::{audit, token_last_used, turns};
use crate::traces::context::CALLED;
use crate::traces::export;
use crate::webhooks::deliver::Deliverer;
use crate::workers::gateway;
use crate::workers::gateway::output_relay::REPLICA_PREFIX;
use crate::{dashboard, descriptors, error, metrics, openai, routes};

/// Time limit for the boot steps. A Redis may load a long append-only file first, and an S3 may be starting too.
const BOOT_MAX: Duration = Duration::from_secs(60);
const BOOT_PAUSE: Duration = Duration::from_millis(250);

/// Timeout of one attempt of a boot step.
const BOOT_STEP: Duration = Duration::from_secs(10);

/// Serves the API on `listener` until `shutdown`. Checks Redis and the object store first, and refuses to start on a
/// Redis that could lose jobs.
///
/// # Errors
/// If Redis or the object store cannot be reached or is unsuitable; the message contains the remedy.
pub async fn run(config: Config, listener: TcpListener, shutdown: CancellationToken) -> Result<()> {
    run_showing(config, Metrics::default(), listener, shutdown).await
}

/// [`run`] in a process whose other parts export metrics too.
///
/// # Errors
/// See [`run`].
pub async fn run_showing(
    config: Config,
    exposition: Metrics,
    listener: TcpListener,
    shutdown: CancellationToken,
) -> Result<()> {
    run_supervised(config, exposition, Supervisor::new(backoff()), listener, shutdown).await
}

/// [`run_showing`] with the supervisor of the background duties. All of them are registered there before the first
/// request is answered.
///
/// # Errors
/// See [`run`].
pub async fn run_supervised(
    config: Config,
    exposition: Metrics,
    supervisor: Supervisor,
    listener: TcpListener,
    shutdown: CancellationToken,
) -> Result<()> {
    metrics::install();
    // The form of the name differs from the previous release's: `event.lua` recognises the replicas of that release by
    // their names, because they read outputs elsewhere.
    let replica = format!("{REPLICA_PREFIX}{}", nonce());
    let address = listener.local_addr().context("failed to read the listener's address")?;
    let server = Server::new(listener, Bounds::of(descriptors::room_for(config.limits.connections)));
    let reach = async { anyhow::Ok((queue(&config, &replica).await?, objects(&config).await?)) };
    let patience = Duration::from_millis(config.limits.queue_timeout_ms);
    let start = Box::pin(server.serve_until_started(reach, patience, with_layers(starting::router())));
    let Some(reached) = shutdown.run_until_cancelled(start).await else { return Ok(()) };
    let ((queue, fitness, signals), objects) = reached?;
    let app = App::new(config, replica, queue, objects, fitness.durability, (exposition, supervisor), shutdown.clone());
    let duties = duties(&app, signals, &shutdown)?;
    tracing::info!(%address, durability = fitness.durability.as_str(), replicas = fitness.replicas_to_wait, "the API is listening");
    server.serve(self::app(app), shutdown).await;
    let _ended = duties.join_all().await;
    Ok(())
}

/// Starts every background duty of a replica. This is the only list of them.
fn duties(app: &App, signals: mpsc::Receiver<Signal>, shutdown: &CancellationToken) -> Result<JoinSet<()>> {
    let mut duties = JoinSet::new();
    macro_rules! start {
        ($($duty:expr),+ $(,)?) => {
            $(duties.spawn(app.supervisor.run_until_shutdown($duty, shutdown.clone()));)+
        };
    }
    start![
        Signals::new(app.clone(), signals),
        Promote(app.clone()),
        Reap(app.clone()),
        Expire(app.clone()),
        Upkeep(app.clone()),
        Sweeper::new(app.clone()),
        Settler::new(app.clone()),
        ClusterMetrics::new(app.clone()),
        series::Keeper::new(app.clone()),
        token_last_used::Writer { noted: app.token_last_used.clone(), registry: app.db.registry.clone() },
        audit::Abandoned(app.clone()),
        requirement_sets::Free(app.clone()),
        FollowUp(app.clone()),
        FileExpiry(app.clone()),
    ];
    for shard in app.db.queue.all() {
        start![
            Watch::new(app.clone(), shard.clone()),
            Recovery::new(app.clone(), shard.clone()),
            Deliverer::new(app.clone(), shard)?,
            Keeper::new(app.clone(), shard.clone()),
            Runner::new(app.clone(), shard.clone()),
            Scheduler::new(app.clone(), shard),
        ];
        if let Some(exporter) = &app.config.traces.exporter {
            start![export::Sender::new(app.clone(), shard, exporter.clone())?];
        }
    }
    Ok(duties)
}

/// Backoff of the background duties.
fn backoff() -> Backoff {
    #[cfg(feature = "mutants")]
    if stokehold_queue::mutants::is("duty-not-restarted") {
        return Backoff { first: Duration::MAX, max: Duration::MAX };
    }
    Backoff::default()
}

/// Router with every route, around a running replica. Needs no socket.
pub fn app(app: App) -> Router {
    let router = Router::new()
        .merge(routes::router().route_layer(axum::middleware::from_fn_with_state(app.clone(), audit::record)))
        .merge(openai::router(&app))
        .merge(gateway::router())
        .merge(dashboard::router())
        .fallback(error::no_route)
        .method_not_allowed_fallback(error::no_method)
        .layer(axum::middleware::from_fn(turns::count))
        .with_state(app);
    with_layers(router)
}

/// The layers that need no running replica.
fn with_layers(router: Router) -> Router {
    router
        .layer(CatchPanicLayer::custom(error::panicked))
        .layer(axum::middleware::from_fn(openai::in_its_shape))
        .layer(cors())
        .layer(axum::middleware::from_fn(observe::observe))
}

/// CORS policy: pages of any origin may call, because a browser never sends a bearer token by itself, unlike a cookie.
/// For requests with a session's cookie, `session.rs` refuses pages of another host, whose scripts may not set its
/// header either.
fn cors() -> CorsLayer {
    let ours = ["idempotency-key", "prefer", "last-event-id", "traceparent", CALLED].map(HeaderName::from_static);
    CorsLayer::new()
        .allow_origin(Any)
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::DELETE])
        .allow_headers(
            [header::AUTHORIZATION, header::CONTENT_TYPE, REQUEST_ID].into_iter().chain(ours).collect::<Vec<_>>(),
        )
        .expose_headers([
            REQUEST_ID,
            header::RETRY_AFTER,
            HeaderName::from_static("stokehold-durability"),
            openai::JOB_ID,
        ])
        .max_age(Duration::from_secs(3600))
}

/// The queue, its health checks, and the signals for `replica` from now on.
async fn queue(config: &Config, replica: &str) -> Result<(Shards, RedisChecks, mpsc::Receiver<Signal>)> {
    let fit = || async {
        let queue = Shards::connect(config.redis.clone()).await?;
        let fitness = queue.check_fitness(config.ephemeral).await?;
        let signals = queue.listen(replica).await?;
        Ok((queue, fitness, signals))
    };
    let passing = |error: &QueueError| matches!(error, QueueError::Unavailable { .. });
    let (queue, fitness, signals) = patiently("Redis", fit, passing).await?;
    for note in &fitness.notes {
        tracing::warn!(note, "Redis is usable, but");
    }
    Ok((queue, fitness, signals))
}

async fn objects(config: &Config) -> Result<Objects> {
    let objects = Objects::connect(config.s3.clone()).await.context("failed to set up the S3 client")?;
    let passing = |error: &ObjectsError| matches!(error, ObjectsError::Unavailable { .. });
    patiently("S3", || objects.ensure_bucket(), passing).await?;
    Ok(objects)
}

/// Repeats a boot step until it succeeds, fails permanently, or [`BOOT_MAX`] is over.
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
