//! The accept loop. The stock one installs no timer, which leaves header timeouts without effect, and caps nothing.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::metrics;

/// A request's head must come within this time.
const HEADERS: Duration = Duration::from_secs(10);

/// A connection may stand idle between requests this long.
const IDLE: Duration = Duration::from_secs(75);

/// Most headers of a request, and most bytes of its head.
const HEADERS_MAX: usize = 100;
const HEAD_BYTES_MAX: usize = 32 << 10;

/// Requests at once on one HTTP/2 connection; a worker needs a handful.
const STREAMS_MAX: u32 = 128;

/// Streams that a client opens and resets at once before its connection is closed (CVE-2023-44487).
const RESETS_MAX: usize = 32;

/// How often an HTTP/2 peer is asked whether it is there, and how long it may take to say so.
const PING_EVERY: Duration = Duration::from_secs(15);
const PING_PATIENCE: Duration = Duration::from_secs(10);

/// How long open requests may take to end once the replica shuts down, or its connection does.
const GRACE: Duration = Duration::from_secs(10);

/// The pause after a failed accept: out of file descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections until `shutdown`, then lets those that are open end.
pub(crate) async fn serve(listener: TcpListener, router: Router, connections: usize, shutdown: CancellationToken) {
    let (slots, open) = (Arc::new(Semaphore::new(connections)), TaskTracker::new());
    loop {
        // The slot first: what cannot be served stays in the kernel's backlog.
        let accepted = async {
            let slot = slots.clone().acquire_owned().await;
            (slot, listener.accept().await)
        };
        let (slot, accepted) = tokio::select! {
            accepted = accepted => accepted,
            () = shutdown.cancelled() => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let (router, shutdown) = (router.clone(), shutdown.clone());
                open.spawn(async move {
                    metrics::connection_opened();
                    connection(stream, router, shutdown).await;
                    metrics::connection_closed();
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    open.close();
    if timeout(GRACE, open.wait()).await.is_err() {
        tracing::warn!(connections = open.len(), "some connections did not end in time and are cut");
    }
}

/// Serves one connection until it ends, stands idle or is asked to end.
async fn connection(stream: TcpStream, router: Router, shutdown: CancellationToken) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection was gone before it was served");
        return;
    }
    let activity = Arc::new(Activity::default());
    let inner = TowerToHyperService::new(router);
    let service = service_fn(|request: Request<Incoming>| {
        let busy = activity.clone().busy();
        let answer = inner.call(request);
        async move { answer.await.map(|answer: Response<Body>| answer.map(|body| Answering { body, _busy: busy })) }
    });
    let builder = builder();
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let enough = async {
        tokio::select! {
            () = activity.idle() => {}
            () = shutdown.cancelled() => {}
        }
    };
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = enough => {
            // Takes no more requests, lets those that are open end.
            connection.as_mut().graceful_shutdown();
            timeout(GRACE, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(error = &*error, "a connection broke off");
    }
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(RESETS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_PATIENCE);
    builder
}

/// Which requests are open on a connection. What hyper's own timer does not see is seen here: a client that says nothing at all,
/// or half of an HTTP/2 preface, or opens no stream.
#[derive(Default)]
struct Activity {
    open: AtomicUsize,
    seen: AtomicUsize,
    changed: Notify,
}

impl Activity {
    fn busy(self: Arc<Self>) -> Busy {
        self.open.fetch_add(1, Ordering::SeqCst);
        self.seen.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_one();
        Busy(self)
    }

    /// Returns when no request has been open for as long as a connection may stand idle.
    async fn idle(&self) {
        loop {
            let (open, seen) = (self.open.load(Ordering::SeqCst), self.seen.load(Ordering::SeqCst));
            let bound = if seen == 0 { HEADERS } else { IDLE };
            let quiet = timeout(bound, self.changed.notified()).await.is_err();
            if quiet && open == 0 && self.open.load(Ordering::SeqCst) == 0 {
                return;
            }
        }
    }
}

/// One open request.
struct Busy(Arc<Activity>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
        self.0.changed.notify_one();
    }
}

/// An answer's body: its request is open until the last byte is taken, which for an event stream is the most of it.
struct Answering {
    body: Body,
    _busy: Busy,
}

impl hyper::body::Body for Answering {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
