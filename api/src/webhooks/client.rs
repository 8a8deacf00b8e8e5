//! The only client that sends to addresses from tenants. It resolves names itself and connects only to checked
//! addresses, so that a name cannot change its meaning between the check and the connection.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use chrono::DateTime;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::redirect::Policy;
use stokehold_queue::now_ms;
use tokio::sync::Semaphore;

use super::guard::{self, Refused};
use crate::config::Webhooks;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of one attempt, from resolving the name to the last byte read of the response.
pub(crate) const TRY_MAX: Duration = Duration::from_secs(15);

/// Maximum number of bytes read of a response, so that a receiver can finish writing a small one. The content is
/// ignored.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Maximum number of addresses of a name. No legitimate name has more.
const ADDRESSES_MAX: usize = 64;

/// Maximum number of concurrent lookups. The system's resolver has no timeout and blocks one thread per lookup; hanging
/// lookups must not use up all threads.
const LOOKUPS_MAX: usize = 32;

/// Outcomes of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The receiver answered.
    Status {
        status: u16,
        /// The pause that the receiver requests, if any.
        retry_after: Option<Duration>,
    },
    /// The request was not sent.
    Refused(Refused),
    /// The receiver did not answer.
    Failed(SendError),
}

/// Reasons for which the receiver did not answer. The text is shown to the tenant, so it must not reveal anything about
/// this network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SendError {
    #[error("the host name could not be resolved")]
    Resolve,
    #[error("could not connect, or the TLS handshake failed")]
    Connect,
    #[error("could not connect within 5 s")]
    ConnectTimeout,
    #[error("no answer within 15 s")]
    Timeout,
    #[error("the connection closed before an answer arrived")]
    Broken,
}

/// Name resolver. Tests replace it.
pub(crate) type Lookup = Arc<dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync>;

/// The webhook client.
pub(crate) struct Client {
    http: reqwest::Client,
    config: Webhooks,
}

impl Client {
    /// Creates a client with the system's resolver.
    pub(crate) fn new(config: &Webhooks) -> Result<Self, reqwest::Error> {
        let lookup = |name: &str| Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect());
        Self::with_lookup(config, Arc::new(lookup))
    }

    pub(crate) fn with_lookup(config: &Webhooks, lookup: Lookup) -> Result<Self, reqwest::Error> {
        let resolver = Checked { config: config.clone(), lookup, permits: Arc::new(Semaphore::new(LOOKUPS_MAX)) };
        let http = reqwest::Client::builder()
            .user_agent(concat!("Stokehold-Webhooks/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(Arc::new(resolver))
            .redirect(Policy::none())
            .referer(false)
            .no_proxy()
            .https_only(!config.allow_http)
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(TRY_MAX)
            // A kept connection would outlive the check of its address.
            .pool_max_idle_per_host(0)
            .build()?;
        Ok(Self { http, config: config.clone() })
    }

    /// Sends `body` once.
    pub(crate) async fn post(&self, url: &str, headers: HeaderMap, body: String) -> Answer {
        // Literal addresses never reach the resolver, and the rules may have changed since the URL was accepted.
        let url = match guard::check_url(&self.config, url) {
            Ok(url) => url,
            Err(refused) => return Answer::Refused(refused),
        };
        let sent = self.http.post(url).header(CONTENT_TYPE, "application/json").headers(headers).body(body).send();
        let mut answer = match sent.await {
            Ok(answer) => answer,
            Err(error) => return why(&error),
        };
        let (status, retry_after) = (answer.status().as_u16(), retry_after(answer.headers(), now_ms()));
        let mut read = 0;
        // Only the status counts: a response that is interrupted or too slow is cut off and still valid.
        while read < ANSWER_BYTES_MAX {
            match answer.chunk().await {
                Ok(Some(bytes)) => read += bytes.len(),
                Ok(None) | Err(_) => break,
            }
        }
        Answer::Status { status, retry_after }
    }
}

/// Classifies an error by the remedy of the receiver's owner.
fn why(error: &reqwest::Error) -> Answer {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(unresolved) = cause.downcast_ref::<Unresolved>() {
            return match unresolved {
                Unresolved::Refused(refused) => Answer::Refused(*refused),
                Unresolved::Unknown => Answer::Failed(SendError::Resolve),
            };
        }
        source = cause.source();
    }
    Answer::Failed(match (error.is_connect(), error.is_timeout()) {
        (true, true) => SendError::ConnectTimeout,
        (true, false) => SendError::Connect,
        (false, true) => SendError::Timeout,
        (false, false) => SendError::Broken,
    })
}

/// Pause that a receiver requests with `Retry-After`: seconds, or a date.
fn retry_after(headers: &HeaderMap, now_ms: u64) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let at_ms = DateTime::parse_from_rfc2822(text).ok()?.timestamp_millis();
    u64::try_from(at_ms).ok()?.checked_sub(now_ms).map(Duration::from_millis)
}

/// Reasons for which a name has no usable address.
#[derive(Debug, thiserror::Error)]
enum Unresolved {
    #[error(transparent)]
    Refused(Refused),
    #[error("the name could not be resolved")]
    Unknown,
}

/// A resolver that returns only checked addresses.
struct Checked {
    config: Webhooks,
    lookup: Lookup,
    permits: Arc<Semaphore>,
}

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let (config, lookup, permits) = (self.config.clone(), self.lookup.clone(), self.permits.clone());
        Box::pin(async move {
            let permit = permits.acquire_owned().await.map_err(|_| Unresolved::Unknown)?;
            let looked_up = tokio::task::spawn_blocking(move || {
                // Held by the thread: the caller may have timed out long before the lookup ends.
                let _permit = permit;
                lookup(name.as_str())
            });
            let ips = looked_up.await.ok().and_then(Result::ok).ok_or(Unresolved::Unknown)?;
            Ok(checked(&config, &ips)?)
        })
    }
}

/// Checks all addresses of a name. If one is refused, all are: a name that resolves to both internal and external
/// addresses is not trusted at all.
fn checked(config: &Webhooks, ips: &[IpAddr]) -> Result<Addrs, Unresolved> {
    if ips.is_empty() || ips.len() > ADDRESSES_MAX {
        return Err(Unresolved::Unknown);
    }
    ips.iter().try_for_each(|ip| guard::check(config, *ip)).map_err(Unresolved::Refused)?;
    let addresses: Vec<SocketAddr> = ips.iter().map(|ip| SocketAddr::new(*ip, 0)).collect();
    Ok(Box::new(addresses.into_iter()))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Router;
    use axum::http::StatusCode;
    use axum::response::IntoResponse;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A receiver on loopback that counts its requests.
    async fn receiver(status: StatusCode, headers: &'static [(&str, &str)]) -> (u16, Arc<AtomicUsize>) {
        let (visits, listener) = (Arc::new(AtomicUsize::new(0)), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let (port, counted) = (listener.local_addr().unwrap().port(), visits.clone());
        let app = Router::new().fallback(move || async move {
            counted.fetch_add(1, Ordering::SeqCst);
            let mut answer = (status, "x".repeat(200_000)).into_response();
            for (name, value) in headers {
                answer.headers_mut().insert(*name, value.parse().unwrap());
            }
            answer
        });
        tokio::spawn(async move { axum::serve(listener, app).await });
        (port, visits)
    }

    fn dev(port: u16) -> Webhooks {
        Webhooks { allow_private: true, allow_http: true, ports: vec![port], ..Webhooks::default() }
    }

    /// A resolver that returns each set of addresses in turn, and the last one for all later lookups.
    fn answers(sets: &[&[&str]]) -> Lookup {
        let sets: Vec<Vec<IpAddr>> =
            sets.iter().map(|set| set.iter().map(|ip| ip.parse().unwrap()).collect()).collect();
        let next = Mutex::new(0);
        Arc::new(move |_| {
            let mut next = next.lock().unwrap();
            let set = sets[*next].clone();
            *next = (*next + 1).min(sets.len() - 1);
            Ok(set)
        })
    }

    async fn post(client: &Client, url: &str) -> Answer {
        client.post(url, HeaderMap::new(), "{}".to_owned()).await
    }

    #[tokio::test]
    async fn a_name_that_leads_inside_is_not_connected_to() {
        let (port, visits) = receiver(StatusCode::OK, &[]).await;
        let config = Webhooks { allow_private: false, ..dev(port) };
        for set in [
            &["127.0.0.1"][..],
            &["169.254.169.254"],
            &["8.8.8.8", "127.0.0.1"],
            &["::ffff:127.0.0.1"],
            &["64:ff9b::7f00:1"],
            &["10.0.0.1"],
        ] {
            let client = Client::with_lookup(&config, answers(&[set])).unwrap();
            assert_eq!(
                post(&client, &format!("http://hooks.test:{port}/")).await,
                Answer::Refused(Refused::Address),
                "{set:?}"
            );
        }
        let client = Client::new(&config).unwrap();
        for host in ["127.0.0.1", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "localhost"] {
            let answer = post(&client, &format!("http://{host}:{port}/")).await;
            assert_eq!(answer, Answer::Refused(Refused::Address), "{host}");
        }
        assert_eq!(visits.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn a_name_that_is_bound_again_is_checked_again() {
        let (port, visits) = receiver(StatusCode::OK, &[]).await;
        // A metadata address takes the place of a private one, because a test has no public address: the same check
        // refuses both.
        let client = Client::with_lookup(&dev(port), answers(&[&["127.0.0.1"], &["169.254.169.254"]])).unwrap();
        let url = format!("http://hooks.test:{port}/");
        assert_eq!(post(&client, &url).await, Answer::Status { status: 200, retry_after: None });
        assert_eq!(post(&client, &url).await, Answer::Refused(Refused::Address));
        assert_eq!(visits.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_redirect_is_an_answer_and_not_followed() {
        let (port, visits) = receiver(StatusCode::TEMPORARY_REDIRECT, &[("location", "http://127.0.0.1/")]).await;
        let client = Client::with_lookup(&dev(port), answers(&[&["127.0.0.1"]])).unwrap();
        let answer = post(&client, &format!("http://hooks.test:{port}/")).await;
        assert_eq!(answer, Answer::Status { status: 307, retry_after: None });
        assert_eq!(visits.load(Ordering::SeqCst), 1);
    }

    /// A receiver that sends `start` and then a byte from time to time, without end.
    async fn dripping(start: &'static str) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mut request, mut byte) = (Vec::new(), [0]);
            while !request.ends_with(b"\r\n\r\n{}") && stream.read_exact(&mut byte).await.is_ok() {
                request.push(byte[0]);
            }
            let mut dripped = stream.write_all(start.as_bytes()).await;
            while dripped.is_ok() {
                tokio::time::sleep(Duration::from_millis(100)).await;
                dripped = stream.write_all(b"x").await;
            }
        });
        port
    }

    #[tokio::test]
    async fn an_answer_that_drips_is_not_waited_for() {
        let sent = async |start| {
            let port = dripping(start).await;
            let client = Client::with_lookup(&dev(port), answers(&[&["127.0.0.1"]])).unwrap();
            post(&client, &format!("http://hooks.test:{port}/")).await
        };
        let both = async {
            tokio::join!(
                sent("HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n"),
                sent("HTTP/1.1 200 OK\r\nx-slow: ")
            )
        };
        let (body, head) = tokio::time::timeout(TRY_MAX * 4, both).await.expect("both are cut off");
        // The status was sent before the slow part; in the other case it never was.
        assert_eq!(body, Answer::Status { status: 200, retry_after: None });
        assert_eq!(head, Answer::Failed(SendError::Timeout));
    }

    #[tokio::test]
    async fn what_goes_wrong_is_told_without_addresses() {
        let (port, _) = receiver(StatusCode::SERVICE_UNAVAILABLE, &[("retry-after", "120")]).await;
        let client = Client::with_lookup(&dev(port), answers(&[&["127.0.0.1"]])).unwrap();
        let asked = Answer::Status { status: 503, retry_after: Some(Duration::from_secs(120)) };
        assert_eq!(post(&client, &format!("http://hooks.test:{port}/")).await, asked);

        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let client = Client::with_lookup(&dev(closed), answers(&[&["127.0.0.1"]])).unwrap();
        let answer = post(&client, &format!("http://hooks.test:{closed}/")).await;
        assert_eq!(answer, Answer::Failed(SendError::Connect));

        let unknown: Lookup = Arc::new(|_| Err(io::Error::other("no such name")));
        let client = Client::with_lookup(&dev(closed), unknown).unwrap();
        let answer = post(&client, &format!("http://hooks.test:{closed}/")).await;
        assert_eq!(answer, Answer::Failed(SendError::Resolve));

        // A receiver that closes the connection without a response.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = silent.local_addr().unwrap().port();
        tokio::spawn(async move { while silent.accept().await.is_ok() {} });
        let client = Client::with_lookup(&dev(port), answers(&[&["127.0.0.1"]])).unwrap();
        let answer = post(&client, &format!("http://hooks.test:{port}/")).await;
        assert_eq!(answer, Answer::Failed(SendError::Broken));
    }

    #[tokio::test]
    async fn plain_http_is_not_sent_unless_allowed() {
        let (port, visits) = receiver(StatusCode::OK, &[]).await;
        let config = Webhooks { allow_http: false, ..dev(port) };
        let client = Client::with_lookup(&config, answers(&[&["127.0.0.1"]])).unwrap();
        let answer = post(&client, &format!("http://hooks.test:{port}/")).await;
        assert_eq!(answer, Answer::Refused(Refused::Scheme));
        assert_eq!(visits.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_receiver_may_name_a_pause_or_a_time() {
        let now_ms = crate::time_format::parse("2026-01-01T00:00:00Z").unwrap();
        let read = |text: &'static str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]);
            retry_after(&headers, now_ms).map(|pause| pause.as_secs())
        };
        assert_eq!(read("30"), Some(30));
        assert_eq!(read("Thu, 01 Jan 2026 00:02:00 GMT"), Some(120));
        assert_eq!((read("Wed, 31 Dec 2025 23:00:00 GMT"), read("soon"), read("-5")), (None, None, None));
    }
}
