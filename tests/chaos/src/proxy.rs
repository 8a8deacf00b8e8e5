//! A TCP proxy that breaks connections as networks do: slowly, in one direction only, half, or all at once.
//!
//! It forwards bytes and is independent of the protocol. Current faults are a [`Weather`], which can change at any time
//! and applies to open connections as well. A direction that is cut is not read, so that the kernel's buffers fill as
//! behind a dead link, and sent bytes arrive when the link is back; the sockets stay open meanwhile.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use rand::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Number of bytes forwarded at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Connections held open at once; more wait in the listener's backlog.
const CONNECTIONS_MAX: usize = 4_096;

/// Pause after a failed accept, most likely for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Current faults of the connection. The default has none.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Weather {
    /// Delay of every piece.
    pub delay: Duration,
    /// Maximum random addition to the delay of each piece.
    pub jitter: Duration,
    /// Maximum bytes per second in each direction; 0 is no limit.
    pub bytes_per_s: u64,
    /// Bytes from the caller do not arrive.
    pub cut_up: bool,
    /// Bytes to the caller do not arrive.
    pub cut_down: bool,
    /// New connections are accepted, and nothing is ever forwarded on them.
    pub half_open: bool,
    /// New connections are reset.
    pub refuse: bool,
}

impl Weather {
    /// Cuts both directions.
    #[must_use]
    pub fn partition() -> Self {
        Self { cut_up: true, cut_down: true, ..Self::default() }
    }
}

/// One-time faults, for the next connection.
#[derive(Debug, Default)]
struct Once {
    /// Number of replies to drop: the request is forwarded, its connection is reset instead of answered.
    drop_replies: AtomicUsize,
    /// The next connection that forwards a reply is reset after this many bytes of it, plus 1; 0 is none.
    cut_after: AtomicU64,
}

/// Counters of traffic and faults.
#[derive(Debug, Default)]
struct Counts {
    connections: AtomicU64,
    open: AtomicUsize,
    bytes_up: AtomicU64,
    bytes_down: AtomicU64,
    replies_dropped: AtomicU64,
    cuts: AtomicU64,
    resets: AtomicU64,
}

/// A snapshot of the counters of traffic and faults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Passed {
    /// Connections accepted.
    pub connections: u64,
    /// Connections open now.
    pub open: usize,
    /// Bytes from callers.
    pub bytes_up: u64,
    /// Bytes to callers.
    pub bytes_down: u64,
    /// Replies dropped by [`Proxy::drop_replies`].
    pub replies_dropped: u64,
    /// Replies cut short by [`Proxy::cut_after`].
    pub cuts: u64,
    /// Connections reset by [`Proxy::reset`], or because of [`Weather::refuse`].
    pub resets: u64,
}

struct Shared {
    upstreams: Vec<SocketAddr>,
    next: AtomicUsize,
    weather: watch::Sender<Weather>,
    /// Grows with each reset: connections of an earlier age are closed.
    age: watch::Sender<u64>,
    once: Once,
    counts: Counts,
}

/// A proxy in front of one server, or of several in turn. Dropping it closes every connection through it.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Listens on a free port of loopback. With several upstreams each connection goes to the next one that accepts it.
    ///
    /// # Errors
    /// If loopback has no free port, or there is no upstream.
    pub async fn start(upstreams: Vec<SocketAddr>) -> Result<Self> {
        anyhow::ensure!(!upstreams.is_empty(), "a proxy needs something to forward to");
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("loopback has no free port")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            upstreams,
            next: AtomicUsize::new(0),
            weather: watch::Sender::new(Weather::default()),
            age: watch::Sender::new(0),
            once: Once::default(),
            counts: Counts::default(),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, accepting })
    }

    /// The address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the faults from now on, for open connections as well.
    pub fn set(&self, weather: Weather) {
        self.shared.weather.send_replace(weather);
    }

    /// Removes all faults. Bytes that a cut has held back arrive.
    pub fn heal(&self) {
        self.set(Weather::default());
    }

    /// Resets every open connection.
    pub fn reset(&self) {
        let open = self.shared.counts.open.load(Ordering::Relaxed) as u64;
        self.shared.counts.resets.fetch_add(open, Ordering::Relaxed);
        self.shared.age.send_modify(|age| *age += 1);
    }

    /// Drops the next `replies` replies: each request is forwarded, its connection is reset instead of answered.
    pub fn drop_replies(&self, replies: usize) {
        self.shared.once.drop_replies.fetch_add(replies, Ordering::Relaxed);
    }

    /// Cuts the next reply after `bytes` and resets its connection.
    pub fn cut_after(&self, bytes: u64) {
        self.shared.once.cut_after.store(bytes + 1, Ordering::Relaxed);
    }

    /// The counters so far.
    #[must_use]
    pub fn passed(&self) -> Passed {
        let Counts { connections, open, bytes_up, bytes_down, replies_dropped, cuts, resets } = &self.shared.counts;
        Passed {
            connections: connections.load(Ordering::Relaxed),
            open: open.load(Ordering::Relaxed),
            bytes_up: bytes_up.load(Ordering::Relaxed),
            bytes_down: bytes_down.load(Ordering::Relaxed),
            replies_dropped: replies_dropped.load(Ordering::Relaxed),
            cuts: cuts.load(Ordering::Relaxed),
            resets: resets.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.shared.age.send_modify(|age| *age += 1);
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let room = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let Ok((caller, _)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            shared.counts.connections.fetch_add(1, Ordering::Relaxed);
            shared.counts.open.fetch_add(1, Ordering::Relaxed);
            carry(caller, &shared).await;
            shared.counts.open.fetch_sub(1, Ordering::Relaxed);
            drop(permit);
        });
    }
}

/// One connection, from accept to its end.
async fn carry(caller: TcpStream, shared: &Shared) {
    let mut age = shared.age.subscribe();
    let weather = shared.weather.borrow().clone();
    if weather.refuse {
        shared.counts.resets.fetch_add(1, Ordering::Relaxed);
        return reset(&caller);
    }
    let born = *age.borrow_and_update();
    let reborn = async {
        // An error means that the proxy was dropped.
        let _ = age.wait_for(|age| *age != born).await;
    };
    if weather.half_open {
        reborn.await;
        return reset(&caller);
    }
    let Some(mut server) = connect(shared).await else { return reset(&caller) };
    let mut caller = caller;
    let _ = (caller.set_nodelay(true), server.set_nodelay(true));
    let ended = {
        let ((from_caller, to_caller), (from_server, to_server)) = (caller.split(), server.split());
        let up = Direction { shared, is_up: true, from: from_caller, to: to_server };
        let down = Direction { shared, is_up: false, from: from_server, to: to_caller };
        tokio::select! {
            ended = async { tokio::try_join!(up.forward(), down.forward()) } => ended.is_ok(),
            () = reborn => false,
        }
    };
    // A clean end has been forwarded by now. Any other end is a reset, and loses the bytes in flight.
    if !ended {
        reset(&caller);
        reset(&server);
    }
}

async fn connect(shared: &Shared) -> Option<TcpStream> {
    for _ in 0..shared.upstreams.len() {
        let next = shared.next.fetch_add(1, Ordering::Relaxed) % shared.upstreams.len();
        if let Ok(server) = TcpStream::connect(shared.upstreams[next]).await {
            return Some(server);
        }
    }
    None
}

/// Makes the socket send RST instead of FIN when it is closed.
fn reset(socket: &TcpStream) {
    let _ = socket.set_zero_linger();
}

struct Direction<'a> {
    shared: &'a Shared,
    is_up: bool,
    from: ReadHalf<'a>,
    to: WriteHalf<'a>,
}

impl Direction<'_> {
    /// Forwards until the sender closes its side, which is forwarded, or an error ends both directions.
    async fn forward(mut self) -> std::io::Result<()> {
        let mut weather = self.shared.weather.subscribe();
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            self.open(&mut weather).await;
            let length = self.from.read(&mut piece).await?;
            if length == 0 {
                return self.to.shutdown().await;
            }
            // The direction may have been cut while this waited for bytes: bytes that have left the sender are held
            // back here.
            self.open(&mut weather).await;
            if !self.is_up && self.swallows() {
                return Err(std::io::ErrorKind::ConnectionReset.into());
            }
            let kept = if self.is_up { length } else { self.cut(length) };
            let now = weather.borrow().clone();
            pause(&now, kept).await;
            self.to.write_all(&piece[..kept]).await?;
            let counts = &self.shared.counts;
            let bytes = if self.is_up { &counts.bytes_up } else { &counts.bytes_down };
            bytes.fetch_add(kept as u64, Ordering::Relaxed);
            if kept < length {
                return Err(std::io::ErrorKind::ConnectionReset.into());
            }
        }
    }

    /// Waits until this direction is not cut.
    async fn open(&self, weather: &mut watch::Receiver<Weather>) {
        let is_up = self.is_up;
        let _ = weather.wait_for(|weather| if is_up { !weather.cut_up } else { !weather.cut_down }).await;
    }

    fn swallows(&self) -> bool {
        let left = |left: usize| left.checked_sub(1);
        let took = self.shared.once.drop_replies.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok();
        self.shared.counts.replies_dropped.fetch_add(took.into(), Ordering::Relaxed);
        took
    }

    /// Number of bytes of a reply of `length` bytes that are forwarded. A reply shorter than the cut is cut at its last
    /// byte.
    fn cut(&self, length: usize) -> usize {
        match self.shared.once.cut_after.swap(0, Ordering::Relaxed) {
            0 => length,
            after => {
                self.shared.counts.cuts.fetch_add(1, Ordering::Relaxed);
                usize::try_from(after - 1).unwrap_or(usize::MAX).min(length - 1)
            }
        }
    }
}

async fn pause(weather: &Weather, bytes: usize) {
    let drawn = rand::rng().random_range(0.0..1.0);
    let wait = wait(weather, bytes, drawn);
    if !wait.is_zero() {
        sleep(wait).await;
    }
}

/// Delay of a piece; `drawn` is 0 to 1.
fn wait(weather: &Weather, bytes: usize, drawn: f64) -> Duration {
    let line = match weather.bytes_per_s {
        0 => Duration::ZERO,
        bytes_per_s => Duration::from_secs_f64(bytes as f64 / bytes_per_s as f64),
    };
    weather.delay + weather.jitter.mul_f64(drawn) + line
}

#[cfg(test)]
#[path = "proxy_tests.rs"]
mod tests;
