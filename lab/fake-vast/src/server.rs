//! The market on a loopback port, and containers that follow its events.

use std::convert::Infallible;
use std::fmt::{self, Display, Formatter};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::control::Act;
use crate::instances::{Event, Started};
use crate::market::Market;
use crate::wire::{Answer, Delivery, Request};

const MAX_BODY: usize = 4 << 20;
const MAX_CONNECTIONS: usize = 512;

/// Clock in seconds.
pub type Clock = Arc<dyn Fn() -> f64 + Send + Sync>;

/// Containers of instances. Calls are made one at a time, in the order of events, and must be short.
pub trait Machines: Send + Sync {
    /// A container starts.
    fn start(&self, started: &Started);
    /// A container is taken away without warning. Its disk stays.
    fn halt(&self, instance: u64);
    /// A container is destroyed with its disk.
    fn destroy(&self, instance: u64);
    /// Instances whose container exited by itself since the last call.
    fn ended(&self) -> Vec<u64> {
        Vec::new()
    }
    /// Output of a container.
    fn log(&self, _instance: u64) -> Option<String> {
        None
    }
}

/// Options of a server.
#[derive(Clone)]
pub struct Options {
    /// Address on loopback; by default a free port.
    pub address: SocketAddr,
    /// Clock.
    pub clock: Clock,
    /// Interval at which events are applied without calls.
    pub tick: Duration,
    /// Runner of containers.
    pub machines: Option<Arc<dyn Machines>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            clock: Arc::new(system_s),
            tick: Duration::from_millis(50),
            machines: None,
        }
    }
}

fn system_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// A served market. It stops when this is dropped.
pub struct Server {
    url: String,
    shared: Arc<Shared>,
    stop: CancellationToken,
    _guard: DropGuard,
}

struct Shared {
    market: Mutex<Market>,
    clock: Clock,
    machines: Option<Arc<dyn Machines>>,
    /// Counter of calls and ticks.
    moves: watch::Sender<u64>,
}

impl Server {
    /// Serves a market.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn start(mut market: Market, options: Options) -> std::io::Result<Self> {
        let listener = TcpListener::bind(options.address).await?;
        let url = format!("http://{}", listener.local_addr()?);
        market.set_address(&url);
        let Options { clock, machines, tick, .. } = options;
        let shared = Arc::new(Shared { market: Mutex::new(market), clock, machines, moves: watch::Sender::new(0) });
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(accept(listener, Arc::clone(&shared))));
        tokio::spawn(stop.clone().run_until_cancelled_owned(go_on(Arc::clone(&shared), tick)));
        Ok(Self { url, shared, _guard: stop.clone().drop_guard(), stop })
    }

    /// URL without a trailing slash.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The market. No call is answered while the guard exists.
    pub fn market(&self) -> MutexGuard<'_, Market> {
        self.shared.lock()
    }

    /// Time of its clock, seconds.
    #[must_use]
    pub fn now_s(&self) -> f64 {
        (self.shared.clock)()
    }

    /// Applies an external event.
    pub fn act(&self, act: &Act) {
        let now_s = self.now_s();
        self.shared.moved(|market| market.act(now_s, act));
    }

    /// Waits until a condition of the market holds. It is checked after every call and tick.
    pub async fn wait_for<T>(&self, mut look: impl FnMut(&mut Market, f64) -> Option<T>) -> T {
        let mut moves = self.shared.moves.subscribe();
        loop {
            moves.borrow_and_update();
            let now_s = self.now_s();
            if let Some(found) = look(&mut self.market(), now_s) {
                return found;
            }
            // The sender lives as long as this.
            let _ = moves.changed().await;
        }
    }

    /// Stops the server and closes open connections.
    pub fn stop(&self) {
        self.stop.cancel();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Market> {
        self.market.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the market, then applies the resulting events to the containers.
    fn moved<T>(&self, act: impl FnOnce(&mut Market) -> T) -> T {
        let mut market = self.lock();
        let value = act(&mut market);
        if let Some(machines) = &self.machines {
            for happened in market.advance((self.clock)()) {
                match happened.event {
                    Event::Started(started) => machines.start(&started),
                    Event::Halted { instance } => machines.halt(instance),
                    Event::Destroyed { instance } => machines.destroy(instance),
                }
            }
        }
        drop(market);
        self.moves.send_modify(|moves| *moves += 1);
        value
    }

    fn answer(&self, request: &Request) -> Answer {
        let logs = request.path.split_once("/request_logs/").map(|(_, id)| id.trim_end_matches('/').parse());
        let written = match (&self.machines, logs) {
            (Some(machines), Some(Ok(id))) => machines.log(id).map(|text| (id, text)),
            _ => None,
        };
        self.moved(|market| {
            if let Some((id, text)) = written {
                market.write_log(id, text);
            }
            market.handle((self.clock)(), request)
        })
    }
}

/// Applies events that are due without calls.
async fn go_on(shared: Arc<Shared>, tick: Duration) {
    let mut ticks = tokio::time::interval(tick);
    loop {
        ticks.tick().await;
        let ended = shared.machines.as_ref().map(|machines| machines.ended()).unwrap_or_default();
        shared.moved(|market| {
            let now_s = (shared.clock)();
            for instance in ended {
                market.act(now_s, &Act::Exit { instance });
            }
            if shared.machines.is_none() {
                // Whoever asks for events has to find them.
                market.move_to(now_s);
            }
        });
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= MAX_CONNECTIONS {
            connections.join_next().await;
        }
        while connections.try_join_next().is_some() {}
        let (stream, _) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let service = service_fn(move |request| {
                let shared = Arc::clone(&shared);
                async move { respond(&shared, request).await }
            });
            // An answer that was to be dropped ends it with an error.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// The connection is closed without a response.
#[derive(Debug)]
struct Dropped;

impl Display for Dropped {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("the answer is dropped")
    }
}

impl std::error::Error for Dropped {}

async fn respond(shared: &Shared, request: hyper::Request<Incoming>) -> Result<Response<Full<Bytes>>, Dropped> {
    let (head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, MAX_BODY).collect().await else { return Err(Dropped) };
    let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    let pairs = head.uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let request = Request {
        method: head.method.to_string(),
        path: head.uri.path().to_owned(),
        query: pairs
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(name, value)| (decode(name), decode(value)))
            .collect(),
        headers: head
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
            .collect(),
        body: body.to_bytes().to_vec(),
    };
    let answer = shared.answer(&request);
    match answer.delivery {
        Delivery::Sent => Ok(response(answer)),
        Delivery::Closed => Err(Dropped),
        Delivery::Held => {
            let held: Result<Infallible, Dropped> = std::future::pending().await;
            match held? {}
        }
    }
}

fn response(answer: Answer) -> Response<Full<Bytes>> {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let builder = answer.headers.iter().fold(Response::builder().status(status), |builder, (name, value)| {
        builder.header(name.as_str(), value.as_str())
    });
    builder.body(Full::from(answer.body)).unwrap_or_default()
}
