//! The start of the API: the conditions on which it exits, and those that it waits for.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use stokehold_api::config::Config;
use stokehold_api::run;
use stokehold_tests::redis_server::RedisServer;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::stack::{PATIENCE, config, object_store};

/// What there is before a replica starts.
struct Before {
    dir: TempDir,
    redis: RedisServer,
    config: Config,
    listener: TcpListener,
    url: String,
    ends: CancellationToken,
}

impl Before {
    async fn start(settings: &[&str]) -> Self {
        let (dir, ends) = (TempDir::new().unwrap(), CancellationToken::new());
        std::fs::create_dir(data(&dir)).unwrap();
        let redis = RedisServer::start(&data(&dir), settings);
        let config = config(&redis, object_store(dir.path(), ends.clone()).await);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        Self { dir, redis, config, listener, url, ends }
    }
}

/// The data of Redis.
fn data(dir: &TempDir) -> PathBuf {
    dir.path().join("redis")
}

async fn refusal(extra: &[&str], ephemeral: bool) -> Option<String> {
    let Before { dir: _dir, redis: _redis, mut config, listener, url, ends } = Before::start(extra).await;
    config.ephemeral = ephemeral;
    let serving = tokio::spawn(run(config, listener, ends.clone()));
    let refused = tokio::select! {
        end = serving => Some(format!("{:#}", end.unwrap().unwrap_err())),
        up = reqwest::get(format!("{url}/healthz")) => { up.unwrap(); None },
    };
    ends.cancel();
    refused
}

#[tokio::test]
async fn a_redis_that_could_lose_jobs_is_refused_with_what_to_change() {
    let evicting = refusal(&["--maxmemory-policy", "allkeys-lru"], false).await.unwrap();
    assert!(evicting.contains("noeviction"), "{evicting}");
    let forgetful = refusal(&["--appendonly", "no"], false).await.unwrap();
    assert!(forgetful.contains("--ephemeral"), "{forgetful}");
    assert_eq!(refusal(&["--appendonly", "no"], true).await, None);
}

/// A proxy to `target` that closes the first connection that sends each of these words, one word after the other.
/// Returns its address and the words that no connection has sent yet.
async fn hanging_up(target: SocketAddr, words: &'static [&'static str]) -> (SocketAddr, Arc<Mutex<Vec<&'static str>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let unsaid = Arc::new(Mutex::new(words.to_vec()));
    let left = unsaid.clone();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let (mut server, unsaid) = (TcpStream::connect(target).await.unwrap(), unsaid.clone());
            tokio::spawn(async move {
                let (mut said, mut answer) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
                while !unsaid.lock().unwrap().is_empty() {
                    tokio::select! {
                        read = client.read(&mut said) => {
                            let Ok(bytes @ 1..) = read else { return };
                            let text = String::from_utf8_lossy(&said[..bytes]).into_owned();
                            let next = unsaid.lock().unwrap().first().copied();
                            if next.is_some_and(|word| text.contains(word)) {
                                unsaid.lock().unwrap().remove(0);
                                return;
                            }
                            server.write_all(&said[..bytes]).await.unwrap();
                        }
                        read = server.read(&mut answer) => {
                            let Ok(bytes @ 1..) = read else { return };
                            client.write_all(&answer[..bytes]).await.unwrap();
                        }
                    }
                }
                let _ = copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    (address, left)
}

/// Each step of the start sends another command to Redis, and at any of them Redis may be unavailable.
#[tokio::test]
async fn a_redis_that_goes_away_at_any_step_of_the_start_is_waited_for() {
    let Before { dir: _dir, redis, mut config, listener, url, ends } = Before::start(&[]).await;
    let (way, unsaid) =
        hanging_up(([127, 0, 0, 1], redis.port()).into(), &["INFO", "CONFIG", "GETDEL", "SUBSCRIBE"]).await;
    config.redis.url = format!("redis://{way}");
    let serving = tokio::spawn(run(config, listener, ends.clone()));
    tokio::select! {
        end = serving => panic!("it ended: {:#}", end.unwrap().unwrap_err()),
        up = reqwest::get(format!("{url}/healthz")) => assert_eq!(up.unwrap().status(), 200),
    }
    assert_eq!(*unsaid.lock().unwrap(), Vec::<&str>::new(), "every step was broken once");
    ends.cancel();
}

/// A client of a replica that starts during an outage is refused as quickly as one of a running replica.
#[tokio::test]
async fn a_replica_that_starts_without_redis_refuses_and_serves_once_there_is_one() {
    let Before { dir, redis, mut config, listener, url, ends } = Before::start(&[]).await;
    config.limits.queue_timeout_ms = 1;
    let port = redis.port();
    drop(redis);
    let mut serving = tokio::spawn(run(config, listener, ends.clone()));

    let client = reqwest::Client::new();
    let refused = client.post(format!("{url}/v1/jobs")).body("{}").send().await.unwrap();
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (503, &"1".parse().unwrap()));
    let problem: serde_json::Value = serde_json::from_str(&refused.text().await.unwrap()).unwrap();
    assert_eq!(problem["code"], "unavailable", "{problem}");
    let chat = client.post(format!("{url}/openai/v1/chat/completions")).body("{}").send().await.unwrap();
    let chat: serde_json::Value = serde_json::from_str(&chat.text().await.unwrap()).unwrap();
    assert_eq!(chat["error"]["code"], "unavailable", "{chat}");
    let ready = client.get(format!("{url}/readyz")).send().await.unwrap();
    assert_eq!(ready.status(), 503);
    let ready: serde_json::Value = serde_json::from_str(&ready.text().await.unwrap()).unwrap();
    assert_eq!(ready, json!({"ready": false, "redis": false, "s3": false, "failing": []}));

    let _redis = RedisServer::start_on(port, &data(&dir), &[]).expect("its port is still free");
    tokio::select! {
        end = &mut serving => panic!("it ended: {end:?}"),
        () = async {
            while client.get(format!("{url}/readyz")).send().await.unwrap().status() != 200 {
                sleep(Duration::from_millis(20)).await;
            }
        } => {}
    }
    ends.cancel();
    serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_replica_that_waits_for_redis_stops_when_it_is_asked_to() {
    let Before { dir: _dir, redis, config, listener, ends, .. } = Before::start(&[]).await;
    drop(redis);
    let serving = tokio::spawn(run(config, listener, ends.clone()));
    ends.cancel();
    timeout(PATIENCE, serving).await.unwrap().unwrap().unwrap();
}
