//! kill -9 in the middle of writes. Every acknowledged write is complete, and no partial write is visible.
//!
//! A killed process leaves the kernel's caches, so this shows that writes are ordered and atomic. That they are synced
//! too can only be checked by reading `disk::commit`, and on a machine that loses power.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sha2::{Digest, Sha256};
use stokehold_objects::Objects;
use stokehold_objects::store::serve;
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::server::{store_config, store_endpoint, store_in};

const DIR: &str = "STOKE_TEST_STORE_DIR";
const ROUNDS: usize = 3;
const WRITERS: usize = 8;

/// Acknowledged writes before the kill.
const ENOUGH: usize = 60;

/// The store in a separate process: this test binary once more. Does nothing unless `DIR` names its folder.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "the child of the test below"]
async fn store_process() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("\nlistening on http://{}", listener.local_addr().unwrap());
    serve(listener, store_config(Path::new(&dir)), std::future::pending()).await.unwrap();
}

struct StoreProcess(Child);

impl Drop for StoreProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(dir: &Path) -> (StoreProcess, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::store_process", "--ignored", "--nocapture"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let url = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("listening on ").map(str::to_owned));
    (StoreProcess(child), url.expect("the child says where it listens"))
}

/// A body of a length and content that only this key has.
fn body(key: &str) -> Bytes {
    let seed: [u8; 32] = Sha256::digest(key).into();
    let length = 1 + usize::from(u16::from_le_bytes([seed[0], seed[1]])) * 8;
    seed.iter().copied().cycle().take(length).collect()
}

async fn write(
    objects: Objects,
    round: usize,
    writer: usize,
    acknowledged: Arc<Mutex<BTreeSet<String>>>,
    enough: Arc<Notify>,
) {
    for n in 0.. {
        let key = format!("{round}/{writer}/{n}");
        if objects.put(&key, body(&key), "text/plain").await.is_err() {
            return;
        }
        let mut acknowledged = acknowledged.lock().unwrap();
        acknowledged.insert(key);
        if acknowledged.len() >= ENOUGH * (round + 1) {
            enough.notify_one();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_objects_survive_kill_9() {
    let dir = TempDir::new().unwrap();
    let acknowledged = Arc::new(Mutex::new(BTreeSet::new()));
    for round in 0..ROUNDS {
        let (process, url) = start(dir.path());
        let objects = Objects::connect(store_endpoint(&url).config()).await.unwrap();
        objects.ensure_bucket().await.unwrap();
        let enough = Arc::new(Notify::new());
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| tokio::spawn(write(objects.clone(), round, writer, acknowledged.clone(), enough.clone())))
            .collect();
        enough.notified().await;
        kill(Pid::from_raw(process.0.id().cast_signed()), Signal::SIGKILL).unwrap();
        for writer in writers {
            writer.await.unwrap();
        }
    }

    let server = store_in(dir.path()).await;
    let objects = server.endpoint.objects().await;
    let mut found = BTreeSet::new();
    let mut cursor = None;
    loop {
        let page = objects.list("", cursor.as_deref(), 1000).await.unwrap();
        for object in page.objects {
            let stored = objects.get(&object.key, 1 << 20).await.unwrap();
            assert!(stored == Some(body(&object.key)), "{} is not whole", object.key);
            found.insert(object.key);
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    let acknowledged = acknowledged.lock().unwrap().clone();
    assert!(acknowledged.len() >= ENOUGH * ROUNDS);
    let lost: Vec<_> = acknowledged.difference(&found).collect();
    assert!(lost.is_empty(), "lost {lost:?}");
    server.stop().await;
}
