"""Packs a folder as a worker archive: `archive.py FOLDER OUT.tar.gz GLIBC`. Without OUT.tar.gz only checks it.

Rejects any program or library, in the folder or in its wheels, that requires a newer symbol than GLIBC has or a library
that not every machine has. The same files produce the same bytes; `OUT.tar.gz.sha256` contains the checksum.
"""

import gzip
import hashlib
import io
import struct
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

# The libraries of glibc (the loader's name depends on the architecture), and GCC's, which manylinux relies on too.
EVERYWHERE = (
    "libc.so.",
    "libm.so.",
    "libdl.so.",
    "libpthread.so.",
    "librt.so.",
    "libutil.so.",
    "ld-linux",
    "libgcc_s.so.",
)

DYNAMIC, VERNEED = 6, 0x6FFFFFFE
DT_NEEDED = 1


def needs(elf: bytes) -> tuple[list[str], list[str]]:
    """The libraries that a 64-bit little-endian ELF file requires, and the versions of their symbols."""
    if elf[4:6] != b"\x02\x01":
        raise SystemExit("not a 64-bit little-endian ELF file")
    at, size, count = *struct.unpack_from("<Q", elf, 40), *struct.unpack_from("<HH", elf, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", elf, at + index * size) for index in range(count)]

    def text(section: int, offset: int) -> str:
        start = sections[section][4] + offset
        return elf[start : elf.index(b"\0", start)].decode()

    libraries, versions = [], []
    for _, kind, _, _, offset, length, strings, info, _, _ in sections:
        if kind == DYNAMIC:
            entries = (struct.unpack_from("<QQ", elf, place) for place in range(offset, offset + length, 16))
            libraries += [text(strings, value) for tag, value in entries if tag == DT_NEEDED]
        if kind == VERNEED:
            library = offset
            for _ in range(info):
                _, symbols, _, first, following = struct.unpack_from("<HHIII", elf, library)
                symbol = library + first
                for _ in range(symbols):
                    _, _, _, name, further = struct.unpack_from("<IHHII", elf, symbol)
                    versions.append(text(strings, name))
                    symbol += further
                library += following
    return libraries, versions


def glibc(version: str) -> tuple[int, ...]:
    """Parses `GLIBC_2.17` into numbers; private or unknown versions count as newer than all others."""
    numbers = version.removeprefix("GLIBC_").split(".")
    return tuple(map(int, numbers)) if all(number.isdigit() for number in numbers) else (99,)


def programs(folder: Path) -> Iterator[tuple[str, bytes]]:
    """All ELF files of a folder, including those inside its wheels."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        files = [(path.name, path.read_bytes())]
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as wheel:
                files = [(f"{path.name}/{name}", wheel.read(name)) for name in wheel.namelist()]
        yield from ((name, data) for name, data in files if data.startswith(b"\x7fELF"))


def check(folder: Path, allowed: str) -> None:
    found = 0
    for name, elf in programs(folder):
        libraries, versions = needs(elf)
        foreign = [library for library in libraries if not library.startswith(EVERYWHERE)]
        newest = max((version for version in versions if version.startswith("GLIBC_")), key=glibc, default="")
        if foreign:
            raise SystemExit(f"{name} requires {', '.join(foreign)}, which not every machine has")
        if newest and glibc(newest) > glibc(allowed):
            raise SystemExit(f"{name} requires {newest}, but this is for glibc {allowed}")
        sys.stderr.write(f"  {name}: {newest or 'no glibc'}\n")
        found += 1
    if not found:
        raise SystemExit(f"no program found in {folder}")


def pack(folder: Path, out: Path) -> None:
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, filename="") as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for path in sorted([folder, *folder.rglob("*")]):
            member = archive.gettarinfo(path, arcname=str(path.relative_to(folder.parent)))
            runs = path.is_dir() or path.parent.name == "bin"
            member.mode, member.mtime = (0o755 if runs else 0o644), 0
            member.uid = member.gid = 0
            member.uname = member.gname = "root"
            if path.is_file():
                with path.open("rb") as file:
                    archive.addfile(member, file)
            else:
                archive.addfile(member)
    data = packed.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    # Replace the file atomically: the folder may be served at the same time.
    part = out.with_name(out.name + ".part")
    part.write_bytes(data)
    part.replace(out)
    out.with_name(out.name + ".sha256").write_text(f"{digest}  {out.name}\n")
    sys.stderr.write(f"{out.name}: {len(data) / 1e6:.1f} MB, sha256 {digest}\n")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        raise SystemExit(__doc__)
    check(Path(sys.argv[1]), sys.argv[-1])
    if len(sys.argv) == 4:
        pack(Path(sys.argv[1]), Path(sys.argv[2]))
