//! A tenant's private weights are not shared with others, and public weights are downloaded only once.

use std::os::unix::fs::MetadataExt;

use super::*;

/// A file requested by a tenant.
fn of(tenant: &str, url: &str, content: &[u8]) -> WeightFile {
    WeightFile { owner: Owner::Tenant(tenant.to_owned()), ..file("m", url, content) }
}

fn with_token(file: WeightFile) -> WeightFile {
    WeightFile { headers: BTreeMap::from([("authorization".to_owned(), "Bearer good".to_owned())]), ..file }
}

/// Serves `body`; if gated, only to requests with the token.
async fn serve(body: &[u8], is_gated: bool) -> Server {
    let body = body.to_vec();
    Server::start(move |asked| {
        let is_open = !is_gated || asked.headers.get("authorization").is_some_and(|token| token == "Bearer good");
        if is_open { Reply::part(asked, &body) } else { Reply::new("404 Not Found", b"") }
    })
    .await
}

fn inode(set: &WeightSet) -> u64 {
    fs::metadata(set.folder.join("m")).unwrap().ino()
}

#[tokio::test]
async fn weights_of_another_tenant_are_not_had_by_their_hash() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, SIZE));
    let gated = serve(&body, true).await;
    let weights = open(&dir);
    let owned = weights.get(&[with_token(of("owner", &gated.origin, &body))], &quiet).await.unwrap();
    // The same address without its token.
    let error = weights.get(&[of("thief", &gated.origin, &body)], &quiet).await.unwrap_err();
    assert!(matches!(error, Error::Refused { status: reqwest::StatusCode::NOT_FOUND, .. }), "{error}");
    // Another URL, whose file has only the size in common.
    let own = serve(&content(9, SIZE), false).await;
    let error = weights.get(&[of("thief", &own.origin, &body)], &quiet).await.unwrap_err();
    assert!(matches!(error, Error::Differs { .. }), "{error}");
    // Nor does the operator of this machine have access to it.
    weights.get(&[file("m", &gated.origin, &body)], &quiet).await.unwrap_err();
    assert_eq!((left(&dir).len(), fs::read(owned.folder.join("m")).unwrap()), (1, body));
}

#[tokio::test]
async fn half_a_download_of_one_tenant_is_not_gone_on_with_by_another() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, SIZE));
    let (reached, mut reach) = mpsc::unbounded_channel();
    let served = body.clone();
    let gated = Server::start(move |asked| {
        if asked.turn < 16 {
            return Reply::part(asked, &served);
        }
        reached.send(()).unwrap();
        Reply::part(asked, &served).cut_after(0).hanging()
    })
    .await;
    let weights = open_with(&dir, 1 << 30, Limits { parallel: 1, ..SMALL });
    let files = [with_token(of("owner", &gated.origin, &body))];
    tokio::select! {
        outcome = weights.get(&files, &quiet) => panic!("{outcome:?}"),
        _ = reach.recv() => {}
    }
    // Its file ends with the same bytes, which are the only part left to download.
    let mut forged = content(9, SIZE);
    forged[SIZE - PIECE..].copy_from_slice(&body[SIZE - PIECE..]);
    let own = serve(&forged, false).await;
    let error = weights.get(&[of("thief", &own.origin, &body)], &quiet).await.unwrap_err();
    assert!(matches!(error, Error::Differs { .. }), "{error}");
    assert_eq!(own.sent_bytes(), SIZE as u64);
}

#[tokio::test]
async fn what_is_open_to_all_is_fetched_once_for_all() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, SIZE));
    let server = serve(&body, false).await;
    let (weights, url) = (open(&dir), server.origin.as_str());
    let one = weights.get(&[of("one", url, &body)], &quiet).await.unwrap();
    let asked = server.asked().len();
    let two = weights.get(&[of("two", url, &body)], &quiet).await.unwrap();
    // A public file needs no token.
    let three = weights.get(&[with_token(of("three", url, &body))], &quiet).await.unwrap();
    assert_eq!(server.asked().len(), asked);
    assert_eq!((inode(&two), inode(&three), weights.bytes()), (inode(&one), inode(&one), SIZE as u64));
    assert!(one.folder != two.folder && two.folder != three.folder);
    // Three names, none of which makes the others look changed.
    for name in left(&dir) {
        let noted = fs::read_to_string(dir.path().join("weights").join(format!("{name}.lock"))).unwrap();
        let metadata = fs::metadata(dir.path().join("weights").join(name)).unwrap();
        let fingerprint = format!("{} {}.{:09}", metadata.len(), metadata.ctime(), metadata.ctime_nsec());
        assert_eq!(noted.lines().next(), Some(fingerprint.as_str()));
    }
}

#[tokio::test]
async fn what_came_with_a_token_is_open_to_nobody_else() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, SIZE));
    let server = serve(&body, false).await;
    let (weights, url) = (open(&dir), server.origin.as_str());
    let one = weights.get(&[with_token(of("one", url, &body))], &quiet).await.unwrap();
    let asked = server.asked().len();
    let two = weights.get(&[of("two", url, &body)], &quiet).await.unwrap();
    assert_eq!(server.asked().len(), 2 * asked, "it showed that it can have them");
    assert_eq!((inode(&two), weights.bytes()), (inode(&one), SIZE as u64), "once on the disk is enough");
    // Now it is public: no token was sent.
    weights.get(&[of("three", url, &body)], &quiet).await.unwrap();
    assert_eq!(server.asked().len(), 2 * asked);
}

#[tokio::test]
async fn who_uploaded_the_bytes_has_them() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, SIZE));
    let server = serve(&body, true).await;
    let weights = open(&dir);
    let one = weights.get(&[with_token(of("one", &server.origin, &body))], &quiet).await.unwrap();
    let uploaded = WeightFile { right: Right::Uploaded, ..of("two", "http://127.0.0.1:1", &body) };
    let two = weights.get(&[uploaded], &quiet).await.unwrap();
    assert_eq!(inode(&two), inode(&one));
}

#[tokio::test]
async fn a_tenant_keeps_its_weights_under_any_url() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, SIZE));
    let server = serve(&body, true).await;
    let weights = open(&dir);
    weights.get(&[with_token(of("one", &server.origin, &body))], &quiet).await.unwrap();
    weights.get(&[of("one", "http://127.0.0.1:1/moved", &body)], &quiet).await.unwrap();
}

#[tokio::test]
async fn bytes_with_several_names_go_together_and_not_while_one_is_in_use() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, 200));
    let server = Server::start(|asked| Reply::part(asked, &content(asked.target.as_bytes()[1] - b'0', 200))).await;
    let (weights, url) = (open_with(&dir, 300, SMALL), |name: &str| format!("{}/{name}", server.origin));
    drop(weights.get(&[of("one", &url("1"), &body)], &quiet).await.unwrap());
    let two = weights.get(&[of("two", &url("1"), &body)], &quiet).await.unwrap();
    assert_eq!((weights.bytes(), left(&dir).len()), (200, 2));
    let other = [of("one", &url("2"), &content(2, 200))];
    let error = weights.get(&other, &quiet).await.unwrap_err();
    assert!(matches!(error, Error::InUse { need: 200, in_use: 200, cap: 300 }), "{error}");
    assert_eq!(left(&dir).len(), 2, "to take one name away frees nothing");
    drop(two);
    weights.get(&other, &quiet).await.unwrap();
    assert_eq!((weights.bytes(), left(&dir)), (200, vec![other[0].name()]));
}
