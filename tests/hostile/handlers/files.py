"""Attacks on files: reads and writes of foreign files, and of the code that runners start with."""

import ctypes
import mmap
import os
import pathlib
import shutil
import socket
import stat
import subprocess
import sys
import sysconfig
from typing import Any, Callable

import stokehold
from stokehold import current_job
from stokehold.runner import outputs
from tally import Tally

LIBC = ctypes.CDLL(None, use_errno=True)


def try_reads(targets: list[str], canary: str) -> Any:
    """Reads files that contain a canary, each in every possible way."""
    tally, own = Tally(), current_job().scratch
    for number, target in enumerate(targets):
        for name, read in READS.items():
            place = own / f"{name}-{number}"
            tally.tried(f"{name} {target}", lambda: _seen(read(target, place), canary))
    return tally.report()


def _seen(content: bytes, canary: str) -> str:
    return f"{len(content)} bytes with the canary" if canary.encode() in content else ""


def _open(path: str, _place: pathlib.Path) -> bytes:
    return pathlib.Path(path).read_bytes()


def _by_path_descriptor(path: str, _place: pathlib.Path) -> bytes:
    held = os.open(path, os.O_PATH)
    return pathlib.Path(f"/proc/self/fd/{held}").read_bytes()


def _by_folder_descriptor(path: str, _place: pathlib.Path) -> bytes:
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
    return os.read(os.open(os.path.basename(path), os.O_RDONLY, dir_fd=folder), 1 << 20)


def _by_symlink(path: str, place: pathlib.Path) -> bytes:
    place.symlink_to(path)
    return place.read_bytes()


def _by_hard_link(path: str, place: pathlib.Path) -> bytes:
    os.link(path, place)
    return place.read_bytes()


def _by_hard_link_to_descriptor(path: str, place: pathlib.Path) -> bytes:
    held = os.open(path, os.O_PATH)
    os.link(f"/proc/self/fd/{held}", place, follow_symlinks=True)
    return place.read_bytes()


def _by_rename(path: str, place: pathlib.Path) -> bytes:
    os.rename(path, place)
    content = place.read_bytes()
    os.rename(place, path)
    return content


def _under(prefix: str) -> Callable[[str, pathlib.Path], bytes]:
    return lambda path, _place: pathlib.Path(prefix + path).read_bytes()


def _by_dots(path: str, _place: pathlib.Path) -> bytes:
    return pathlib.Path("../" * 40 + path.lstrip("/")).read_bytes()


def _by_dotted_names(path: str, _place: pathlib.Path) -> bytes:
    parts = path.strip("/").split("/")
    return pathlib.Path("/" + "".join(f"{part}/./../{part}/" for part in parts[:-1]) + parts[-1]).read_bytes()


def _by_cat(path: str, _place: pathlib.Path) -> bytes:
    return subprocess.run(["cat", path], capture_output=True, timeout=10, check=False).stdout


def _by_python(path: str, _place: pathlib.Path) -> bytes:
    code = "import sys; sys.stdout.buffer.write(open(sys.argv[1], 'rb').read())"
    return subprocess.run([sys.executable, "-c", code, path], capture_output=True, timeout=30, check=False).stdout


def _by_map(path: str, _place: pathlib.Path) -> bytes:
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)[:]


def _by_sendfile(path: str, place: pathlib.Path) -> bytes:
    with open(path, "rb") as file, open(place, "wb") as out:
        os.sendfile(out.fileno(), file.fileno(), 0, 1 << 20)
    return place.read_bytes()


def _by_copy(path: str, place: pathlib.Path) -> bytes:
    shutil.copyfile(path, place)
    return place.read_bytes()


def _by_openat2(path: str, _place: pathlib.Path) -> bytes:
    how = (ctypes.c_uint64 * 3)(os.O_RDONLY, 0, 0)
    held = LIBC.syscall(437, -100, path.encode(), how, ctypes.sizeof(how))
    if held < 0:
        raise OSError(ctypes.get_errno(), "openat2")
    return os.read(held, 1 << 20)


READS = {
    "open": _open,
    "O_PATH": _by_path_descriptor,
    "openat": _by_folder_descriptor,
    "symlink": _by_symlink,
    "hard-link": _by_hard_link,
    "hard-link-fd": _by_hard_link_to_descriptor,
    "rename": _by_rename,
    "self-root": _under("/proc/self/root"),
    "init-root": _under("/proc/1/root"),
    "parent-root": lambda path, place: _under(f"/proc/{os.getppid()}/root")(path, place),
    "thread-root": lambda path, place: _under("/proc/thread-self/root")(path, place),
    "parent-cwd": lambda path, place: _under(f"/proc/{os.getppid()}/cwd/" + "../" * 20)(path, place),
    "double-slash": _under("//"),
    "dots": _by_dots,
    "dotted-names": _by_dotted_names,
    "cat": _by_cat,
    "python": _by_python,
    "mmap": _by_map,
    "sendfile": _by_sendfile,
    "copyfile": _by_copy,
    "openat2": _by_openat2,
}


def try_writes(targets: list[str], _canary: str) -> Any:
    """Changes foreign folders. Each has a file `canary.txt`."""
    tally = Tally()
    for target in targets:
        _write_into(tally, target)
    return tally.report()


def _write_into(tally: Tally, target: str) -> None:
    folder, own = pathlib.Path(target), current_job().scratch
    there, made = folder / "canary.txt", folder / "zz-hostile"

    def gone(done: Any) -> str:
        """Removes what was made, so that the next way has the same chance."""
        for path in (made,):
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            else:
                path.unlink(missing_ok=True)
        return f"done {done}"

    def moved() -> str:
        mine = own / "mine"
        mine.write_text("x")
        os.rename(mine, made)
        return gone("rename")

    def linked() -> str:
        mine = own / "linked"
        mine.write_text("x")
        os.link(mine, made)
        return gone("link")

    def bound() -> str:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(made))
        return gone("bind")

    def appended() -> str:
        with open(there, "ab") as file:
            file.write(b"hostile")
        return "appended"

    def by_descriptor() -> str:
        held = os.open(there, os.O_PATH)
        with open(f"/proc/self/fd/{held}", "ab") as file:
            file.write(b"hostile")
        return "appended by descriptor"

    tally.tried(f"create {target}", lambda: gone(made.write_text("x")))
    tally.tried(f"mkdir {target}", lambda: gone(made.mkdir()))
    tally.tried(f"symlink {target}", lambda: gone(made.symlink_to("/etc/passwd")))
    tally.tried(f"fifo {target}", lambda: gone(os.mkfifo(made)))
    tally.tried(f"device {target}", lambda: gone(os.mknod(made, stat.S_IFCHR | 0o666, os.makedev(1, 3))))
    tally.tried(f"rename {target}", moved)
    tally.tried(f"link {target}", linked)
    tally.tried(f"bind {target}", bound)
    tally.tried(f"temporary {target}", lambda: gone(os.open(folder, os.O_TMPFILE | os.O_RDWR)))
    tally.tried(f"parent-root {target}", lambda: gone(pathlib.Path(f"/proc/{os.getppid()}/root{made}").write_text("x")))
    if there.exists():
        tally.tried(f"append {target}", appended)
        tally.tried(f"append-fd {target}", by_descriptor)
        tally.tried(f"truncate {target}", lambda: f"truncated {os.truncate(there, 0)}")
        tally.tried(f"unlink {target}", lambda: f"unlinked {os.unlink(there)}")
        tally.tried(f"exchange {target}", lambda: f"renamed {os.rename(there, folder / 'other.txt')}")


def try_poison(_targets: list[str], _canary: str) -> Any:
    """Changes code that the next runner of this or another endpoint starts with."""
    package = pathlib.Path(stokehold.__file__).parent
    places = {package, package / "runner", pathlib.Path.cwd(), pathlib.Path(sys.prefix), pathlib.Path(sys.executable).parent}
    places |= {pathlib.Path(sysconfig.get_path(name)) for name in ("purelib", "stdlib", "scripts")}
    places |= {place / "__pycache__" for place in tuple(places) if (place / "__pycache__").is_dir()}
    tally = Tally()
    for place in sorted(places):
        _write_into(tally, str(place))
    tally.tried("its own code", lambda: _appended_to(pathlib.Path(outputs.__file__)))
    tally.tried("pyvenv.cfg", lambda: _appended_to(pathlib.Path(sys.prefix) / "pyvenv.cfg"))
    return tally.report()


def _appended_to(path: pathlib.Path) -> str:
    with open(path, "ab") as file:
        file.write(b"")
    return "could be appended to"
