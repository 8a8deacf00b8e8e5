//! Weights are evicted to make room, and abandoned ones are deleted at the start.

use std::fs::File;

use super::*;

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
