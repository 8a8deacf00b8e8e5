#![allow(clippy::unwrap_used)]

use std::fs::{self, FileTimes};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::unpack::Limits;
use super::*;

const LIMITS: Limits = Limits { entries: 1_000, bytes: 1 << 20 };

/// One entry of an archive: kind, path, content or link target.
type Part<'a> = (EntryType, &'a str, &'a str);

/// Packs entries unchanged, even malicious ones: paths go into the header raw, because `Builder` would reject them.
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

fn unpacked(parts: &[Part<'_>], limits: &Limits) -> (TempDir, Result<u64, Error>) {
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
    // The first symbolic link leads to the top and back: still inside.
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
        // `in` is inside; through it, `..` would lead elsewhere.
        &[(EntryType::Symlink, "d/in", "."), (EntryType::Symlink, "out", "d/in/../..")],
    ];
    for parts in wicked {
        let (folder, outcome) = unpacked(parts, &LIMITS);
        let error = outcome.expect_err(&format!("{parts:?}")).to_string();
        assert!(error.contains("points outside the package"), "{parts:?}: {error}");
        assert!(!folder.path().join("evil").exists());
    }
}

#[test]
fn devices_are_refused() {
    for kind in [EntryType::Char, EntryType::Block, EntryType::Fifo] {
        let (_folder, outcome) = unpacked(&[(kind, "device", "")], &LIMITS);
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("not a file, a folder or a link"), "{error}");
    }
}

#[test]
fn too_much_is_refused() {
    let parts = [(EntryType::Regular, "a", "12345"), (EntryType::Regular, "b", "12345")];
    let limits = |entries, bytes| Limits { entries, bytes };
    // A file occupies at least one block of the disk.
    assert_eq!(unpacked(&parts, &limits(2, 8_192)).1.unwrap(), 8_192);
    let error = unpacked(&parts, &limits(1, 8_192)).1.unwrap_err();
    assert!(error.is_the_deployers() && error.to_string().contains("more than 1 files and folders"), "{error}");
    let error = unpacked(&parts, &limits(2, 8_191)).1.unwrap_err();
    assert!(error.is_the_deployers() && error.to_string().contains("STOKE_PACKAGE_BYTES"), "{error}");
}

#[test]
fn folders_that_only_names_make_count_as_well() {
    let deep = ["a/".repeat(30), "b/".repeat(30)].map(|folders| format!("{folders}f"));
    let parts = deep.each_ref().map(|path| (EntryType::Regular, path.as_str(), "x"));
    let limits = |entries| Limits { entries, bytes: 1 << 20 };
    assert_eq!(unpacked(&parts, &limits(62)).1.unwrap(), 62 * 4_096);
    assert!(matches!(unpacked(&parts, &limits(61)).1.unwrap_err(), Error::TooMany(61)));
    // Each counts once, even under several names.
    let parts = [(EntryType::Directory, "a/", ""), (EntryType::Regular, "a/f", "x"), (EntryType::Directory, "./a", "")];
    unpacked(&parts, &limits(2)).1.unwrap();
}

#[test]
fn what_is_no_whole_archive_is_the_deployers_failure() {
    let (good, _) = good();
    let tar = {
        let mut tar = Vec::new();
        io::Read::read_to_end(&mut flate2::read::GzDecoder::new(good.as_slice()), &mut tar).unwrap();
        tar
    };
    let zipped = |tar: &[u8]| {
        let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
        io::Write::write_all(&mut gz, tar).unwrap();
        gz.finish().unwrap()
    };
    let zip = b"PK\x03\x04\x14\0\0\0\x08\0main.py".to_vec();
    let mut garbled = good.clone();
    garbled[20] ^= 0xff;
    for (what, body) in [
        ("a zip", zip),
        ("a tar that is not compressed", tar.clone()),
        ("half of it", good[..good.len() / 2].to_vec()),
        ("a changed byte", garbled),
        ("a file that ends in its middle", zipped(&tar[..515])),
        ("a header that ends in its middle", zipped(&tar[..100])),
        ("text", zipped(b"print(1)")),
        ("nothing", Vec::new()),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let error = unpack(body.as_slice(), &folder.path().join("content"), &LIMITS).expect_err(what);
        assert!(matches!(error, Error::Unpack(_)) && error.is_the_deployers(), "{what}: {error}");
    }
}

/// Answers each request with the next of `answers`, later ones with the last, and counts them.
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

/// Names in the folder, without locks.
fn left(folder: &TempDir) -> Vec<String> {
    let items = fs::read_dir(folder.path().join("packages")).unwrap();
    let mut names: Vec<String> = items.map(|item| item.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| !name.ends_with(".lock"));
    names.sort();
    names
}

fn open_with(folder: &TempDir, package_bytes: u64, cap_bytes: u64) -> Packages {
    Packages::open(&PackagesConfig { dir: folder.path().to_owned(), package_bytes, cap_bytes }).unwrap()
}

fn open(folder: &TempDir) -> Packages {
    open_with(folder, 1 << 20, 1 << 30)
}

#[tokio::test]
async fn one_fetch_serves_all_who_ask_even_after_a_hiccup() {
    let (folder, (body, sha256)) = (tempfile::tempdir().unwrap(), good());
    let size_bytes = body.len() as u64;
    let (url, asked) = serve(vec![("503 Service Unavailable", Vec::new()), ("200 OK", body)]).await;
    let packages = open(&folder);
    let (one, two) =
        tokio::join!(packages.get("one", &sha256, size_bytes, &url), packages.get("one", &sha256, size_bytes, &url));
    let (one, two) = (one.unwrap().folder, two.unwrap().folder);
    assert_eq!(one, two);
    assert_eq!(fs::read_to_string(one.join("main.py")).unwrap(), "print(1)");
    assert_eq!(packages.get("one", &sha256, size_bytes, "http://127.0.0.1:1/").await.unwrap().folder, one);
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
    let packages = open(&folder);
    for other in [tampered, longer, shorter] {
        let (url, asked) = serve(vec![("200 OK", other)]).await;
        let error = packages.get("one", &sha256, size_bytes, &url).await.unwrap_err();
        assert!(matches!(error, Error::Differs { .. }), "{error}");
        assert_eq!(asked.load(Ordering::SeqCst), 1, "the same bytes would come again");
    }
    assert!(left(&folder).is_empty());
}

#[tokio::test]
async fn a_body_that_breaks_off_is_fetched_again_and_whole() {
    let (folder, (body, sha256)) = (tempfile::tempdir().unwrap(), good());
    let size_bytes = body.len() as u64;
    // Announces the full length, sends half, and closes.
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
    let packages = open(&folder);
    let place = packages.get("one", &sha256, size_bytes, &cut).await.unwrap();
    assert_eq!(fs::read_to_string(place.folder.join("main.py")).unwrap(), "print(1)");
}

/// Leftovers of kill -9: half an archive, or half of its content, under a name that is never requested.
#[tokio::test]
async fn what_a_killed_fetch_left_is_never_served() {
    let (folder, (body, sha256)) = (tempfile::tempdir().unwrap(), good());
    let left =
        folder.path().join("packages").join(format!(".partial-{}-killed", Name::new("one", &sha256).unwrap().as_str()));
    fs::create_dir_all(left.join("content")).unwrap();
    fs::write(left.join("package.tar.gz"), &body[..body.len() / 2]).unwrap();
    fs::write(left.join("content/main.py"), "prin").unwrap();
    let (url, asked) = serve(vec![("200 OK", body.clone())]).await;
    let packages = open(&folder);
    let place = packages.get("one", &sha256, body.len() as u64, &url).await.unwrap();
    assert_eq!(fs::read_to_string(place.folder.join("main.py")).unwrap(), "print(1)");
    assert_eq!(asked.load(Ordering::SeqCst), 1, "it was fetched, not found");
    assert!(!left.exists());
}

#[tokio::test]
async fn a_refusal_is_final_and_names_no_url() {
    let folder = tempfile::tempdir().unwrap();
    let (url, asked) = serve(vec![("403 Forbidden", Vec::new())]).await;
    let packages = open(&folder);
    let error = packages.get("one", &"0".repeat(64), 1, &format!("{url}?signature=secret")).await.unwrap_err();
    assert!(matches!(error, Error::Refused(StatusCode::FORBIDDEN)), "{error}");
    assert!(!format!("{error} {error:?}").contains("secret"));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn only_a_hash_is_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let packages = open(&folder);
    let error = packages.get("one", "../../etc", 1, "http://127.0.0.1:1/").await.unwrap_err();
    assert!(matches!(error, Error::Name(_)), "{error}");
}

/// A package of as many blocks as its name says, different for each `turn`.
fn sized(blocks: usize, turn: u8) -> (Vec<u8>, String) {
    let text = char::from(b'a' + turn).to_string().repeat(4_096 * blocks);
    let body = pack(&[(EntryType::Regular, "main.py", &text)]);
    let sha256 = hex::encode(Sha256::digest(&body));
    (body, sha256)
}

async fn get(packages: &Packages, tenant: &str, (body, sha256): &(Vec<u8>, String)) -> Result<Package, Error> {
    let (url, _) = serve(vec![("200 OK", body.clone())]).await;
    packages.get(tenant, sha256, body.len() as u64, &url).await
}

fn names(folder: &TempDir) -> Vec<String> {
    let held = left(folder).into_iter().map(|name| name.split_once('-').unwrap().0.to_owned());
    held.collect()
}

fn used(packages: &Packages, tenant: &str, sha256: &str, at_s: u64) {
    let lock = packages.store.lock_file(&Name::new(tenant, sha256).unwrap());
    File::options().write(true).open(lock).unwrap().set_modified(UNIX_EPOCH + Duration::from_secs(at_s)).unwrap();
}

#[tokio::test]
async fn each_tenant_has_its_own() {
    let (folder, package) = (tempfile::tempdir().unwrap(), good());
    let packages = open(&folder);
    let one = get(&packages, "one", &package).await.unwrap();
    let nowhere = packages.get("two", &package.1, package.0.len() as u64, "http://127.0.0.1:1/").await;
    assert!(matches!(nowhere, Err(Error::Fetch(_))), "its hash alone is not enough");
    let two = get(&packages, "two", &package).await.unwrap();
    assert_ne!(one.folder, two.folder);
}

#[tokio::test]
async fn the_longest_unused_make_room_and_those_in_use_stay() {
    let folder = tempfile::tempdir().unwrap();
    let packages = open_with(&folder, 1 << 20, 16 * 4_096);
    let all: Vec<_> = (0..4).map(|turn| sized(3, turn)).collect();
    // One tenant may use eight blocks.
    drop(get(&packages, "one", &all[0]).await.unwrap());
    drop(get(&packages, "one", &all[1]).await.unwrap());
    used(&packages, "one", &all[0].1, 20);
    used(&packages, "one", &all[1].1, 10);
    drop(get(&packages, "one", &all[2]).await.unwrap());
    let mut expected = [all[0].1.clone(), all[2].1.clone()];
    expected.sort();
    assert_eq!(names(&folder), expected, "its own go, though all together would fit");
    let held = get(&packages, "one", &all[0]).await.unwrap();
    drop(get(&packages, "one", &all[3]).await.unwrap());
    assert!(held.folder.join("main.py").exists());
    let both = get(&packages, "one", &all[3]).await.unwrap();
    let error = get(&packages, "one", &all[1]).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the package needs 12.3 kB, but 24.6 kB of the 32.8 kB for the packages of one tenant on this worker are in use; raise \
         STOKE_PACKAGES_BYTES"
    );
    assert!(!error.is_the_deployers());
    // Other tenants keep their half.
    let _two = get(&packages, "two", &all[0]).await.unwrap();
    let _four = get(&packages, "two", &all[1]).await.unwrap();
    let error = get(&packages, "three", &sized(5, 0)).await.unwrap_err();
    assert!(error.to_string().contains("all packages"), "{error}");
    drop((held, both));
    get(&packages, "three", &sized(5, 0)).await.unwrap();
    assert_eq!(names(&folder).len(), 4);
    // Only locks of existing packages are left.
    let locks = fs::read_dir(folder.path().join("packages")).unwrap().flatten();
    let locks = locks.filter(|item| item.file_name().to_string_lossy().ends_with(".lock"));
    assert_eq!(locks.count(), 4 + 1);
}

#[tokio::test]
async fn what_is_no_package_is_fetched_and_unpacked_once() {
    let folder = tempfile::tempdir().unwrap();
    let packages = open_with(&folder, 2 * 4_096, 1 << 20);
    let text = b"no package".to_vec();
    for (body, sha256) in [sized(3, 0), (text.clone(), hex::encode(Sha256::digest(&text)))] {
        let (url, asked) = serve(vec![("200 OK", body.clone())]).await;
        let size_bytes = body.len() as u64;
        let first = packages.get("one", &sha256, size_bytes, &url).await.unwrap_err();
        let second = packages.get("one", &sha256, size_bytes, &url).await.unwrap_err();
        assert!(first.is_the_deployers() && second.is_the_deployers());
        assert_eq!((first.to_string(), asked.load(Ordering::SeqCst)), (second.to_string(), 1));
    }
    assert!(left(&folder).is_empty());
}

#[tokio::test]
async fn at_the_start_goes_what_is_long_unused_or_too_much() {
    let folder = tempfile::tempdir().unwrap();
    let all: Vec<_> = (0..3).map(|turn| sized(3, turn)).collect();
    let packages = open(&folder);
    for package in &all {
        drop(get(&packages, "one", package).await.unwrap());
    }
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    used(&packages, "one", &all[0].1, 10);
    used(&packages, "one", &all[1].1, now_s - 60);
    // In the layout of the previous release: without an owner and a lock.
    for (name, used) in [("old", UNIX_EPOCH), ("new", SystemTime::now()), (".partial-now", SystemTime::now())] {
        let place = folder.path().join("packages").join(name);
        fs::create_dir(&place).unwrap();
        File::open(&place).unwrap().set_times(FileTimes::new().set_modified(used)).unwrap();
    }
    open(&folder);
    let here = |name: &str| folder.path().join("packages").join(name).exists();
    assert!(!here("old") && here("new") && here(".partial-now"));
    assert_eq!(left(&folder).len(), 2 + 2, "the one of long ago has gone");
    open_with(&folder, 1 << 20, 4 * 4_096);
    let ours = left(&folder).into_iter().filter(|name| name.starts_with(&all[2].1)).count();
    assert_eq!((ours, left(&folder).len()), (1, 1 + 2), "less is kept than before");
}
