//! Attacking clients. They run on a separate thread, so that the healthy client does not wait for them in this process.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::PATIENCE;

/// Pause before a disconnected client returns.
const COME_BACK: Duration = Duration::from_secs(1);

/// Interval between two bytes of a slow client.
const DRIP: Duration = Duration::from_secs(1);

/// Connections per source address, whose ports are limited.
const PER_ADDRESS: usize = 250;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// Sends nothing.
    Idle,
    /// Sends a head that never ends.
    SlowHead,
    /// Sends a body with a valid token, one byte per second.
    SlowBody,
    /// Requests a lot and reads none of it.
    Unread,
}

pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) kinds: Vec<(Kind, usize)>,
}

/// The target and the credentials.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
    pub(crate) job: String,
}

/// An attack in progress.
pub(crate) struct Attackers {
    open: Arc<AtomicUsize>,
    wanted: usize,
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

impl Attackers {
    pub(crate) fn start(attack: &Attack, target: &Target) -> Self {
        let (stop, stopped) = watch::channel(false);
        let open = Arc::new(AtomicUsize::new(0));
        let kinds: Vec<Kind> =
            attack.kinds.iter().flat_map(|(kind, count)| std::iter::repeat_n(*kind, *count)).collect();
        let wanted = kinds.len();
        let (target, count) = (Arc::new(target.clone()), open.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                for (number, kind) in kinds.into_iter().enumerate() {
                    tokio::spawn(attacker(number, kind, target.clone(), count.clone()));
                }
                let mut stopped = stopped;
                let _ = stopped.wait_for(|stopped| *stopped).await;
            });
        });
        Self { open, wanted, stop, thread }
    }

    /// Waits until nearly all are connected; when all connections are taken, the last of them come and go.
    pub(crate) async fn settle(&self) {
        let patience = Instant::now() + PATIENCE;
        while self.open.load(Ordering::SeqCst) < self.wanted * 9 / 10 && Instant::now() < patience {
            sleep(Duration::from_millis(50)).await;
        }
        eprintln!("  {} of {} connected", self.open.load(Ordering::SeqCst), self.wanted);
    }

    /// Stops all of them, and waits until the API has noticed.
    pub(crate) async fn stop(self) {
        let _ = self.stop.send(true);
        self.thread.join().unwrap();
        sleep(COME_BACK).await;
    }
}

async fn attacker(number: usize, kind: Kind, target: Arc<Target>, open: Arc<AtomicUsize>) {
    // Not all at one moment: that would be another attack.
    sleep(Duration::from_micros(200) * u32::try_from(number).unwrap()).await;
    loop {
        if let Ok(stream) = connect(number, kind, target.address).await {
            open.fetch_add(1, Ordering::SeqCst);
            let _ = misbehave(number, kind, stream, &target).await;
            open.fetch_sub(1, Ordering::SeqCst);
        }
        sleep(COME_BACK).await;
    }
}

async fn connect(number: usize, kind: Kind, address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    if matches!(kind, Kind::Unread) {
        socket.set_recv_buffer_size(4 << 10)?;
    }
    let source = Ipv4Addr::new(127, 0, 0, u8::try_from(2 + number / PER_ADDRESS).unwrap());
    socket.bind(SocketAddr::from((source, 0)))?;
    socket.connect(address).await
}

/// Misbehaves until the API disconnects the client.
async fn misbehave(number: usize, kind: Kind, mut stream: TcpStream, target: &Target) -> std::io::Result<()> {
    let Target { token, job, .. } = target;
    match kind {
        Kind::Idle => {
            let mut byte = [0];
            while stream.read(&mut byte).await? > 0 {}
            Ok(())
        }
        Kind::SlowHead => {
            stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n").await?;
            drip(stream, b"x: 1\r\n").await
        }
        Kind::SlowBody => {
            let head = format!(
                "POST /v1/jobs HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {token}\r\ncontent-length: 100000\r\n\r\n{{"
            );
            stream.write_all(head.as_bytes()).await?;
            drip(stream, b" ").await
        }
        Kind::Unread => {
            let asked = if number.is_multiple_of(2) {
                "GET /openapi.json HTTP/1.1\r\nhost: a\r\n\r\n".repeat(100)
            } else {
                format!("GET /v1/jobs/{job}/events HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {token}\r\n\r\n")
            };
            stream.write_all(asked.as_bytes()).await?;
            drip(stream, b"\r\n").await
        }
    }
}

async fn drip(mut stream: TcpStream, drop: &[u8]) -> std::io::Result<()> {
    loop {
        sleep(DRIP).await;
        stream.write_all(drop).await?;
    }
}
