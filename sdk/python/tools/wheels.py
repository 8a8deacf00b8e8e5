"""Makes the wheels of the package from what cargo built. The same files give the same bytes.

`wheels.py runner` makes the wheel that a worker installs into each environment: the Python sources and the compiled
part. Its metadata is that of `maturin pep517 write-dist-info`.

`wheels.py publish` makes the two wheels of a release from it: one with `stoke` and the runner's wheel, which `stoke`
finds in `../share/stokehold/wheels`, and one without compiled code, for all other platforms.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import re
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
SOURCES = PROJECT / "src"
LICENSE = PROJECT.parent.parent / "LICENSE"
COMPILED = "stokehold/_wire.abi3.so"

# The compiled part uses the stable ABI of Python 3.9, so that one wheel serves every later version.
ABI = "cp39-abi3"
PURE = "py3-none-any"


@dataclass(frozen=True)
class Entry:
    """A file of a wheel."""

    name: str
    data: bytes
    is_program: bool = False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    runner = commands.add_parser("runner")
    runner.add_argument("--library", type=Path, required=True, help="the built lib_wire.so")
    runner.add_argument("--metadata", type=Path, required=True, help="folder with the .dist-info that maturin wrote")
    runner.add_argument("--platform", required=True, help="platform tag, e.g. linux_x86_64")
    publish = commands.add_parser("publish")
    publish.add_argument("--runner", type=Path, required=True, help="the runner's wheel")
    publish.add_argument("--stoke", type=Path, required=True, help="the built stoke")
    for command in (runner, publish):
        command.add_argument("--out", type=Path, required=True, help="folder of the wheels")
        command.add_argument("--strip", action="store_true", help="remove debugging information from programs")
        command.add_argument("--level", type=int, default=6, help="compression level; 0 stores")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.command == "runner":
        make_runner(options)
    else:
        make_published(options)


def make_runner(options: argparse.Namespace) -> None:
    (info,) = options.metadata.glob("stokehold-*.dist-info")
    name = f"{info.stem}-{ABI}-{options.platform}.whl"
    entries = [
        *sources(),
        Entry(COMPILED, program(options.library, options.strip), is_program=True),
        *metadata(info, f"{ABI}-{options.platform}"),
    ]
    for other in options.out.glob("stokehold-*.whl"):
        if other.name != name:
            other.unlink()
    write(options.out / name, entries, options.level)


def make_published(options: argparse.Namespace) -> None:
    name, version, _ = options.runner.name.split("-", 2)
    with zipfile.ZipFile(options.runner) as wheel:
        packed = [
            Entry(item.filename, wheel.read(item), bool(item.external_attr >> 16 & 0o100))
            for item in wheel.infolist()
            if not item.filename.endswith(".dist-info/RECORD")
        ]
    data = f"{name}-{version}.data"
    carried = [
        Entry(f"{data}/scripts/stoke", program(options.stoke, options.strip), is_program=True),
        Entry(f"{data}/data/share/stokehold/wheels/{options.runner.name}", options.runner.read_bytes()),
    ]
    write(options.out / options.runner.name, packed + carried, options.level)
    pure = [retagged(entry) for entry in packed if entry.name != COMPILED]
    write(options.out / f"{name}-{version}-{PURE}.whl", pure, options.level)


def sources() -> Iterator[Entry]:
    """The Python files of the package."""
    for path in sorted(SOURCES.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts and path.suffix in {".py", ".pyi", ".typed"}:
            yield Entry(path.relative_to(SOURCES).as_posix(), path.read_bytes())


def metadata(info: Path, tag: str) -> Iterator[Entry]:
    """METADATA with the licence's file, and WHEEL with its tag."""
    head, separator, description = (info / "METADATA").read_bytes().partition(b"\n\n")
    yield Entry(f"{info.name}/METADATA", head + b"\nLicense-File: LICENSE" + separator + description)
    yield Entry(f"{info.name}/WHEEL", wheel_file(tag, is_pure=False))
    yield Entry(f"{info.name}/licenses/LICENSE", LICENSE.read_bytes())


def wheel_file(tag: str, is_pure: bool) -> bytes:
    purelib = "true" if is_pure else "false"
    return f"Wheel-Version: 1.0\nGenerator: stokehold\nRoot-Is-Purelib: {purelib}\nTag: {tag}\n".encode()


def retagged(entry: Entry) -> Entry:
    """The entry in the wheel without compiled code."""
    if re.fullmatch(r"[^/]+\.dist-info/WHEEL", entry.name):
        return Entry(entry.name, wheel_file(PURE, is_pure=True))
    return entry


def program(path: Path, is_stripped: bool) -> bytes:
    """A program or library, without debugging information if `is_stripped`."""
    if not is_stripped:
        return path.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        stripped = Path(folder) / path.name
        subprocess.run(["strip", "--strip-debug", "-o", stripped, path], check=True)  # noqa: S607 (beside the linker)
        return stripped.read_bytes()


def write(path: Path, entries: list[Entry], level: int) -> None:
    """Writes the wheel, unless it is there with the same content."""
    (info,) = {entry.name.split("/")[0] for entry in entries if entry.name.split("/")[0].endswith(".dist-info")}
    record = [f"{entry.name},sha256={digest(entry.data)},{len(entry.data)}" for entry in entries]
    record += [f"{info}/RECORD,,", ""]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED if level else zipfile.ZIP_STORED) as wheel:
        for entry in [*entries, Entry(f"{info}/RECORD", "\n".join(record).encode())]:
            item = zipfile.ZipInfo(entry.name, date_time=(1980, 1, 1, 0, 0, 0))
            item.external_attr = (0o100755 if entry.is_program else 0o100644) << 16
            item.create_system = 3
            wheel.writestr(item, entry.data, wheel.compression, level)
    if path.is_file() and path.read_bytes() == packed.getvalue():
        return
    # Workers may read the folder at the same time.
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(packed.getvalue())
    part.replace(path)


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    main()
