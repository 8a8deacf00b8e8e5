//! The floor: the minimum work of a job queue on Redis streams, one field per entry, with the result in a key. It
//! guarantees nothing: entries read by a killed worker are never processed.

use std::time::Instant;

use futures::StreamExt as _;
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;
use redis::streams::{StreamReadOptions, StreamReadReply};

use crate::protocol::{self, Request};

const BATCH: usize = 100;
const RESULT: &str = r#"{"ok":true,"note":"yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"}"#;

async fn connect() -> anyhow::Result<MultiplexedConnection> {
    let client = redis::Client::open(std::env::var("BENCH_REDIS_URL")?)?;
    // Blocking reads have no timeout.
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}

pub(crate) async fn client() -> anyhow::Result<()> {
    let mut redis = connect().await?;
    let payload = protocol::payload().to_string();
    protocol::serve(async |request| match request {
        Request::Submit { how, count, .. } => {
            let add = || redis.clone().xadd_owned("raw:q", &payload);
            match how {
                protocol::How::One => {
                    for _ in 0..count {
                        add().await?;
                    }
                }
                protocol::How::Many => {
                    let mut added =
                        futures::stream::iter((0..count).map(|_| add())).buffer_unordered(protocol::SUBMITTERS);
                    while let Some(added) = added.next().await {
                        added?;
                    }
                }
                protocol::How::Bulk => {
                    for at in (0..count).step_by(BATCH) {
                        let mut pipe = redis::pipe();
                        for _ in at..count.min(at + BATCH) {
                            pipe.xadd("raw:q", "*", &[("p", &payload)]).ignore();
                        }
                        pipe.exec_async(&mut redis).await?;
                    }
                }
            }
            Ok(vec![])
        }
        Request::RoundTrips { count } => {
            let mut samples_ms = Vec::with_capacity(count);
            for _ in 0..count {
                let start = Instant::now();
                let _: String = redis.xadd("raw:q", "*", &[("p", payload.as_str()), ("reply", "raw:done")]).await?;
                let _: Option<(String, String)> = redis.blpop("raw:done", 5.0).await?;
                samples_ms.push(start.elapsed().as_secs_f64() * 1_000.0);
            }
            Ok(samples_ms)
        }
    })
    .await
}

trait Add {
    async fn xadd_owned(self, key: &str, payload: &str) -> redis::RedisResult<()>;
}

impl Add for MultiplexedConnection {
    async fn xadd_owned(mut self, key: &str, payload: &str) -> redis::RedisResult<()> {
        let _: String = self.xadd(key, "*", &[("p", payload)]).await?;
        Ok(())
    }
}

pub(crate) async fn worker() -> anyhow::Result<()> {
    let mut redis = connect().await?;
    // The second worker finds an existing group.
    let _: redis::RedisResult<()> = redis.xgroup_create_mkstream("raw:q", "g", "0").await;
    let name = std::process::id().to_string();
    let options = StreamReadOptions::default().group("g", name).count(BATCH).block(5_000);
    println!("ready");
    loop {
        let reply: Option<StreamReadReply> = redis.xread_options(&["raw:q"], &[">"], &options).await?;
        let Some(key) = reply.and_then(|reply| reply.keys.into_iter().next()) else { continue };
        let ids: Vec<&str> = key.ids.iter().map(|entry| entry.id.as_str()).collect();
        let mut pipe = redis::pipe();
        for entry in &key.ids {
            pipe.set(format!("raw:r:{}", entry.id), RESULT).ignore();
            if let Some(reply) = entry.get::<String>("reply") {
                pipe.lpush(reply, RESULT).ignore();
            }
        }
        pipe.xack("raw:q", "g", &ids).ignore().xdel("raw:q", &ids).ignore();
        pipe.exec_async(&mut redis).await?;
    }
}
