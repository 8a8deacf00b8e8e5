#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, Header};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::*;

/// One entry of an archive: kind, path, content or link target.
type Part<'a> = (EntryType, &'a str, &'a str);

/// Packs entries as they are, however wicked: paths go into the header raw, which `Builder` would refuse.
fn pack(parts: &[Part<'_>]) -> Vec<u8> {
    let mut builder = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (kind, path, text) in parts {
        let mut header = Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_mode(0o644);
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        let content = if *kind == EntryType::Regular { text.as_bytes() } else { &[] };
        if content.is_empty() {
            header.as_mut_bytes()[157..157 + text.len()].copy_from_slice(text.as_bytes());
        }
        header.set_size(content.len() as u64);
        header.set_cksum();
        builder.append(&header, content).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

fn unpacked(parts: &[Part<'_>], limits: &Limits) -> (TempDir, Result<(), Error>) {
    let folder = tempfile::tempdir().unwrap();
    let outcome = unpack(pack(parts).as_slice(), &folder.path().join("content"), limits);
    (folder, outcome)
}

#[test]
fn files_folders_and_inner_links_are_unpacked_read_only() {
    let parts = [
        (EntryType::Directory, "model/", ""),
        (EntryType::Regular, "model/main.py", "print(1)"),
        (EntryType::Symlink, "model/same.py", "../model/main.py"),
        (EntryType::Symlink, "main.py", "model/main.py"),
        (EntryType::Link, "hard.py", "model/main.py"),
    ];
    // The first symbolic link climbs to the top and comes back: still inside.
    let (folder, outcome) = unpacked(&parts, &LIMITS);
    outcome.unwrap();
    let content = folder.path().join("content");
    for name in ["model/main.py", "model/same.py", "main.py", "hard.py"] {
        assert_eq!(fs::read_to_string(content.join(name)).unwrap(), "print(1)", "{name}");
    }
    assert_eq!(fs::metadata(content.join("model/main.py")).unwrap().permissions().mode() & 0o777, 0o444);
}

#[test]
fn what_leads_outside_is_refused() {
    let wicked: &[&[Part<'_>]] = &[
        &[(EntryType::Regular, "../evil", "x")],
        &[(EntryType::Regular, "a/../../evil", "x")],
        &[(EntryType::Regular, "/tmp/evil", "x")],
        &[(EntryType::Symlink, "a", "/etc/passwd")],
        &[(EntryType::Symlink, "a", "../evil")],
        &[(EntryType::Symlink, "b/a", "../../evil")],
        &[(EntryType::Symlink, "b/c", "d/../../../evil")],
        &[(EntryType::Link, "a", "../evil")],
        &[(EntryType::Link, "a", "/etc/passwd")],
        // `in` is inside; through it, `..` would not be where it seems.
        &[(EntryType::Symlink, "d/in", "."), (EntryType::Symlink, "out", "d/in/../..")],
    ];
    for parts in wicked {
        let (folder, outcome) = unpacked(parts, &LIMITS);
        let error = outcome.expect_err(&format!("{parts:?}")).to_string();
        assert!(error.contains("leads outside of it"), "{parts:?}: {error}");
        assert!(!folder.path().join("evil").exists());
    }
}

#[test]
fn devices_are_refused() {
    for kind in [EntryType::Char, EntryType::Block, EntryType::Fifo] {
        let (_folder, outcome) = unpacked(&[(kind, "device", "")], &LIMITS);
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("neither a file"), "{error}");
    }
}

#[test]
fn too_much_is_refused() {
    let parts = [(EntryType::Regular, "a", "12345"), (EntryType::Regular, "b", "12345")];
    let limits = |entries, bytes| Limits { entries, bytes };
    unpacked(&parts, &limits(2, 10)).1.unwrap();
    assert!(unpacked(&parts, &limits(1, 10)).1.unwrap_err().to_string().contains("more than 1 entries"));
    assert!(unpacked(&parts, &limits(2, 9)).1.unwrap_err().to_string().contains("more than 9 bytes"));
}

/// Answers every request with the next of `answers`, the last one for ever, and counts them.
async fn serve(answers: Vec<(&'static str, Vec<u8>)>) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/package", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    // Ends with the test's runtime.
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (mut request, mut byte) = (Vec::new(), [0]);
            while !request.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).await.is_ok() {
                request.push(byte[0]);
            }
            let turn = count.fetch_add(1, Ordering::SeqCst);
            let (status, body) = &answers[turn.min(answers.len() - 1)];
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(body).await.unwrap();
        }
    });
    (url, asked)
}

fn good() -> (Vec<u8>, String) {
    let body = pack(&[(EntryType::Regular, "main.py", "print(1)")]);
    let sha256 = hex::encode(Sha256::digest(&body));
    (body, sha256)
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder.join("packages")).unwrap().next().is_none()
}

#[tokio::test]
async fn one_fetch_serves_all_who_ask_even_after_a_hiccup() {
    let (folder, (body, sha256)) = (tempfile::tempdir().unwrap(), good());
    let size_bytes = body.len() as u64;
    let (url, asked) = serve(vec![("503 Service Unavailable", Vec::new()), ("200 OK", body)]).await;
    let packages = Packages::open(folder.path()).unwrap();
    let (one, two) = tokio::join!(packages.get(&sha256, size_bytes, &url), packages.get(&sha256, size_bytes, &url));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!(one, two);
    assert_eq!(fs::read_to_string(one.join("main.py")).unwrap(), "print(1)");
    assert_eq!(packages.get(&sha256, size_bytes, "http://127.0.0.1:1/").await.unwrap(), one);
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_tampered_body_is_refused_and_leaves_nothing() {
    let (folder, (body, sha256)) = (tempfile::tempdir().unwrap(), good());
    let size_bytes = body.len() as u64;
    let mut tampered = body.clone();
    tampered[size_bytes as usize / 2] ^= 1;
    let longer = [body.clone(), vec![0]].concat();
    let shorter = body[1..].to_vec();
    let packages = Packages::open(folder.path()).unwrap();
    for other in [tampered, longer, shorter] {
        let (url, asked) = serve(vec![("200 OK", other)]).await;
        let error = packages.get(&sha256, size_bytes, &url).await.unwrap_err();
        assert!(matches!(error, Error::Differs { .. }), "{error}");
        assert_eq!(asked.load(Ordering::SeqCst), 1, "the same bytes would come again");
    }
    assert!(is_empty(folder.path()));
}

#[tokio::test]
async fn a_body_that_breaks_off_is_fetched_again_and_whole() {
    let (folder, (body, sha256)) = (tempfile::tempdir().unwrap(), good());
    let size_bytes = body.len() as u64;
    // Announces all of it, sends half, and closes.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let cut = format!("http://{}/package", listener.local_addr().unwrap());
    let (half, rest) = (body[..body.len() / 2].to_vec(), body);
    tokio::spawn(async move {
        for sent in [half, rest] {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mut request, mut byte) = (Vec::new(), [0]);
            while !request.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).await.is_ok() {
                request.push(byte[0]);
            }
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {size_bytes}\r\nconnection: close\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(&sent).await.unwrap();
        }
    });
    let packages = Packages::open(folder.path()).unwrap();
    let place = packages.get(&sha256, size_bytes, &cut).await.unwrap();
    assert_eq!(fs::read_to_string(place.join("main.py")).unwrap(), "print(1)");
}

/// What kill -9 leaves: half an archive, or half of what was in it, under a name that nobody asks for.
#[tokio::test]
async fn what_a_killed_fetch_left_is_never_served() {
    let (folder, (body, sha256)) = (tempfile::tempdir().unwrap(), good());
    let left = folder.path().join("packages").join(format!("{PARTIAL}killed"));
    fs::create_dir_all(left.join("content")).unwrap();
    fs::write(left.join("package.tar.gz"), &body[..body.len() / 2]).unwrap();
    fs::write(left.join("content/main.py"), "prin").unwrap();
    let (url, asked) = serve(vec![("200 OK", body.clone())]).await;
    let packages = Packages::open(folder.path()).unwrap();
    let place = packages.get(&sha256, body.len() as u64, &url).await.unwrap();
    assert_eq!(fs::read_to_string(place.join("main.py")).unwrap(), "print(1)");
    assert_eq!(asked.load(Ordering::SeqCst), 1, "it was fetched, not found");
}

#[tokio::test]
async fn a_refusal_is_final_and_names_no_url() {
    let folder = tempfile::tempdir().unwrap();
    let (url, asked) = serve(vec![("403 Forbidden", Vec::new())]).await;
    let packages = Packages::open(folder.path()).unwrap();
    let error = packages.get(&"0".repeat(64), 1, &format!("{url}?signature=secret")).await.unwrap_err();
    assert!(matches!(error, Error::Refused(StatusCode::FORBIDDEN)), "{error}");
    assert!(!format!("{error} {error:?}").contains("secret"));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn only_a_hash_is_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let packages = Packages::open(folder.path()).unwrap();
    let error = packages.get("../../etc", 1, "http://127.0.0.1:1/").await.unwrap_err();
    assert!(matches!(error, Error::Name(_)), "{error}");
}

#[test]
fn the_long_unused_are_removed_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["packages/old", "packages/new", "packages/.partial-now"] {
        fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    let long_ago = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
    File::open(folder.path().join("packages/old")).unwrap().set_times(long_ago).unwrap();
    Packages::open(folder.path()).unwrap();
    let left = |name: &str| folder.path().join("packages").join(name).exists();
    assert!(!left("old") && left("new") && left(".partial-now"));
}
