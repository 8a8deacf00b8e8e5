#![allow(clippy::unwrap_used)]

#[path = "tests/owners.rs"]
mod owners;
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
async fn a_download_cut_three_times_goes_on_where_it_was_and_is_never_seen_half() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, SIZE));
    let blob = dir.path().join("weights").join(sha256(&body));
    let seen = Arc::new(AtomicUsize::new(0));
    let (served, look, count) = (body.clone(), blob.clone(), Arc::clone(&seen));
    let server = Server::start(move |asked| {
        count.fetch_add(usize::from(look.exists()), Ordering::SeqCst);
        let reply = Reply::part(asked, &served).header("etag", "\"v1\"");
        if matches!(asked.turn, 2 | 5 | 9) { reply.cut_after(20_000) } else { reply }
    })
    .await;
    let set = open(&dir).get(&[file("m", &server.origin, &body)], &quiet).await.unwrap();
    assert_eq!(fs::read(set.folder.join("m")).unwrap(), body);
    assert_eq!(seen.load(Ordering::SeqCst), 0, "it was there before it was verified");
    assert!(blob.exists());
    assert_eq!(server.sent_bytes(), SIZE as u64, "a byte that had come was asked for again");
    assert_eq!(server.asked().len(), 17 + 3);
    let all_but_first = &server.asked()[1..];
    assert!(all_but_first.iter().all(|asked| asked.headers.get("if-range").is_some_and(|etag| etag == "\"v1\"")));
}

/// A kill -9 leaves the same as a dropped future: files, and no lock.
#[tokio::test]
async fn a_killed_download_goes_on_in_the_next_process() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, SIZE));
    for stop in [3, 8, 2] {
        let (reached, mut reach) = mpsc::unbounded_channel();
        let served = body.clone();
        let server = Server::start(move |asked| {
            if asked.turn < stop {
                return Reply::part(asked, &served);
            }
            // One range after the other: earlier ones are on disk.
            reached.send(()).unwrap();
            Reply::part(asked, &served).cut_after(0).hanging()
        })
        .await;
        let weights = open_with(&dir, 1 << 30, Limits { parallel: 1, ..SMALL });
        let files = [file("m", &server.origin, &body)];
        tokio::select! {
            outcome = weights.get(&files, &quiet) => panic!("{outcome:?}"),
            _ = reach.recv() => {}
        }
        assert!(left(&dir).iter().all(|name| name.starts_with('.')), "{:?}", left(&dir));
    }
    let served = body.clone();
    let server = Server::start(move |asked| Reply::part(asked, &served)).await;
    // Cut off in the middle of a line, as by a power failure.
    let journal = dir.path().join("weights").join(format!(".journal-{}", sha256(&body)));
    let text = fs::read_to_string(&journal).unwrap();
    fs::write(&journal, format!("{text}0 10485")).unwrap();
    let set = open(&dir).get(&[file("m", &server.origin, &body)], &quiet).await;
    assert_eq!(fs::read(set.unwrap().folder.join("m")).unwrap(), body);
    assert_eq!(left(&dir), [sha256(&body)]);
    assert_eq!(server.sent_bytes(), (SIZE - (3 + 8 + 2) * PIECE) as u64);
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
async fn a_wrong_beginning_of_an_earlier_download_does_not_spoil_the_next() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, SIZE));
    let served = body.clone();
    let server = Server::start(move |asked| Reply::part(asked, &served)).await;
    let weights = open(&dir);
    let place = |prefix: &str| dir.path().join("weights").join(format!("{prefix}{}", sha256(&body)));
    // The journal was flushed to disk, the bytes were not.
    fs::write(place(".partial-"), vec![0; SIZE]).unwrap();
    fs::write(place(".journal-"), format!("size {SIZE}\n0 {PIECE}\n")).unwrap();
    let set = weights.get(&[file("m", &server.origin, &body)], &quiet).await.unwrap();
    assert_eq!(fs::read(set.folder.join("m")).unwrap(), body);
    assert_eq!(server.sent_bytes(), (2 * SIZE - PIECE) as u64);
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
async fn a_server_without_ranges_is_read_in_one_stream_from_the_start() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, SIZE));
    let served = body.clone();
    let server = Server::start(move |asked| {
        let reply = Reply::new("200 OK", &served);
        if asked.turn == 0 { reply.cut_after(SIZE / 2) } else { reply }
    })
    .await;
    let set = open(&dir).get(&[file("m", &server.origin, &body)], &quiet).await.unwrap();
    assert_eq!(fs::read(set.folder.join("m")).unwrap(), body);
    assert_eq!(server.asked().len(), 2);
}

#[tokio::test]
async fn a_server_that_is_away_for_a_while_is_waited_for() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, SIZE));
    let served = body.clone();
    let server = Server::start(move |asked| match asked.turn {
        0 | 4 => Reply::new("503 Service Unavailable", b"later"),
        6 => Reply::new("429 Too Many Requests", b""),
        _ => Reply::part(asked, &served),
    })
    .await;
    let set = open(&dir).get(&[file("m", &server.origin, &body)], &quiet).await.unwrap();
    assert_eq!(fs::read(set.folder.join("m")).unwrap(), body);
    assert_eq!(server.sent_bytes(), (SIZE + "later".len() * 2) as u64);
}

#[tokio::test]
async fn patience_ends_and_what_has_come_is_kept() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, SIZE));
    let served = body.clone();
    let server = Server::start(move |asked| match asked.turn {
        0 | 1 => Reply::part(asked, &served),
        _ => Reply::new("502 Bad Gateway", b""),
    })
    .await;
    let hasty = Limits { stall_timeout: Duration::from_millis(300), parallel: 1, ..SMALL };
    let weights = open_with(&dir, 1 << 30, hasty);
    let error = weights.get(&[file("m", &server.origin, &body)], &quiet).await.unwrap_err();
    assert!(matches!(&error, Error::Fetch { path, why } if path == "m" && why.contains("502")), "{error}");
    let served = body.clone();
    let server = Server::start(move |asked| Reply::part(asked, &served)).await;
    weights.get(&[file("m", &server.origin, &body)], &quiet).await.unwrap();
    assert_eq!(server.sent_bytes(), (SIZE - 2 * PIECE) as u64);
}

#[tokio::test]
async fn a_silent_server_is_left_and_asked_again() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, SIZE));
    let served = body.clone();
    let server = Server::start(move |asked| {
        let reply = Reply::part(asked, &served);
        if asked.turn == 1 { reply.cut_after(10_000).hanging() } else { reply }
    })
    .await;
    let weights = open_with(&dir, 1 << 30, Limits { idle: Duration::from_millis(500), ..SMALL });
    weights.get(&[file("m", &server.origin, &body)], &quiet).await.unwrap();
    assert_eq!(server.sent_bytes(), SIZE as u64);
}

#[tokio::test]
async fn a_file_that_changes_midway_is_begun_anew() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, SIZE));
    let (old, new) = (content(7, SIZE), body.clone());
    let server = Server::start(move |asked| match (asked.turn, asked.headers.get("if-range").map(String::as_str)) {
        (0..5, _) => Reply::part(asked, &old).header("etag", "\"old\""),
        // As the standard requires: the condition fails, so the full content is sent.
        (_, Some("\"old\"")) => Reply::new("200 OK", &new).header("etag", "\"new\"").cut_after(0),
        _ => Reply::part(asked, &new).header("etag", "\"new\""),
    })
    .await;
    let set = open(&dir).get(&[file("m", &server.origin, &body)], &quiet).await.unwrap();
    assert_eq!(fs::read(set.folder.join("m")).unwrap(), body);
}

#[tokio::test]
async fn servers_that_never_agree_on_a_version_are_read_in_one_stream() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, SIZE));
    let served = body.clone();
    let server =
        Server::start(move |asked| Reply::part(asked, &served).header("etag", &format!("W/\"{}\"", asked.turn))).await;
    let set = open(&dir).get(&[file("m", &server.origin, &body)], &quiet).await.unwrap();
    assert_eq!(fs::read(set.folder.join("m")).unwrap(), body);
    assert!(server.asked().last().unwrap().range().is_none());
}

#[tokio::test]
async fn an_address_that_expires_midway_says_so_and_a_new_one_goes_on() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, SIZE));
    let served = body.clone();
    let server = Server::start(move |asked| match (asked.target.as_str(), asked.turn) {
        ("/old?sig=canary", 4..) => Reply::new("403 Forbidden", b"<Code>AccessDenied</Code>"),
        _ => Reply::part(asked, &served),
    })
    .await;
    let weights = open_with(&dir, 1 << 30, Limits { parallel: 1, ..SMALL });
    let file = |target: &str| [file("m", &format!("{}{target}", server.origin), &body)];
    let error = weights.get(&file("/old?sig=canary"), &quiet).await.unwrap_err();
    assert!(matches!(&error, Error::Expired { path } if path == "m"), "{error}");
    assert!(!format!("{error} {error:?}").contains("canary"));
    weights.get(&file("/new"), &quiet).await.unwrap();
    assert_eq!(server.sent_bytes(), (SIZE + "<Code>AccessDenied</Code>".len()) as u64);
}

#[tokio::test]
async fn an_address_that_had_expired_before_is_told_from_a_refusal() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, 10));
    for (status, text, expired) in [
        ("403 Forbidden", "<Message>Request has expired</Message>", true),
        ("400 Bad Request", "<Code>ExpiredToken</Code>", true),
        ("403 Forbidden", "<Code>AccessDenied</Code>", false),
        ("404 Not Found", "expired", false),
    ] {
        let server = Server::start(move |_| Reply::new(status, text.as_bytes())).await;
        let error = open(&dir).get(&[file("m", &server.origin, &body)], &quiet).await.unwrap_err();
        assert_eq!(matches!(error, Error::Expired { .. }), expired, "{error}");
        assert!(expired || matches!(error, Error::Refused { .. }), "{error}");
        assert_eq!(server.asked().len(), 1, "another try would end the same");
    }
    assert!(left(&dir).is_empty(), "room is kept for nothing");
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

/// Three files of 100 bytes in a cache of 300, used in the order b, c, a.
async fn three(dir: &TempDir) -> (Weights, Server, impl Fn(&str) -> WeightFile + use<>) {
    let server = Server::start(|asked| Reply::part(asked, &content(asked.target.as_bytes()[1], 100))).await;
    let weights = open_with(dir, 300, SMALL);
    let origin = server.origin.clone();
    let named = move |name: &str| file(name, &format!("{origin}/{name}"), &content(name.as_bytes()[0], 100));
    for (name, used_s) in [("a", 30), ("b", 10), ("c", 20)] {
        drop(weights.get(&[named(name)], &quiet).await.unwrap());
        let lock = File::options().write(true).open(weights.0.store.lock_file(&named(name).sha256)).unwrap();
        lock.set_modified(UNIX_EPOCH + Duration::from_secs(used_s)).unwrap();
    }
    (weights, server, named)
}

fn names(dir: &TempDir) -> String {
    let here = left(dir);
    ('a'..='z').filter(|name| here.contains(&sha256(&content(*name as u8, 100)))).collect()
}

#[tokio::test]
async fn the_longest_unused_make_room() {
    let dir = tempfile::tempdir().unwrap();
    let (weights, _server, named) = three(&dir).await;
    weights.get(&[named("d")], &quiet).await.unwrap();
    assert_eq!((names(&dir).as_str(), weights.bytes()), ("acd", 300));
    // A repeated request counts as use.
    drop(weights.get(&[named("c")], &quiet).await.unwrap());
    weights.get(&[named("e")], &quiet).await.unwrap();
    assert_eq!(names(&dir), "cde");
    assert!(!weights.0.store.lock_file(&named("a").sha256).exists());
}

#[tokio::test]
async fn those_in_use_stay_and_nothing_goes_in_vain() {
    let dir = tempfile::tempdir().unwrap();
    let (weights, server, named) = three(&dir).await;
    let set = weights.get(&[named("b"), named("c")], &quiet).await.unwrap();
    let clone = set.clone();
    drop(set);
    let asked = server.asked().len();
    let error = weights.get(&[named("d"), named("e")], &quiet).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "the weights need 200 B more, but 200 B of this worker's limit of 300 B are in use; raise STOKE_WEIGHTS_BYTES"
    );
    assert_eq!(
        (names(&dir).as_str(), server.asked().len()),
        ("abc", asked),
        "a could go, and would not have been enough"
    );
    drop(clone);
    weights.get(&[named("d"), named("e")], &quiet).await.unwrap();
    // `a` had been unused for the longest; `b` and `c`, of one set, are equal.
    assert!(matches!(names(&dir).as_str(), "bde" | "cde"), "{}", names(&dir));
}

#[tokio::test]
async fn weights_larger_than_the_cache_are_refused_before_a_byte_comes() {
    let dir = tempfile::tempdir().unwrap();
    let body = content(1, 400);
    let weights = open_with(&dir, 300, SMALL);
    let error = weights.get(&[file("m", "http://127.0.0.1:1", &body)], &quiet).await.unwrap_err().to_string();
    assert_eq!(error, "the weights need 400 B, more than this worker's limit of 300 B; raise STOKE_WEIGHTS_BYTES");
    // More than any disk can hold.
    let weights = open_with(&dir, u64::MAX, SMALL);
    let huge = WeightFile { size_bytes: 1 << 60, ..file("m", "http://127.0.0.1:1", &body) };
    let error = weights.get(&[huge], &quiet).await.unwrap_err();
    assert!(matches!(error, Error::Disk { need, .. } if need == 1 << 60), "{error}");
    assert!(left(&dir).is_empty());
}

#[tokio::test]
async fn an_unfinished_download_counts_and_goes_when_its_room_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    let stopped = Arc::new(Notify::new());
    let notify = Arc::clone(&stopped);
    let server = Server::start(move |asked| {
        let name = asked.target.as_bytes()[1];
        if name == b'a' && asked.turn > 0 {
            notify.notify_one();
            return Reply::part(asked, &content(name, 200)).cut_after(0).hanging();
        }
        Reply::part(asked, &content(name, 200))
    })
    .await;
    let weights = open_with(&dir, 300, Limits { piece_bytes: 100, parallel: 1, ..SMALL });
    let named = |name: &str| [file(name, &format!("{}/{name}", server.origin), &content(name.as_bytes()[0], 200))];
    {
        let half = named("a");
        let getting = weights.get(&half, &quiet);
        tokio::pin!(getting);
        tokio::select! {
            outcome = &mut getting => panic!("{outcome:?}"),
            () = stopped.notified() => {}
        }
        assert_eq!(weights.bytes(), 200, "its room is taken from the start");
        let error = weights.get(&named("b"), &quiet).await.unwrap_err();
        assert!(matches!(error, Error::InUse { need: 200, in_use: 200, cap: 300 }), "{error}");
    }
    weights.get(&named("b"), &quiet).await.unwrap();
    assert_eq!(left(&dir), [named("b")[0].sha256.clone()]);
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

#[tokio::test]
async fn at_the_start_what_was_given_up_goes_and_what_is_young_stays() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, 100));
    let server = Server::start(|asked| Reply::part(asked, &content(1, 100))).await;
    let set = open(&dir).get(&[file("m", &server.origin, &body)], &quiet).await.unwrap();
    let folder = dir.path().join("weights");
    let (young, old, bare) = ("1".repeat(64), "2".repeat(64), "3".repeat(64));
    for (sha256, used) in [(&young, std::time::SystemTime::now()), (&old, UNIX_EPOCH)] {
        fs::write(folder.join(format!(".partial-{sha256}")), "half").unwrap();
        fs::write(folder.join(format!(".journal-{sha256}")), "size 8\n0 4\n").unwrap();
        File::create(folder.join(format!("{sha256}.lock"))).unwrap().set_modified(used).unwrap();
    }
    File::create(folder.join(format!("{bare}.lock"))).unwrap();
    fs::create_dir_all(folder.join("sets/gone")).unwrap();
    std::os::unix::fs::symlink("../../nothing", folder.join("sets/gone/m")).unwrap();
    let weights = open(&dir);
    let mut expected = [format!(".partial-{young}"), format!(".journal-{young}"), sha256(&body)];
    expected.sort();
    assert_eq!(left(&dir), expected);
    assert!(!folder.join("sets/gone").exists() && set.folder.exists() && !folder.join(format!("{bare}.lock")).exists());
    assert_eq!(weights.bytes(), 104);
}
