"""Writes hostile packages into a folder, and prints them as JSON: `[{name, path, sha256, size}]`.

The arguments are the folder, a folder outside of it that no package may reach, and the number of entries of the large packages.
The first package is harmless; each of the others attacks the program that unpacks it. Each has a handler that works.
"""

import gzip
import hashlib
import io
import json
import pathlib
import sys
import tarfile
from typing import Callable

FOLDER, OUTSIDE, MANY = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
HANDLER = b"""from stokehold import endpoint


@endpoint(name="packed")
def packed() -> str:
    return "ran"
"""
made = []


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644, headers: dict[str, str] | None = None, uid: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode, info.uid, info.gid = kind, link, mode, uid, uid
    info.pax_headers = headers or {}
    return info


def package(name: str, *parts: tuple[tarfile.TarInfo, bytes], format: int = tarfile.PAX_FORMAT, encoding: str = "utf-8") -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format, encoding=encoding, errors="surrogateescape") as tar:
        for info, content in ((entry("main.py"), HANDLER), *parts):
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    keep(name, gzip.compress(buffer.getvalue(), mtime=0))


def keep(name: str, content: bytes) -> None:
    path = FOLDER / f"{len(made)}.tar.gz"
    path.write_bytes(content)
    made.append({"name": name, "path": str(path), "sha256": hashlib.sha256(content).hexdigest(), "size": len(content)})


LINK, HARD, DIR = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE
package("plain")
for name in ("../escaped", "a/../../escaped", "./../escaped", f"{OUTSIDE}/escaped", f"/{OUTSIDE}/escaped", "a/b/../../../escaped", "..", "../" * 30 + OUTSIDE.lstrip("/") + "/escaped", "a/..//../escaped", ".//..//escaped"):
    package(f"name {name[:20]}", (entry(name), b"x"))
    package(f"GNU name {name[:20]}", (entry(name + "x" * 120), b"x"), format=tarfile.GNU_FORMAT)
    package(f"pax path {name[:20]}", (entry("plain", headers={"path": name}), b"x"))
    package(f"folder {name[:20]}", (entry(name, DIR, mode=0o777), b""))
for target in (OUTSIDE, "..", "../..", "/", f"{OUTSIDE}/canary.txt", "/proc/self/root", "/etc", "a/../..", "./..", "../" * 20 + OUTSIDE.lstrip("/")):
    package(f"link to {target[:20]}", (entry("out", LINK, target), b""))
    package(f"link to {target[:20]} and a file through it", (entry("out", LINK, target), b""), (entry("out/escaped"), b"x"))
    package(f"link to {target[:20]} and a folder through it", (entry("out", LINK, target), b""), (entry("out/sub", DIR), b""))
    package(f"hard link to {target[:20]}", (entry("out", HARD, target), b""))
    package(f"hard link to {target[:20]}, then written", (entry("out", HARD, target), b""), (entry("out"), b"x"))
    package(f"pax linkpath {target[:20]}", (entry("out", LINK, "main.py", headers={"linkpath": target}), b""))
package("a chain of links", (entry("a", DIR), b""), (entry("a/b", LINK, "."), b""), (entry("a/c", LINK, "b/../.."), b""), (entry("a/c/escaped"), b"x"))
package("a link in a link", (entry("d", DIR), b""), (entry("one", LINK, "d"), b""), (entry("one/two", LINK, ".."), b""), (entry("d/two/escaped"), b"x"))
package("links that stay inside by name", (entry("x", DIR), b""), (entry("x/up", LINK, ".."), b""), (entry("y", LINK, "x/up/.."), b""), (entry("y/escaped"), b"x"))
package("a folder that becomes a link", (entry("d", DIR), b""), (entry("d", LINK, OUTSIDE), b""), (entry("d/escaped"), b"x"))
package("a file that becomes a link", (entry("f"), b"x"), (entry("f", LINK, f"{OUTSIDE}/canary.txt"), b""), (entry("f"), b"overwritten"))
package("a hard link to a link", (entry("l", LINK, f"{OUTSIDE}/canary.txt"), b""), (entry("h", HARD, "l"), b""), (entry("h"), b"overwritten"))
package("a hard link to its own handler, then written", (entry("h", HARD, "main.py"), b""), (entry("h"), b"raise SystemExit"))
package("a link to itself", (entry("l", LINK, "l"), b""), (entry("l/x"), b"x"))
package("links in a circle", (entry("a", LINK, "b"), b""), (entry("b", LINK, "a"), b""), (entry("a/x"), b"x"))
for kind, name in ((tarfile.CHRTYPE, "device"), (tarfile.BLKTYPE, "block device"), (tarfile.FIFOTYPE, "pipe"), (tarfile.CONTTYPE, "contiguous"), (b"S", "sparse"), (b"Z", "unknown"), (b"V", "volume"), (b"M", "multivolume"), (b"D", "dump"), (b"N", "old long name")):
    package(name, (entry("odd", kind), b""))
for mode in (0o4755, 0o2755, 0o1777, 0o6777, 0o7777, 0):
    package(f"mode {mode:o}", (entry("set", mode=mode), b"#!/bin/sh\nid\n"))
    package(f"folder of mode {mode:o}", (entry("set", DIR, mode=mode), b""), (entry("set/x"), b"x"))
package("of another user", (entry("of", uid=65_534), b"x"))
package("pax uid and attributes", (entry("of", headers={"uid": "0", "SCHILY.xattr.security.capability": "\x01\x00\x00\x02", "SCHILY.xattr.user.x": "y", "LIBARCHIVE.xattr.x": "y"}), b"x"))
package("pax size that lies", (entry("of", headers={"size": str(1 << 50)}), b"x"))
package("pax headers without end", (entry("of", headers={f"k{n}": "v" * 100 for n in range(MANY // 100)}), b"x"))
package("a long pax value", (entry("of", headers={"comment": "v" * (4 << 20)}), b"x"))
package("GNU sparse by pax", (entry("of", headers={"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "../escaped", "GNU.sparse.realsize": str(1 << 40)}), b"1\n0\n512\n" + bytes(504)))
for name in ("line\nend", "esc\x1b[2J", "c1\x9b31m", "bidi\u202egnp", "\uff0e\uff0e\uff0fescaped", "..\u2044escaped", "\u2025/escaped", "nul\x00../escaped", "a\\..\\..\\escaped", "C:\\escaped", "CON", "x" * 250, "y" * 256, "d/" * 120 + "x", "\u00e9", "e\u0301", "\u212a"):
    package(f"letters {name[:10]!r}", (entry(name), b"x"))
package("bytes that are not UTF-8", (entry("caf\udce9"), b"x"), format=tarfile.GNU_FORMAT)
package("one name twice", (entry("x"), b"one"), (entry("x"), b"two"))
package("names that differ in form", (entry("\u00e9"), b"one"), (entry("e\u0301"), b"two"), (entry("E\u0301"), b"three"))
package("its handler twice", (entry("main.py"), b"raise SystemExit"))
package("pyvenv.cfg", (entry("pyvenv.cfg"), f"home = {OUTSIDE}\n".encode()))
for name in ("sitecustomize.py", "usercustomize.py", "conftest.py", "setup.py", "stokehold.py", "stokehold/__init__.py", "json.py", "os.py", "site-packages/x.pth", "x.pth", "x.egg-link", "pyproject.toml", "uv.toml", ".python-version", "python/bin/python"):
    package(f"code named {name}", (entry(name), f"open({OUTSIDE + '/escaped'!r}, 'w').write('x')\n".encode()))
package("deep folders", *[(entry("/".join(["d"] * n), DIR), b"") for n in range(1, min(MANY, 2_000), 50)])
package("many entries", *[(entry(f"f{n}"), b"") for n in range(MANY)])
package("many links to one", (entry("x"), b"x" * 1000), *[(entry(f"l{n}", HARD, "x"), b"") for n in range(MANY // 10)])

# Files that are not archives, or not complete ones.
plain = (FOLDER / "0.tar.gz").read_bytes()
keep("cut", plain[: len(plain) // 2])
keep("nothing", b"")
keep("text", b"not really a package")
keep("gzip of nothing", gzip.compress(b"", mtime=0))
keep("gzip of zeros", gzip.compress(bytes(1 << 20), mtime=0))
keep("two members", plain + plain)
keep("rubbish behind", plain + b"rubbish" * 1000)
keep("a plain tar", gzip.decompress(plain))
keep("gzip in gzip", gzip.compress(plain, mtime=0))
keep("a zip", b"PK\x03\x04" + bytes(100))
keep("a wrong checksum", plain[:-8] + bytes(8))
broken = bytearray(gzip.decompress(plain))
broken[148:156] = b"9999999\0"
keep("a header with a wrong checksum", gzip.compress(bytes(broken), mtime=0))
negative = bytearray(gzip.decompress(plain))
negative[124:136] = b"\xff" * 12
keep("a negative size", gzip.compress(bytes(negative), mtime=0))
print(json.dumps(made))
