//! The archive depends on names, contents and executable bits, and on nothing else.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use stokehold_package::{Overlay, Package};

const FILES: [(&str, &str); 4] = [
    ("main.py", "def f(n: int) -> int: return n\n"),
    ("data/a.txt", "a"),
    ("data/b.txt", "b"),
    ("run.sh", "#!/bin/sh\n"),
];

fn write(folder: &Path, (name, text): (&str, &str)) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn sha256(folder: &Path) -> String {
    let package = Package::open(&folder.to_string_lossy(), Overlay::default()).unwrap();
    package.pack(&[], &tempfile::tempfile().unwrap()).unwrap().sha256
}

#[test]
fn order_times_and_owner_bits_change_nothing() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    FILES.into_iter().for_each(|file| write(one.path(), file));
    FILES.into_iter().rev().for_each(|file| write(other.path(), file));
    write(other.path(), (".git/HEAD", "x"));
    write(other.path(), ("__pycache__/main.cpython-311.pyc", "x"));
    for (name, _) in FILES {
        let file = File::options().write(true).open(other.path().join(name)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
        file.set_permissions(Permissions::from_mode(0o600)).unwrap();
    }
    assert_eq!(sha256(one.path()), sha256(other.path()));
}

#[test]
fn a_content_a_name_and_an_executable_bit_each_change_it() {
    let folder = tempfile::tempdir().unwrap();
    FILES.into_iter().for_each(|file| write(folder.path(), file));
    let mut seen = vec![sha256(folder.path())];
    fs::set_permissions(folder.path().join("run.sh"), Permissions::from_mode(0o755)).unwrap();
    seen.push(sha256(folder.path()));
    fs::write(folder.path().join("data/a.txt"), "A").unwrap();
    seen.push(sha256(folder.path()));
    fs::rename(folder.path().join("data/a.txt"), folder.path().join("data/c.txt")).unwrap();
    seen.push(sha256(folder.path()));
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 4);
}
