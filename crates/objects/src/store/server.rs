//! The accept loop: limit on connections, timeouts, graceful shutdown.

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

/// Timeout of a whole header, and of the next request on a keep-alive connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

const HEADERS_MAX: usize = 100;

/// Timeout of a client that reads nothing from its socket.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Time for requests in progress to finish after a shutdown.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Delay after a failed accept, usually caused by a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `shutdown`, then waits for requests in progress.
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

/// The service with response headers that keep browsers from treating objects as pages.
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

/// The next connection, once the limit allows it. Until then, clients wait in the listener's backlog.
async fn accept(listener: &TcpListener, room: &Arc<Semaphore>) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let permit = room.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => {
            // Responses are small, and clients wait for them.
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
