//! The floor: the least that a job queue on Redis streams has to do, one field per entry, result kept in a key.

use std::time::{Duration, Instant};

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use redis::streams::{StreamReadOptions, StreamReadReply};
use stokehold_tests::redis_server::RedisServer;

use crate::measure::{CpuWatch, Figures, PAYLOAD_TEXT_BYTES, RoundTrip, rate};

const SINGLE: usize = 5_000;
const BULK: usize = 50_000;
const BATCH: usize = 100;
const ROUND_TRIPS: usize = 300;

pub(crate) async fn measure(server: &RedisServer) -> anyhow::Result<Figures> {
    let client = redis::Client::open(server.url())?;
    let mut redis = client.get_multiplexed_async_connection().await?;
    let payload = format!(r#"{{"text": "{}"}}"#, "x".repeat(PAYLOAD_TEXT_BYTES));
    clear(&mut redis).await?;

    let start = Instant::now();
    for _ in 0..SINGLE {
        let _: String = redis.xadd("raw:q", "*", &[("p", &payload)]).await?;
    }
    let submit_single_per_s = rate(SINGLE, start);

    clear(&mut redis).await?;
    let before = used_memory(&mut redis).await?;
    let start = Instant::now();
    for _ in 0..BULK / BATCH {
        let mut pipe = redis::pipe();
        for _ in 0..BATCH {
            pipe.xadd("raw:q", "*", &[("p", &payload)]).ignore();
        }
        pipe.exec_async(&mut redis).await?;
    }
    let submit_bulk_per_s = rate(BULK, start);
    let redis_bytes_per_job = (used_memory(&mut redis).await? - before) / BULK as f64;

    let processes = vec![("redis".to_owned(), server.pid()), ("worker".to_owned(), std::process::id())];
    let (cpu, start) = (CpuWatch::start(processes), Instant::now());
    drain(&mut redis).await?;
    let (drain_per_s, cpu_s_per_1000) = (rate(BULK, start), cpu.per_1000(BULK));
    let rtt_ms = round_trips(&client, &mut redis, &payload).await?;
    clear(&mut redis).await?;
    Ok(Figures {
        submit_single_per_s: Some(submit_single_per_s),
        submit_bulk_per_s: Some(submit_bulk_per_s),
        drain_per_s: Some(drain_per_s),
        drain2_per_s: None,
        cpu_s_per_1000,
        rtt_ms: Some(rtt_ms),
        redis_bytes_per_job: Some(redis_bytes_per_job),
    })
}

async fn clear(redis: &mut MultiplexedConnection) -> anyhow::Result<()> {
    let keys: Vec<String> = redis::cmd("KEYS").arg("raw:*").query_async(redis).await?;
    for keys in keys.chunks(1_000) {
        let _: () = redis.del(keys).await?;
    }
    Ok(())
}

pub(crate) async fn used_memory(redis: &mut MultiplexedConnection) -> anyhow::Result<f64> {
    let info: String = redis::cmd("INFO").arg("memory").query_async(redis).await?;
    let line = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap_or("0");
    Ok(line.trim().parse()?)
}

async fn drain(redis: &mut MultiplexedConnection) -> anyhow::Result<()> {
    let _: () = redis.xgroup_create_mkstream("raw:q", "g", "0").await?;
    let options = StreamReadOptions::default().group("g", "w").count(BATCH);
    loop {
        let reply: Option<StreamReadReply> = redis.xread_options(&["raw:q"], &[">"], &options).await?;
        let Some(key) = reply.and_then(|reply| reply.keys.into_iter().next()) else { return Ok(()) };
        let ids: Vec<&str> = key.ids.iter().map(|entry| entry.id.as_str()).collect();
        let mut pipe = redis::pipe();
        for id in &ids {
            pipe.set(format!("raw:r:{id}"), r#"{"ok": true}"#).ignore();
        }
        pipe.xack("raw:q", "g", &ids).ignore().xdel("raw:q", &ids).ignore();
        pipe.exec_async(redis).await?;
    }
}

/// XADD, a blocked reader that answers with LPUSH, BLPOP.
async fn round_trips(
    client: &redis::Client,
    redis: &mut MultiplexedConnection,
    payload: &str,
) -> anyhow::Result<RoundTrip> {
    let _: () = redis.del("raw:q").await?;
    let _: () = redis.xgroup_create_mkstream("raw:q", "g", "0").await?;
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(10)));
    let mut reader = client.get_multiplexed_async_connection_with_config(&config).await?;
    let worker = tokio::spawn(async move {
        let options = StreamReadOptions::default().group("g", "w").count(1).block(5_000);
        for _ in 0..ROUND_TRIPS {
            let reply: Option<StreamReadReply> = reader.xread_options(&["raw:q"], &[">"], &options).await?;
            for entry in reply.into_iter().flat_map(|reply| reply.keys).flat_map(|key| key.ids) {
                let mut pipe = redis::pipe();
                pipe.xack("raw:q", "g", &[&entry.id]).ignore().xdel("raw:q", &[&entry.id]).ignore();
                pipe.lpush("raw:done", "1").ignore().exec_async(&mut reader).await?;
            }
        }
        anyhow::Ok(())
    });
    let mut samples_ms = Vec::with_capacity(ROUND_TRIPS);
    for _ in 0..ROUND_TRIPS {
        let start = Instant::now();
        let _: String = redis.xadd("raw:q", "*", &[("p", payload)]).await?;
        let _: Option<(String, String)> = redis.blpop("raw:done", 5.0).await?;
        samples_ms.push(start.elapsed().as_secs_f64() * 1_000.0);
    }
    worker.await??;
    Ok(RoundTrip::of(samples_ms))
}
