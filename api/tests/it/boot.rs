//! What the API refuses to start on.

use stokehold_api::run;
use stokehold_tests::redis_server::RedisServer;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::stack::{config, object_store};

async fn refusal(extra: &[&str], ephemeral: bool) -> Option<String> {
    let (dir, ends) = (TempDir::new().unwrap(), CancellationToken::new());
    let data = dir.path().join("redis");
    std::fs::create_dir(&data).unwrap();
    let redis = RedisServer::start(&data, extra);
    let mut config = config(&redis, object_store(dir.path(), ends.clone()).await);
    config.ephemeral = ephemeral;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/healthz", listener.local_addr().unwrap());
    let serving = tokio::spawn(run(config, listener, ends.clone()));
    let refused = tokio::select! {
        end = serving => Some(format!("{:#}", end.unwrap().unwrap_err())),
        up = reqwest::get(url) => { up.unwrap(); None },
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
