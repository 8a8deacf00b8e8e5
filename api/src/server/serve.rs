//! The accept loop. The default of axum installs no timer, which leaves header timeouts without effect, and limits
//! nothing.

mod bodies;
pub(crate) mod connection_limit;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::bodies::{Answering, Asking};
use self::connection_limit::{ConnectionLimit, ConnectionPermit};
use crate::metrics;
use crate::server::peer::Peer;

/// Timeouts of a replica's client connections, and their maximum number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Maximum number of connections. Beyond it, the least active client is disconnected.
    pub(crate) connections: usize,
    /// Timeout for reading a request's head.
    headers: Duration,
    /// Time for which a connection may be idle between requests.
    idle: Duration,
    /// Timeout for writing a response: a connection whose client reads nothing for this long is closed.
    unread: Duration,
}

impl Bounds {
    pub(crate) fn of(connections: usize) -> Self {
        Self {
            connections,
            headers: Duration::from_secs(10),
            idle: Duration::from_secs(75),
            unread: Duration::from_secs(20),
        }
    }
}

/// Maximum number of headers of a request, and maximum length of its head, bytes.
const HEADERS_MAX: usize = 100;
const HEAD_BYTES_MAX: usize = 32 << 10;

/// Maximum number of concurrent requests on one HTTP/2 connection; a worker needs a handful.
const STREAMS_MAX: u32 = 128;

/// Maximum number of streams that a client may open and reset at once before its connection is closed (CVE-2023-44487).
const RESETS_MAX: usize = 32;

/// Maximum number of bytes of a response that wait for an HTTP/2 peer, per stream.
const UNSENT_MAX: usize = 64 << 10;

/// Maximum number of bytes of a response that the kernel buffers beyond the client's receive window; its default is 4
/// MiB. Bytes in flight are not included, so that a distant client which does read is not slowed.
const UNTAKEN_MAX: u32 = 64 << 10;

/// Interval between pings to an HTTP/2 peer, and the timeout of its answer.
const PING_EVERY: Duration = Duration::from_secs(15);
const PING_PATIENCE: Duration = Duration::from_secs(10);

/// Longest time for open requests to end once the replica or their connection shuts down.
const GRACE: Duration = Duration::from_secs(10);

/// Pause after a failed accept, which most likely means that file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The time for which a client may still send a request on a connection that it opened before the replica had started.
const STARTING_GRACE: Duration = Duration::from_secs(1);

/// Accepts the connections of a replica.
pub(crate) struct Server {
    listener: TcpListener,
    bounds: Bounds,
    permits: Arc<ConnectionLimit>,
    open: TaskTracker,
}

impl Server {
    pub(crate) fn new(listener: TcpListener, bounds: Bounds) -> Self {
        Self { listener, bounds, permits: ConnectionLimit::new(bounds.connections), open: TaskTracker::new() }
    }

    /// Runs the steps of a start. While they take no longer than `patience`, connections wait in the kernel's backlog
    /// for the replica. After that, `starting` answers, because a client must not wait for as long as Redis is away.
    pub(crate) async fn serve_until_started<T>(
        &self,
        start: impl Future<Output = T>,
        patience: Duration,
        starting: Router,
    ) -> T {
        tokio::pin!(start);
        if let Ok(started) = timeout(patience, &mut start).await {
            return started;
        }
        let ends = CancellationToken::new();
        // Ends the connections at once if the start is given up.
        let end = ends.clone().drop_guard();
        let started = tokio::select! {
            started = start => started,
            never = self.accept(starting, &ends) => match never {},
        };
        tokio::spawn(async move {
            sleep(STARTING_GRACE).await;
            drop(end);
        });
        started
    }

    /// Accepts connections until `shutdown`, then waits for open ones to end.
    pub(crate) async fn serve(self, router: Router, shutdown: CancellationToken) {
        tokio::select! {
            never = self.accept(router, &shutdown) => match never {},
            () = shutdown.cancelled() => {}
        }
        self.open.close();
        if timeout(GRACE, self.open.wait()).await.is_err() {
            tracing::warn!(connections = self.open.len(), "some connections did not end in time and are being closed");
        }
    }

    /// Accepts connections, which end after `ends`.
    async fn accept(&self, router: Router, ends: &CancellationToken) -> Infallible {
        loop {
            // One connection more than there are permits is accepted, because a connection is closed only once another
            // one needs its permit. The rest stays in the kernel's backlog.
            let accepted = async {
                let (stream, _) = self.listener.accept().await?;
                Ok::<_, std::io::Error>((stream, self.permits.take().await))
            };
            match accepted.await {
                Ok((stream, permit)) => {
                    let (router, bounds, ends) = (router.clone(), self.bounds, ends.clone());
                    self.open.spawn(async move {
                        metrics::connection_opened();
                        connection(stream, router, &permit, bounds, ends).await;
                        metrics::connection_closed();
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    // Closing a connection frees the scarce resource, most likely file descriptors.
                    self.permits.make_room();
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// Serves one connection until it ends, is idle for too long, is asked to end, or must make room.
async fn connection(
    stream: TcpStream,
    router: Router,
    permit: &Arc<ConnectionPermit>,
    bounds: Bounds,
    shutdown: CancellationToken,
) {
    if let Err(error) = bound_untaken(&stream).and_then(|()| stream.set_nodelay(true)) {
        tracing::debug!(%error, "a connection closed before it was served");
        return;
    }
    let peer = stream.peer_addr().map(Peer).ok();
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(bounds.unread));
    let inner = TowerToHyperService::new(router);
    let service = service_fn(|mut request: Request<Incoming>| {
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        let (busy, sending) = permit.begin();
        let answer = inner.call(request.map(|body| Asking::new(body, sending)));
        async move { answer.await.map(|answer: Response<Body>| answer.map(|body| Answering::new(body, busy))) }
    });
    let builder = builder(bounds);
    let connection = builder.serve_connection(TokioIo::new(Box::pin(stream)), service);
    tokio::pin!(connection);
    let outcome = tokio::select! {
        outcome = connection.as_mut() => Some(outcome),
        () = idle(permit, bounds) => None,
        () = shutdown.cancelled() => None,
        () = permit.leave.cancelled() => {
            if !permit.is_needed() {
                return;
            }
            None
        }
    };
    let outcome = match outcome {
        Some(outcome) => outcome,
        None => {
            // Accepts no more requests, and lets open ones end.
            connection.as_mut().graceful_shutdown();
            timeout(GRACE, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(error = &*error, "a connection failed");
    }
}

#[cfg(target_os = "linux")]
fn bound_untaken(stream: &TcpStream) -> std::io::Result<()> {
    SockRef::from(stream).set_tcp_notsent_lowat(UNTAKEN_MAX)
}

/// On other systems, the limit includes bytes in flight.
#[cfg(not(target_os = "linux"))]
fn bound_untaken(stream: &TcpStream) -> std::io::Result<()> {
    SockRef::from(stream).set_send_buffer_size(UNTAKEN_MAX as usize)
}

/// Returns when no request has been open for the idle time. This covers what hyper's own timer does not: a client that
/// sends nothing at all, sends half of an HTTP/2 preface, or opens no stream.
async fn idle(permit: &ConnectionPermit, bounds: Bounds) {
    loop {
        let (open, served) = permit.open();
        let bound = if served { bounds.idle } else { bounds.headers };
        let quiet = timeout(bound, permit.changed.notified()).await.is_err();
        if quiet && open == 0 && permit.open().0 == 0 {
            return;
        }
    }
}

fn builder(bounds: Bounds) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.headers)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(RESETS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .max_send_buf_size(UNSENT_MAX)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_PATIENCE);
    builder
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::net::SocketAddr;

    use axum::routing::{get, post};
    use bytes::Bytes;
    use futures::future::join_all;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Semaphore;
    use tokio_util::sync::DropGuard;

    use super::*;

    /// Timeout of the tests; longer than any wait in them.
    const PATIENCE: Duration = Duration::from_secs(30);
    const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    const CONNECTIONS: usize = 8;

    struct Running {
        address: SocketAddr,
        /// One permit for each request that is held open, or whose response never ends.
        held: Arc<Semaphore>,
        /// One permit for each endless response that was dropped.
        given_up: Arc<Semaphore>,
        _ends: DropGuard,
    }

    /// Dropped together with the response that owns it.
    struct GivenUp(Arc<Semaphore>);

    impl Drop for GivenUp {
        fn drop(&mut self) {
            self.0.add_permits(1);
        }
    }

    /// Starts an API with four kinds of routes: an immediate answer, a held answer, one that reads a body, and an
    /// endless response.
    async fn start(bounds: Bounds) -> Running {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let held = Arc::new(Semaphore::new(0));
        let count = held.clone();
        let hold = || async move {
            count.add_permits(1);
            std::future::pending::<()>().await;
        };
        let given_up = Arc::new(Semaphore::new(0));
        let (begins, goes) = (held.clone(), given_up.clone());
        let endless = || async move {
            begins.add_permits(1);
            let goes = GivenUp(goes);
            Body::from_stream(futures::stream::repeat_with(move || {
                let _with_the_stream = &goes;
                Ok::<_, std::io::Error>(Bytes::from_static(&[b'x'; 16 << 10]))
            }))
        };
        let router = Router::new()
            .route("/", get(|| async { "served" }))
            .route("/held", get(hold))
            .route("/body", post(|body: Bytes| async move { body }))
            .route("/endless", get(endless));
        let shutdown = CancellationToken::new();
        tokio::spawn(Server::new(listener, bounds).serve(router, shutdown.clone()));
        Running { address, held, given_up, _ends: shutdown.drop_guard() }
    }

    fn bounds() -> Bounds {
        Bounds { headers: PATIENCE, idle: PATIENCE, unread: PATIENCE, ..Bounds::of(CONNECTIONS) }
    }

    /// Opens a connection and sends these bytes.
    async fn say(address: SocketAddr, said: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(said).await.unwrap();
        stream
    }

    async fn all_say(address: SocketAddr, said: &[u8]) -> Vec<TcpStream> {
        join_all((0..CONNECTIONS).map(|_| say(address, said))).await
    }

    /// Returns what a new client receives.
    async fn heard(address: SocketAddr) -> String {
        let mut stream = say(address, b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
        let mut said = String::new();
        timeout(PATIENCE, stream.read_to_string(&mut said)).await.unwrap().unwrap();
        said
    }

    /// Waits until the other side has closed or reset the connection.
    async fn until_cut(stream: &mut TcpStream) {
        let mut sink = [0; 1 << 10];
        let cut = async { while stream.read(&mut sink).await.is_ok_and(|bytes| bytes > 0) {} };
        timeout(PATIENCE, cut).await.unwrap();
    }

    #[tokio::test]
    async fn a_house_full_of_those_who_do_nothing_has_room() {
        let slow_body = b"POST /body HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n123";
        for nothing in [b"".as_slice(), b"GET / HTTP/1.1\r\nx-slow: ", b"PRI * HTTP/2", GET, slow_body] {
            let server = start(bounds()).await;
            let _crowd = all_say(server.address, nothing).await;
            for _ in 0..=CONNECTIONS {
                assert!(heard(server.address).await.ends_with("served"), "{:?}", String::from_utf8_lossy(nothing));
            }
        }
    }

    #[tokio::test]
    async fn who_waits_for_an_answer_stays_and_the_next_one_waits() {
        let server = start(bounds()).await;
        let address = server.address;
        let mut crowd = all_say(address, b"GET /held HTTP/1.1\r\nhost: a\r\n\r\n").await;
        let _all_are_held = timeout(PATIENCE, server.held.acquire_many(CONNECTIONS as u32)).await.unwrap().unwrap();
        let mut waiting = Box::pin(heard(address));
        // Only a released permit admits it.
        assert!(timeout(Duration::from_millis(100), &mut waiting).await.is_err());
        drop(crowd.pop());
        assert!(waiting.await.ends_with("served"));
        let mut byte = [0];
        for stream in &crowd {
            assert!(stream.try_read(&mut byte).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock));
        }
    }

    #[tokio::test]
    async fn who_does_not_read_is_cut() {
        let unread = Duration::from_millis(50);
        let server = start(Bounds { unread, ..bounds() }).await;
        let _crowd = all_say(server.address, b"GET /endless HTTP/1.1\r\nhost: a\r\n\r\n").await;
        // A connection whose request has not been read yet would be closed to make room for the next.
        let _all_begin = timeout(PATIENCE, server.held.acquire_many(CONNECTIONS as u32)).await.unwrap().unwrap();
        assert!(heard(server.address).await.ends_with("served"));
        let _all_end = timeout(PATIENCE, server.given_up.acquire_many(CONNECTIONS as u32)).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn who_says_nothing_is_cut_when_nobody_needs_the_room() {
        let short = Duration::from_millis(50);
        let server = start(Bounds { headers: short, idle: short, ..bounds() }).await;
        for said in [b"".as_slice(), b"GET / HTTP/1.1\r\nx-slow: ", b"PRI * HTTP/2", GET] {
            until_cut(&mut say(server.address, said).await).await;
        }
    }

    #[tokio::test]
    async fn a_long_start_answers_for_itself_and_then_the_replica_does() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (server, started) = (Server::new(listener, bounds()), Arc::new(Semaphore::new(0)));
        let (begun, shutdown) = (started.clone(), CancellationToken::new());
        let ends = shutdown.clone();
        tokio::spawn(async move {
            let start = async { begun.acquire().await.unwrap().forget() };
            server.serve_until_started(start, Duration::from_millis(1), crate::server::starting::router()).await;
            server.serve(Router::new().route("/", get(|| async { "served" })), ends).await;
        });
        let mut kept = say(address, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        let mut said = String::new();
        // The connection closes, although the client would keep it.
        timeout(PATIENCE, kept.read_to_string(&mut said)).await.unwrap().unwrap();
        assert!(said.starts_with("HTTP/1.1 503") && said.contains("retry-after: 1"), "{said}");
        let mut idle = say(address, b"").await;
        // It was accepted before this one.
        assert!(heard(address).await.starts_with("HTTP/1.1 503"));
        started.add_permits(1);
        assert!(heard(address).await.ends_with("served"));
        until_cut(&mut idle).await;
        shutdown.cancel();
    }

    #[tokio::test]
    async fn the_first_requests_wait_for_a_short_start() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let waiting = tokio::spawn(heard(address));
        let server = Server::new(listener, bounds());
        server.serve_until_started(sleep(Duration::from_millis(50)), PATIENCE, Router::new()).await;
        tokio::spawn(server.serve(Router::new().route("/", get(|| async { "served" })), CancellationToken::new()));
        assert!(waiting.await.unwrap().ends_with("served"));
    }
}
