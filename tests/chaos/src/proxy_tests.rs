use tokio::sync::mpsc;
use tokio::time::timeout;

use super::*;

/// Longer than any step here takes, shorter than a person would wait.
const SOON: Duration = Duration::from_secs(10);

/// Long enough for a byte to arrive if it can; a busy machine only makes these tests weaker, never wrong.
const A_WHILE: Duration = Duration::from_millis(50);

/// A server that echoes each piece and reports it.
async fn echo() -> (SocketAddr, mpsc::UnboundedReceiver<Vec<u8>>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (heard, hears) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let heard = heard.clone();
            tokio::spawn(async move {
                let mut piece = [0; 1024];
                while let Ok(length @ 1..) = stream.read(&mut piece).await {
                    let _ = heard.send(piece[..length].to_vec());
                    if stream.write_all(&piece[..length]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, hears)
}

struct Line {
    proxy: Proxy,
    heard: mpsc::UnboundedReceiver<Vec<u8>>,
}

impl Line {
    async fn start() -> Self {
        let (address, heard) = echo().await;
        Self { proxy: Proxy::start(vec![address]).await.unwrap(), heard }
    }

    async fn call(&self) -> TcpStream {
        TcpStream::connect(self.proxy.address()).await.unwrap()
    }
}

async fn said(stream: &mut TcpStream, text: &[u8]) {
    stream.write_all(text).await.unwrap();
}

async fn heard(stream: &mut TcpStream, length: usize) -> std::io::Result<Vec<u8>> {
    let mut answer = vec![0; length];
    timeout(SOON, stream.read_exact(&mut answer)).await.expect("an answer or an end in time")?;
    Ok(answer)
}

async fn is_silent(stream: &mut TcpStream) -> bool {
    timeout(A_WHILE, stream.read_u8()).await.is_err()
}

#[tokio::test]
async fn what_is_sent_arrives_and_its_end_too() {
    let line = Line::start().await;
    let mut stream = line.call().await;
    said(&mut stream, b"hello").await;
    assert_eq!(heard(&mut stream, 5).await.unwrap(), b"hello");
    stream.shutdown().await.unwrap();
    assert_eq!(timeout(SOON, stream.read(&mut [0])).await.unwrap().unwrap(), 0, "the server's end came through");
    assert_eq!((line.proxy.passed().bytes_up, line.proxy.passed().bytes_down), (5, 5));
}

#[tokio::test]
async fn a_cut_up_line_keeps_what_is_sent_until_it_heals() {
    let mut line = Line::start().await;
    let mut stream = line.call().await;
    line.proxy.set(Weather { cut_up: true, ..Weather::default() });
    said(&mut stream, b"late").await;
    assert!(is_silent(&mut stream).await);
    assert!(line.heard.try_recv().is_err(), "the server heard nothing");
    line.proxy.heal();
    assert_eq!(heard(&mut stream, 4).await.unwrap(), b"late");
}

#[tokio::test]
async fn a_line_cut_down_lets_requests_through_and_keeps_their_answers() {
    let mut line = Line::start().await;
    let mut stream = line.call().await;
    line.proxy.set(Weather { cut_down: true, ..Weather::default() });
    said(&mut stream, b"done?").await;
    assert_eq!(timeout(SOON, line.heard.recv()).await.unwrap().unwrap(), b"done?");
    assert!(is_silent(&mut stream).await);
    line.proxy.heal();
    assert_eq!(heard(&mut stream, 5).await.unwrap(), b"done?");
}

#[tokio::test]
async fn a_dropped_reply_was_done_and_is_never_told() {
    let mut line = Line::start().await;
    let mut stream = line.call().await;
    line.proxy.drop_replies(1);
    said(&mut stream, b"x").await;
    assert_eq!(timeout(SOON, line.heard.recv()).await.unwrap().unwrap(), b"x", "the server did it");
    assert!(heard(&mut stream, 1).await.is_err(), "and its caller gets a reset");
    let mut again = line.call().await;
    said(&mut again, b"y").await;
    assert_eq!(heard(&mut again, 1).await.unwrap(), b"y", "only one was dropped");
    assert_eq!(line.proxy.passed().replies_dropped, 1);
}

#[tokio::test]
async fn an_answer_is_cut_after_so_many_bytes() {
    let line = Line::start().await;
    let mut stream = line.call().await;
    line.proxy.cut_after(3);
    said(&mut stream, b"0123456789").await;
    let mut got = Vec::new();
    let end = timeout(SOON, stream.read_to_end(&mut got)).await.unwrap();
    // A reset may overtake the bytes before it.
    assert!(end.is_err() && b"012".starts_with(&got), "{got:?}");
    assert_eq!(line.proxy.passed().cuts, 1);
}

#[tokio::test]
async fn a_reset_ends_every_open_connection_and_none_that_comes_later() {
    let line = Line::start().await;
    let mut stream = line.call().await;
    said(&mut stream, b"a").await;
    heard(&mut stream, 1).await.unwrap();
    line.proxy.reset();
    assert!(timeout(SOON, stream.read_u8()).await.unwrap().is_err());
    let mut later = line.call().await;
    said(&mut later, b"b").await;
    assert_eq!(heard(&mut later, 1).await.unwrap(), b"b");
    assert_eq!(line.proxy.passed().resets, 1);
}

#[tokio::test]
async fn a_half_open_connection_is_taken_and_never_served() {
    let mut line = Line::start().await;
    line.proxy.set(Weather { half_open: true, ..Weather::default() });
    let mut stream = line.call().await;
    said(&mut stream, b"anyone?").await;
    assert!(is_silent(&mut stream).await);
    assert!(line.heard.try_recv().is_err());
    line.proxy.reset();
    assert!(timeout(SOON, stream.read_u8()).await.unwrap().is_err());
}

#[tokio::test]
async fn connections_go_to_the_next_server_that_accepts_them() {
    let dead = TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap();
    let (alive, _heard) = echo().await;
    let proxy = Proxy::start(vec![dead, alive]).await.unwrap();
    for _ in 0..4 {
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        said(&mut stream, b"z").await;
        assert_eq!(heard(&mut stream, 1).await.unwrap(), b"z");
    }
}

#[test]
fn a_slow_line_takes_the_time_of_its_bytes() {
    let ms = Duration::from_millis;
    let weather = Weather { delay: ms(200), jitter: ms(100), bytes_per_s: 1_000, ..Weather::default() };
    assert_eq!(wait(&weather, 500, 0.5), ms(750));
    assert_eq!(wait(&Weather::default(), 500, 0.5), Duration::ZERO);
}
