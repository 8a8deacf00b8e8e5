//! The accept loop: how many connections, how long a header may take, how a stop goes.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use s3s::service::S3Service;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutStream;

use super::inert::make_inert;

const CONNECTIONS_MAX: usize = 1024;

/// For the whole header, and for the next request on a connection kept alive.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

const HEADERS_MAX: usize = 100;

/// A client that takes nothing off its socket for this long has gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// What requests under way get to finish once a stop was asked for.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// After an accept that failed, most likely for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `shutdown`, then lets the requests under way finish.
pub(super) async fn run(listener: TcpListener, service: S3Service, shutdown: impl Future<Output = ()> + Send) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let graceful = GracefulShutdown::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = accept(&listener, &connections) => accepted,
        };
        let Some((stream, permit)) = accepted else { continue };
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(WRITE_TIMEOUT));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_headers(HEADERS_MAX)
            .serve_connection(TokioIo::new(Box::pin(stream)), inert(service.clone()));
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended early");
            }
            drop(permit);
        });
    }
    drop(listener);
    if tokio::time::timeout(STOP_TIMEOUT, graceful.shutdown()).await.is_err() {
        tracing::warn!("aborting requests that are still in progress after {} s", STOP_TIMEOUT.as_secs());
    }
}

/// The service, whose answers a browser never takes for pages.
fn inert(
    service: S3Service,
) -> impl Service<Request<Incoming>, Response = Response<s3s::Body>, Error = s3s::HttpError, Future: Send> {
    service_fn(move |request: Request<Incoming>| {
        let service = service.clone();
        async move {
            let mut answer = service.call(request.map(s3s::Body::from)).await?;
            make_inert(answer.headers_mut());
            Ok(answer)
        }
    })
}

/// The next connection, once there is room for it. Beyond the bound clients wait in the listener's backlog.
async fn accept(listener: &TcpListener, room: &Arc<Semaphore>) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let permit = room.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => {
            // Answers are small and waited for.
            let _ = stream.set_nodelay(true);
            Some((stream, permit))
        }
        Err(error) => {
            tracing::warn!(%error, "cannot accept a connection");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}
