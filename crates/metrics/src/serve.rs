//! The listener of a process that serves only metrics.

use std::time::Duration;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{Metrics, recorder};

/// Recorded samples are folded this often.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Serves the metrics at `/metrics` and a liveness check at `/healthz` until `shutdown`.
///
/// # Errors
/// If the listener fails.
pub async fn serve(listener: TcpListener, exposition: Metrics, shutdown: CancellationToken) -> anyhow::Result<()> {
    let upkeep = async {
        loop {
            tokio::time::sleep(UPKEEP_EVERY).await;
            recorder::upkeep();
        }
    };
    let told = move || {
        let text = exposition.events() + &exposition.snapshots_text();
        std::future::ready(([(CONTENT_TYPE, "text/plain; version=0.0.4")], text))
    };
    let routes = Router::new().route("/metrics", get(told)).route("/healthz", get(|| std::future::ready("ok\n")));
    let serving = axum::serve(listener, routes).with_graceful_shutdown(shutdown.cancelled_owned());
    tokio::select! {
        served = serving => Ok(served?),
        never = upkeep => match never {},
    }
}
