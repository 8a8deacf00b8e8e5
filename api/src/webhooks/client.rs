//! The one client that sends to addresses tenants chose. Names are resolved here and only checked addresses are handed on to be
//! connected to, so no name can mean something else between the check and the connection.

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

/// One try, from the name to the last byte read of the answer.
pub(crate) const TRY_MAX: Duration = Duration::from_secs(15);

/// So much of an answer is read, so that a receiver may finish writing a small one; nothing looks at it.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// More addresses than any honest name has.
const ADDRESSES_MAX: usize = 64;

/// The system's resolver has no time limit of its own and holds a thread each; those that hang must not take them all.
const LOOKUPS_MAX: usize = 32;

/// What came of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The receiver answered.
    Status {
        status: u16,
        /// What it asked for, if it did.
        retry_after: Option<Duration>,
    },
    /// It was not sent.
    Refused(Refused),
    /// There is no answer.
    Failed(SendError),
}

/// Why there is no answer. The text is shown to the tenant, so it must not reveal anything about this network.
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

/// Looks names up. Tests bring their own.
pub(crate) type Lookup = Arc<dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync>;

/// The client.
pub(crate) struct Client {
    http: reqwest::Client,
    config: Webhooks,
}

impl Client {
    /// With the system's resolver.
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

    /// Sends `body`, once.
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
        // The status is all that counts: an answer that breaks off or drips is cut off and has still been given.
        while read < ANSWER_BYTES_MAX {
            match answer.chunk().await {
                Ok(Some(bytes)) => read += bytes.len(),
                Ok(None) | Err(_) => break,
            }
        }
        Answer::Status { status, retry_after }
    }
}

/// Sorts an error by what the receiver's owner can do about it.
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

/// How long a receiver asks to be left alone: seconds, or a date.
fn retry_after(headers: &HeaderMap, now_ms: u64) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let at_ms = DateTime::parse_from_rfc2822(text).ok()?.timestamp_millis();
    u64::try_from(at_ms).ok()?.checked_sub(now_ms).map(Duration::from_millis)
}

/// Why a name gave no address.
#[derive(Debug, thiserror::Error)]
enum Unresolved {
    #[error(transparent)]
    Refused(Refused),
    #[error("the name could not be resolved")]
    Unknown,
}

/// Resolves, and hands on checked addresses only.
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
                // Held by the thread: who asked may have given up long before the lookup ends.
                let _permit = permit;
                lookup(name.as_str())
            });
            let ips = looked_up.await.ok().and_then(Result::ok).ok_or(Unresolved::Unknown)?;
            Ok(checked(&config, &ips)?)
        })
    }
}

/// All of them or none: a name that leads inside as well as outside is not trusted at all.
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

    /// A receiver on loopback that counts its visitors.
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

    /// Answers with each set of addresses in turn, the last one for ever.
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
        // Metadata in the place of a private address, since a test has no public one: both are refused by the same check.
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

    /// A receiver that sends `start` and then a byte now and then, for ever.
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
        // Its word was given before it dripped; the other's never was.
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

        // A receiver that hangs up without an answer.
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
