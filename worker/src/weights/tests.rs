#![allow(clippy::unwrap_used)]

#[path = "tests/interrupted.rs"]
mod interrupted;
#[path = "tests/owners.rs"]
mod owners;
#[path = "tests/room.rs"]
mod room;
#[path = "tests/server.rs"]
mod server;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::UNIX_EPOCH;

use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::sync::{Notify, mpsc};

use self::server::{Reply, Server};
use super::*;

const PIECE: usize = 64 * 1024;
const SIZE: usize = 16 * PIECE + 100;

const SMALL: Limits = Limits {
    piece_bytes: PIECE as u64,
    write_bytes: 8 * 1024,
    parallel: 4,
    idle: Duration::from_secs(60),
    stall_timeout: Duration::from_secs(5),
};

/// Bytes without repeating parts.
fn content(seed: u8, size: usize) -> Vec<u8> {
    let blocks = (0u64..).flat_map(|block| Sha256::digest([&[seed][..], &block.to_le_bytes()].concat()));
    blocks.take(size).collect()
}

fn sha256(content: &[u8]) -> String {
    hex::encode(Sha256::digest(content))
}

fn file(path: &str, url: &str, content: &[u8]) -> WeightFile {
    WeightFile {
        path: path.to_owned(),
        url: url.to_owned(),
        sha256: sha256(content),
        size_bytes: content.len() as u64,
        headers: BTreeMap::new(),
        owner: Owner::Machine,
        right: Right::Address(url.to_owned()),
    }
}

fn open_with(dir: &TempDir, cap_bytes: u64, limits: Limits) -> Weights {
    Weights::with_limits(&WeightsConfig { dir: dir.path().to_owned(), cap_bytes }, limits).unwrap()
}

fn open(dir: &TempDir) -> Weights {
    open_with(dir, 1 << 30, SMALL)
}

/// Names in the folder, without locks and sets.
fn left(dir: &TempDir) -> Vec<String> {
    let items = fs::read_dir(dir.path().join("weights")).unwrap();
    let names = items.map(|item| item.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name != "sets" && !name.ends_with(".lock")).collect();
    names.sort();
    names
}

fn quiet(_: Progress) {}

#[tokio::test]
async fn files_are_fetched_in_ranges_linked_by_name_and_shared() {
    let (dir, (one, two)) = (tempfile::tempdir().unwrap(), (content(1, SIZE), content(2, 10)));
    let bodies = [one.clone(), two.clone()];
    let server = Server::start(move |asked| Reply::part(asked, &bodies[usize::from(asked.target == "/two")])).await;
    let weights = open(&dir);
    let files = [
        file("model.safetensors", &format!("{}/one", server.origin), &one),
        file("unet/deep/x.bin", &format!("{}/two", server.origin), &two),
        file("unet/same.bin", &format!("{}/two", server.origin), &two),
        file("empty", &format!("{}/none", server.origin), b""),
    ];
    let reported = Mutex::new(Vec::new());
    let set = weights.get(&files, &|progress| reported.lock().unwrap().push(progress)).await.unwrap();
    for (name, content) in
        [("model.safetensors", &one), ("unet/deep/x.bin", &two), ("unet/same.bin", &two), ("empty", &Vec::new())]
    {
        assert_eq!(&fs::read(set.folder.join(name)).unwrap(), content, "{name}");
        assert!(fs::read_link(set.folder.join(name)).unwrap().is_relative());
    }
    assert_eq!(set.blobs.len(), 3);
    assert!(set.blobs.iter().all(|blob| fs::metadata(blob).unwrap().permissions().mode() & 0o777 == 0o444));
    assert_eq!(weights.bytes(), (SIZE + 10) as u64);
    assert_eq!((server.asked().len(), server.sent_bytes()), (17 + 1, (SIZE + 10) as u64));
    let last = *reported.lock().unwrap().last().unwrap();
    assert_eq!((last.done_bytes, last.total_bytes), ((SIZE + 10) as u64, (SIZE + 10) as u64));

    let again = weights.get(&files, &quiet).await.unwrap();
    assert_eq!((again.folder, server.asked().len()), (set.folder, 18));
}

#[tokio::test]
async fn a_wrong_file_fails_with_both_hashes_and_leaves_nothing() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, SIZE));
    let wrong = content(9, SIZE);
    let served = wrong.clone();
    let server = Server::start(move |asked| Reply::part(asked, &served)).await;
    let error = open(&dir).get(&[file("model.safetensors", &server.origin, &body)], &quiet).await.unwrap_err();
    let expected = format!(
        "model.safetensors does not match the pinned hash: expected {}, got {}; deploy again to pin the current file",
        sha256(&body),
        sha256(&wrong)
    );
    assert_eq!(error.to_string(), expected);
    assert!(left(&dir).is_empty(), "{:?}", left(&dir));
    assert!(!dir.path().join("weights").join(format!("{}.lock", sha256(&body))).exists());
}

#[tokio::test]
async fn another_size_is_named() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, SIZE));
    let longer = content(1, SIZE + 1);
    for knows_ranges in [true, false] {
        let served = longer.clone();
        let server =
            Server::start(
                move |asked| {
                    if knows_ranges { Reply::part(asked, &served) } else { Reply::new("200 OK", &served) }
                },
            )
            .await;
        let error = open(&dir).get(&[file("m", &server.origin, &body)], &quiet).await.unwrap_err().to_string();
        assert!(error.contains(&format!("expected {SIZE} bytes, got {}", SIZE + 1)), "{error}");
        assert_eq!(server.asked().len(), 1);
    }
    // Shorter than the start of a later range.
    let server =
        Server::start(|_| Reply::new("416 Range Not Satisfiable", b"").header("content-range", "bytes */7")).await;
    let error = open(&dir).get(&[file("m", &server.origin, &body)], &quiet).await.unwrap_err().to_string();
    assert!(error.contains("got 7;"), "{error}");
    assert!(left(&dir).is_empty());
}

#[tokio::test]
async fn secrets_go_to_their_own_host_only_and_into_no_error() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, SIZE));
    let served = body.clone();
    let other = Server::start(move |asked| Reply::part(asked, &served)).await;
    let leads_to = format!("{}/there?sig=canary-there", other.origin);
    let hub = Server::start(move |_| Reply::new("302 Found", b"").header("location", &leads_to)).await;
    let mut secret = file("m", &format!("{}/here?sig=canary-here", hub.origin), &body);
    for name in ["authorization", "x-api-key", "private-token"] {
        secret.headers.insert(name.to_owned(), "canary-header".to_owned());
    }
    open(&dir).get(&[secret.clone()], &quiet).await.unwrap();
    assert!(hub.asked().iter().all(|asked| asked.headers["private-token"] == "canary-header"));
    let leaked = |text: String| text.contains("canary-h");
    assert!(!leaked(format!("{:?}", other.asked())), "{:?}", other.asked()[0]);
    assert!(!leaked(format!("{secret:?}")));

    // Every kind of failure: no server, a cut connection, invalid data, a refusal, redirect loops.
    let nowhere = TempDir::new().unwrap();
    let hasty = Limits { stall_timeout: Duration::from_millis(100), ..SMALL };
    let cut = Server::start(|asked| Reply::part(asked, &[0; SIZE]).cut_after(0)).await;
    let nonsense = Server::start(|_| Reply::new("no status", b"")).await;
    let refusal = Server::start(|_| Reply::new("404 Not Found", b"no canary-here here")).await;
    let circle = Server::start(|asked| Reply::new("307 Again", b"").header("location", &asked.target)).await;
    let origins = [&cut.origin, &nonsense.origin, &refusal.origin, &circle.origin];
    for origin in
        origins.map(String::as_str).into_iter().chain(["http://127.0.0.1:1", "ftp://h", "http://[canary-here"])
    {
        let file = WeightFile { url: format!("{origin}/here?sig=canary-here"), ..secret.clone() };
        let error = open_with(&nowhere, 1 << 30, hasty).get(&[file], &quiet).await.unwrap_err();
        assert!(!leaked(format!("{error} {error:?}")), "{error:?}");
    }
}

#[tokio::test]
async fn one_download_serves_all_who_ask() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, SIZE));
    let served = body.clone();
    let server = Server::start(move |asked| Reply::part(asked, &served)).await;
    // Two in this process, and one in another process.
    let (weights, other) = (open(&dir), open(&dir));
    let files = [file("m", &server.origin, &body)];
    let (one, two, three) =
        tokio::join!(weights.get(&files, &quiet), weights.get(&files, &quiet), other.get(&files, &quiet));
    for set in [one, two, three] {
        assert_eq!(fs::read(set.unwrap().folder.join("m")).unwrap(), body);
    }
    assert_eq!(server.sent_bytes(), SIZE as u64);
}

#[tokio::test]
async fn a_blob_that_was_changed_is_fetched_again() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, SIZE));
    let served = body.clone();
    let server = Server::start(move |asked| Reply::part(asked, &served)).await;
    let (weights, files) = (open(&dir), [file("m", &server.origin, &body)]);
    let blob = weights.get(&files, &quiet).await.unwrap().blobs[0].clone();
    // Touched, but with the same bytes: checked once more, and kept.
    fs::set_permissions(&blob, fs::Permissions::from_mode(0o644)).unwrap();
    weights.get(&files, &quiet).await.unwrap();
    assert_eq!(server.sent_bytes(), SIZE as u64);
    let mut changed = body.clone();
    changed[SIZE / 2] ^= 1;
    fs::write(&blob, changed).unwrap();
    let set = weights.get(&files, &quiet).await.unwrap();
    assert_eq!(fs::read(set.folder.join("m")).unwrap(), body);
    assert_eq!(server.sent_bytes(), 2 * SIZE as u64);
}

#[tokio::test]
async fn pickles_are_named_and_false_safetensors_refused() {
    let dir = tempfile::tempdir().unwrap();
    let bodies: [(&str, &[u8]); 4] = [
        ("model.safetensors", b"\x02\0\0\0\0\0\0\0{}"),
        ("unet/old.bin", b"\x80\x02}."),
        ("config.json", b"{}"),
        ("page.safetensors", b"<!doctype html>"),
    ];
    let server = Server::start(move |asked| {
        let (_, body) = bodies.iter().find(|(name, _)| asked.target[1..] == **name).unwrap();
        Reply::part(asked, body)
    })
    .await;
    let files = bodies.map(|(name, body)| file(name, &format!("{}/{name}", server.origin), body));
    let weights = open(&dir);
    let set = weights.get(&files[..3], &quiet).await.unwrap();
    assert_eq!(set.pickles().await.unwrap(), ["unet/old.bin"]);
    let error = weights.get(&files, &quiet).await.unwrap().pickles().await.unwrap_err().to_string();
    assert!(error.starts_with("page.safetensors is not a valid safetensors file: its header claims to be"), "{error}");
}

#[tokio::test]
async fn a_list_that_leads_elsewhere_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let weights = open(&dir);
    let named = |path: &str| file(path, "http://127.0.0.1:1", b"x");
    let long = "a".repeat(PATH_BYTES_MAX + 1);
    for path in ["", "/etc/x", "../x", "a/../x", "./a", "a//b", "a/", "a/./b", ".", "a\nb", "a\0b", &long] {
        let error = weights.get(&[named(path)], &quiet).await.unwrap_err();
        assert!(matches!(error, Error::List(_)), "{path:?}: {error}");
    }
    let odd = |change: fn(&mut WeightFile)| {
        let mut file = named("b");
        change(&mut file);
        vec![named("a"), file]
    };
    for files in [
        vec![named("a"), named("a")],
        vec![named("a"), named("a/b")],
        odd(|file| file.size_bytes = 2),
        odd(|file| file.sha256 = "../x".to_owned()),
        odd(|file| file.sha256 = file.sha256.to_uppercase()),
        (0..=FILES_MAX).map(|index| named(&index.to_string())).collect(),
    ] {
        let error = weights.get(&files, &quiet).await.unwrap_err();
        assert!(matches!(error, Error::List(_)), "{error}");
    }
}
