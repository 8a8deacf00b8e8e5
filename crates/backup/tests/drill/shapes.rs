//! Keys of every type and size, and a queue that continues while it is copied.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, TryRecvError};
use std::time::Duration;

use stokehold_queue::Queue;
use stokehold_queue::backup::{Entry, Root, Source, Target};
use stokehold_queue::{Error, now_ms};

use crate::world::{World, populate};

/// The value of every key in Redis, read by its own commands.
async fn dump(world: &World) -> BTreeMap<String, String> {
    let mut redis = world.raw().await;
    let mut keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut redis).await.unwrap();
    keys.sort();
    let mut found = BTreeMap::new();
    for key in keys {
        let expires: i64 = redis::cmd("PEXPIRETIME").arg(&key).query_async(&mut redis).await.unwrap();
        let kind: String = redis::cmd("TYPE").arg(&key).query_async(&mut redis).await.unwrap();
        let ask: &[&str] = match kind.as_str() {
            "string" => &["GET"],
            "hash" => &["HGETALL"],
            "list" => &["LRANGE", "0", "-1"],
            "set" => &["SMEMBERS"],
            "zset" => &["ZRANGE", "0", "-1", "WITHSCORES"],
            _ => &["XRANGE", "-", "+"],
        };
        let mut command = redis::cmd(ask[0]);
        let value: redis::Value = command.arg(&key).arg(&ask[1..]).query_async(&mut redis).await.unwrap();
        // Hashes and sets have no order.
        let value = match value {
            redis::Value::Array(members) if kind == "hash" => {
                let mut pairs: Vec<String> = members.chunks(2).map(|pair| format!("{pair:?}")).collect();
                pairs.sort();
                pairs.join(",")
            }
            redis::Value::Array(members) if kind == "set" => {
                let mut members: Vec<String> = members.iter().map(|member| format!("{member:?}")).collect();
                members.sort();
                members.join(",")
            }
            value => format!("{value:?}"),
        };
        let mut last = String::new();
        if kind == "stream" {
            let info: Vec<redis::Value> =
                redis::cmd("XINFO").arg("STREAM").arg(&key).query_async(&mut redis).await.unwrap();
            let at = info.iter().position(|word| *word == redis::Value::BulkString(b"last-generated-id".to_vec()));
            last = format!("{:?}", info[at.unwrap() + 1]);
        }
        found.insert(key, format!("{kind} {expires} {last} {value}"));
    }
    found
}

async fn entries(world: &World) -> Vec<Entry> {
    let mut entries = Vec::new();
    let source = Source::connect(&world.redis()).await.unwrap();
    let sink = |entry| {
        entries.push(entry);
        Ok::<(), Error>(())
    };
    source.read(None, sink).await.unwrap();
    entries
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_every_type_and_size_are_what_they_were() {
    let world = World::new().await;
    let mut redis = world.raw().await;
    let mut pipe = redis::pipe();
    for size in [1_usize, 999, 1_000, 1_001, 2_000, 3_500] {
        let key = |kind: &str| format!("{{stoke:0}}:future:{kind}:{size}");
        for n in 0..size {
            let member = [&n.to_be_bytes()[..], b"\xff\n\""].concat();
            pipe.hset(key("hash"), &member, n).ignore();
            pipe.rpush(key("list"), &member).ignore();
            pipe.sadd(key("set"), &member).ignore();
            pipe.zadd(key("zset"), &member, n as f64 / 3.0).ignore();
            pipe.cmd("XADD").arg(key("stream")).arg(format!("{}-7", n + 1)).arg("j").arg(&member).ignore();
        }
        pipe.set(key("string"), vec![0xfe_u8; size]).ignore();
        pipe.pexpire_at(key("hash"), now_ms() as i64 + 3_600_000).ignore();
        // The last entry is deleted, and its id is not reused.
        pipe.cmd("XADD").arg(key("stream")).arg("999999-1").arg("j").arg("gone").ignore();
        pipe.cmd("XDEL").arg(key("stream")).arg("999999-1").ignore();
    }
    pipe.query_async::<()>(&mut redis).await.unwrap();

    let before = dump(&world).await;
    assert_eq!(before.len(), 36);
    let copied = entries(&world).await;
    assert!(copied.iter().any(|entry| entry.is_more), "large ones come in parts");
    world.wipe().await;
    let target = Target::connect(world.redis()).await.unwrap();
    // Twice: a second restore writes the same values.
    for _ in 0..2 {
        for entries in copied.chunks(3) {
            assert_eq!(target.write(entries).await.unwrap(), 0);
        }
    }
    let after = dump(&world).await;
    for (key, value) in &before {
        assert!(after.get(key) == Some(value), "{key} is another");
    }
    assert_eq!(after.len(), before.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_while_it_is_copied_is_said_and_no_job_is_missing() {
    let world = World::new().await;
    let queue = world.queue().await;
    let made = populate(&queue, &world.objects, 500).await;
    let source = Source::connect(&world.redis()).await.unwrap();
    // A writer that ignores the pause: the copy itself, which ends a job as soon as it has the first key.
    let mut redis = redis::Client::open(world.redis().url).unwrap().get_connection().unwrap();
    let mut seen = Vec::new();
    let sink = |entry: Entry| {
        if seen.is_empty() {
            redis::cmd("SET").arg("{stoke:0}:future:late").arg("1").exec(&mut redis).unwrap();
        }
        seen.push(entry);
        Ok::<(), Error>(())
    };
    let moments = source.read(None, sink).await.unwrap();
    assert_eq!(moments.iter().map(|moment| moment.is_exact).collect::<Vec<_>>(), [false, true, true]);
    assert_eq!(moments[0].root, Root::Shard(0));
    for id in &made.ids {
        let name = format!("j:{id}");
        assert!(seen.iter().any(|entry| entry.name.0 == name.as_bytes()), "{id} is missing");
    }
    assert!(queue.get(made.ids[0]).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_never_rests_waits_while_each_root_is_copied_and_then_goes_on() {
    let world = World::new().await;
    populate(&world.queue().await, &world.objects, 200).await;
    let source = Source::connect(&world.redis()).await.unwrap();
    let mut redis = redis::Client::open(world.redis().url).unwrap().get_connection().unwrap();
    let (stop, stopped) = mpsc::channel::<()>();
    let (wrote, written) = mpsc::channel();
    let writer = std::thread::spawn(move || {
        while stopped.try_recv() == Err(TryRecvError::Empty) {
            redis::cmd("INCR").arg("somebody's").exec(&mut redis).unwrap();
            let _ = wrote.send(());
        }
    });
    written.recv().unwrap();
    let moments = source.read(Some(Duration::from_secs(60)), |_| Ok::<(), Error>(())).await.unwrap();
    assert!(moments.iter().all(|moment| moment.is_exact), "nothing was written meanwhile: {moments:?}");
    // No pause is left behind.
    while written.try_recv().is_ok() {}
    written.recv_timeout(Duration::from_secs(30)).unwrap();
    stop.send(()).unwrap();
    writer.join().unwrap();
}
