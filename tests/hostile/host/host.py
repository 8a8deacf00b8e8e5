"""Attacks of a handler on its machine, except reading and writing files. Each attack counts its attempts and
returns what it obtained.
"""

import ctypes
import os
import pathlib
import socket
import stat
import time
from typing import Any, Callable, Optional

from stokehold import current_job, endpoint

LIBC = ctypes.CDLL(None, use_errno=True)


class Tally:
    def __init__(self) -> None:
        self.attempted, self.got = 0, []

    def tried(self, what: str, attempt: Callable[[], Any]) -> None:
        self.attempted += 1
        try:
            got = attempt()
        except (OSError, ValueError):
            return
        if got:
            self.got.append(f"{what}: {str(got)[:200]}")

    def result(self) -> dict[str, Any]:
        return {"attempted": self.attempted, "got": self.got}


@endpoint(name="host", max_attempts=1)
def host(attack: str, targets: list[str] = [], file: Optional[pathlib.Path] = None) -> Any:  # noqa: B006
    if file is not None:
        return file.read_text()
    return globals()[f"try_{attack}"](targets)


def try_system_secrets(targets: list[str]) -> Any:
    """Reads files that only root may read."""
    tally = Tally()
    for target in targets:
        tally.tried(target, lambda: f"{len(pathlib.Path(target).read_bytes())} bytes")
        tally.tried(f"descriptor of {target}", lambda: f"{len(pathlib.Path(f'/proc/self/fd/{os.open(target, os.O_PATH)}').read_bytes())} bytes")
        tally.tried(f"by the root of its parent {target}", lambda: f"{len(pathlib.Path(f'/proc/{os.getppid()}/root{target}').read_bytes())} bytes")
    tally.tried("user 0", lambda: "it is root" if 0 in (os.getuid(), os.geteuid()) else "")
    tally.tried("group 0", lambda: "it is in root's group" if 0 in (os.getgid(), *os.getgroups()) else "")
    return tally.result()


def try_rights(targets: list[str]) -> Any:
    """Changes modes, owners, times and attributes of foreign files, `device:inode:path`. Each is set to its
    current value.
    """
    tally = Tally()
    for named in targets:
        device, inode, target = named.split(":", 2)
        try:
            is_now = os.stat(target)
        except OSError:
            # The file is not visible: so it cannot be changed by its name either.
            is_now = None
        # In a sandbox, a file of its own may have that name, and may be changed.
        before = list(tally.got)
        mode = stat.S_IMODE(is_now.st_mode) if is_now else 0o644
        user, group = (is_now.st_uid, is_now.st_gid) if is_now else (0, 0)
        tally.tried(f"chmod {target}", lambda: f"done {os.chmod(target, mode)}")
        tally.tried(f"fchmodat {target}", lambda: f"done {os.chmod(os.path.basename(target), mode, dir_fd=os.open(os.path.dirname(target) or '/', os.O_PATH))}")
        tally.tried(f"chmod by descriptor {target}", lambda: f"done {os.chmod(f'/proc/self/fd/{os.open(target, os.O_PATH)}', mode)}")
        tally.tried(f"chown {target}", lambda: f"done {os.chown(target, user, group)}")
        tally.tried(f"lchown {target}", lambda: f"done {os.lchown(target, user, group)}")
        tally.tried(f"utime {target}", lambda: f"done {os.utime(target, ns=(0, 0)) if is_now is None else os.utime(target, ns=(is_now.st_atime_ns, is_now.st_mtime_ns))}")
        tally.tried(f"setxattr {target}", lambda: f"done {os.setxattr(target, 'user.hostile', b'x')}")
        tally.tried(f"removexattr {target}", lambda: f"done {os.removexattr(target, 'user.hostile')}")
        tally.tried(f"acl {target}", lambda: f"done {os.setxattr(target, 'system.posix_acl_access', b'')}")
        if is_now is not None and (is_now.st_dev, is_now.st_ino) != (int(device), int(inode)):
            tally.got = before
    return tally.result()


def try_sockets(targets: list[str]) -> Any:
    """Connects to servers on Unix sockets by all of their names."""
    tally, own = Tally(), current_job().scratch
    for number, target in enumerate(targets):
        names = [target, f"/proc/self/root{target}", "../" * 30 + target.lstrip("/")]
        short = own / f"s{number}"
        try:
            short.symlink_to(target)
            names.append(str(short))
        except OSError:
            pass
        for name in names:
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
                tally.tried(f"connect {name} {kind}", lambda: _connected(name, kind))
                tally.tried(f"send {name} {kind}", lambda: _sent(name, kind))
                tally.tried(f"send from a pair {name} {kind}", lambda: _sent_from_a_pair(name, kind))
    return tally.result()


def _connected(name: str, kind: int) -> str:
    with socket.socket(socket.AF_UNIX, kind) as one:
        one.settimeout(1)
        one.connect(name)
    return "connected"


def _sent(name: str, kind: int) -> str:
    with socket.socket(socket.AF_UNIX, kind) as one:
        one.settimeout(1)
        return f"sent {one.sendto(b'x', name)}"


def _sent_from_a_pair(name: str, kind: int) -> str:
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    with one, other:
        sent = one.sendmsg([b"x"], [], 0, name)
        # The kernel ignores the name for a pair of this type.
        other.setblocking(False)
        if kind == socket.SOCK_SEQPACKET and other.recv(1):
            raise OSError("it went to the other end of the pair")
        return f"sent {sent}"


def try_forge(targets: list[str]) -> None:
    """Fails with a class and a message that continue as a line of a log."""
    (line,) = targets
    raise type(f"Oops{line}", (Exception,), {})(f"and a message{line}")


def try_exchange(targets: list[str]) -> int:
    """Swaps each folder of the endpoint's other runs for one in which each name is a link, for the given number of seconds.

    Returns the number of swaps.
    """
    kind, name, target, seconds = targets
    work = current_job().scratch.parent
    places = [work, work.parent, work.parent / "inputs", work.parent / "homes", work.parent / "work"]
    swapped, end = 0, time.monotonic() + float(seconds)
    while time.monotonic() < end:
        for place in places:
            for victim in _entries(place):
                if victim.name.startswith("evil") or victim in (work, current_job().scratch):
                    continue
                evil = work / f"evil-{swapped % 50}"
                if kind == "link":
                    _quietly(lambda: evil.symlink_to(target))
                else:
                    _quietly(lambda: evil.mkdir())
                    make = os.link if kind == "hard link" else os.symlink
                    _quietly(lambda: make(target, evil / name))
                swapped += LIBC.renameat2(-100, bytes(evil), -100, bytes(victim), 2) == 0
    return swapped


def _entries(folder: pathlib.Path) -> list[pathlib.Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _quietly(attempt: Callable[[], Any]) -> None:
    try:
        attempt()
    except OSError:
        pass
