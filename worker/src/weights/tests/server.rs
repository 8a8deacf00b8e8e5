//! A server of one file that misbehaves as a test requires.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A client's request.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    /// Number of requests before it.
    pub(super) turn: usize,
    pub(super) target: String,
    pub(super) headers: BTreeMap<String, String>,
}

impl Asked {
    pub(super) fn range(&self) -> Option<Range<usize>> {
        let (start, last) = self.headers.get("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some(start.parse().ok()?..last.parse::<usize>().ok()? + 1)
    }
}

/// The response to a request.
pub(super) struct Reply {
    status: &'static str,
    headers: String,
    body: Vec<u8>,
    sent_bytes: usize,
    hangs: bool,
}

impl Reply {
    pub(super) fn new(status: &'static str, body: &[u8]) -> Self {
        Self { status, headers: String::new(), body: body.to_vec(), sent_bytes: body.len(), hangs: false }
    }

    /// Answers as a correct server.
    pub(super) fn part(asked: &Asked, content: &[u8]) -> Self {
        let Some(range) = asked.range() else { return Self::new("200 OK", content) };
        let sent_range = format!("bytes {}-{}/{}", range.start, range.end - 1, content.len());
        Self::new("206 Partial Content", &content[range]).header("content-range", &sent_range)
    }

    pub(super) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers += &format!("{name}: {value}\r\n");
        self
    }

    /// Announces the full length, sends this much, and closes.
    pub(super) fn cut_after(mut self, bytes: usize) -> Self {
        self.sent_bytes = self.sent_bytes.min(bytes);
        self
    }

    /// Sends its response, and then neither continues nor closes.
    pub(super) fn hanging(mut self) -> Self {
        self.hangs = true;
        self
    }
}

/// Runs until the test's runtime ends.
pub(super) struct Server {
    pub(super) origin: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    sent_bytes: Arc<AtomicU64>,
}

impl Server {
    pub(super) async fn start(reply: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let (log, sent_bytes) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU64::new(0)));
        let server = Self { origin, asked: Arc::clone(&log), sent_bytes: Arc::clone(&sent_bytes) };
        let reply = Arc::new(reply);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (log, sent_bytes, reply) = (Arc::clone(&log), Arc::clone(&sent_bytes), Arc::clone(&reply));
                tokio::spawn(async move { answer(stream, &log, &sent_bytes, &*reply).await });
            }
        });
        server
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    pub(super) fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::SeqCst)
    }
}

async fn answer(
    mut stream: TcpStream,
    log: &Mutex<Vec<Asked>>,
    sent_bytes: &AtomicU64,
    reply: &(dyn Fn(&Asked) -> Reply + Send + Sync),
) {
    let (mut request, mut byte) = (Vec::new(), [0]);
    while !request.ends_with(b"\r\n\r\n") {
        if stream.read_exact(&mut byte).await.is_err() {
            return;
        }
        request.push(byte[0]);
    }
    let text = String::from_utf8(request).unwrap();
    let mut lines = text.lines();
    let target = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
    let headers =
        lines.filter_map(|line| line.split_once(": ")).map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    let asked = {
        let mut log = log.lock().unwrap();
        let asked = Asked { turn: log.len(), target, headers: headers.collect() };
        log.push(asked.clone());
        asked
    };
    let reply = reply(&asked);
    let Reply { status, headers, body, .. } = &reply;
    let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n", body.len());
    if stream.write_all(head.as_bytes()).await.is_ok() && stream.write_all(&body[..reply.sent_bytes]).await.is_ok() {
        sent_bytes.fetch_add(reply.sent_bytes as u64, Ordering::SeqCst);
    }
    if reply.hangs {
        std::future::pending::<()>().await;
    }
}
