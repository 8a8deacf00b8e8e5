"""Attacks of a handler that tries to exceed its rights. Each attempt returns what it obtained."""

import contextlib
import ctypes
import os
import pathlib
import signal
import socket
import subprocess
import time
from typing import Any, Optional

from stokehold import current_job, endpoint
from stokehold.runner import outputs


@endpoint(name="hostile")
def hostile(attempt: str, what: str = "", file: Optional[pathlib.Path] = None) -> Any:
    if file is not None:
        return file.read_text()
    return globals()[f"try_{attempt}"](what)


def try_token(canary: str) -> list[str]:
    """Searches for the worker's join token everywhere that a process can read."""
    found = []
    for place in [*pathlib.Path("/proc").glob("[0-9]*/environ"), *pathlib.Path("/proc").glob("[0-9]*/cmdline")]:
        with contextlib.suppress(OSError):
            if canary.encode() in place.read_bytes():
                found.append(str(place))
    return found


def try_connect(address: str) -> str:
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), 2).close()
    except OSError as error:
        return type(error).__name__ + f" {error.errno}"
    return "connected"


def try_redis(path: str) -> str:
    """The first words of a Redis on this socket, to a client without its password."""
    with socket.socket(socket.AF_UNIX) as redis:
        redis.settimeout(2)
        try:
            redis.connect(path)
            redis.sendall(b"KEYS *\r\n")
            return redis.recv(100).decode()
        except OSError as error:
            return type(error).__name__ + f" {error.errno}"


def try_unix(path: str) -> list[str]:
    """Every way to a server of that name, including those that need no name."""

    def connects(kind: int) -> str:
        with socket.socket(socket.AF_UNIX, kind) as end:
            return str(end.connect(path))

    def sends(kind: int) -> str:
        with socket.socket(socket.AF_UNIX, kind) as end:
            return str(end.sendto(b"hello", path))

    def sends_from_a_pair(kind: int) -> str:
        one, other = socket.socketpair(socket.AF_UNIX, kind)
        with one, other:
            return str(one.sendmsg([b"hello"], [], 0, path))

    def pairs() -> str:
        one, other = socket.socketpair()
        with one, other:
            one.sendall(b"still here")
            return other.recv(10).decode()

    ways = [lambda: connects(socket.SOCK_STREAM), lambda: connects(socket.SOCK_SEQPACKET)]
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
        ways += [lambda kind=kind: way(kind) for way in (connects, sends, sends_from_a_pair)]
    return [_told(way) for way in [*ways, pairs]]


def try_user(_what: str) -> dict[str, Any]:
    """The handler's user, and its additional rights."""
    status = pathlib.Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":\t", 1) for line in status)
    names = ("CapPrm", "CapEff", "CapBnd", "NoNewPrivs")
    return {"uid": os.getuid(), "gid": os.getgid(), "groups": os.getgroups(), **{name: fields[name] for name in names}}


def try_rights(path: str) -> str:
    """Changes the owner of a file, and its permissions."""
    attempts = [lambda: os.chmod(path, 0o777), lambda: os.chown(path, os.getuid(), -1), lambda: os.utime(path, (0, 0))]
    return " ".join(_told(attempt) for attempt in attempts)


def try_forge(line: str) -> None:
    """Fails with a class whose name continues on another line of a log."""
    raise type(f"Oops\n{line}", (Exception,), {})(f"and a message\n{line}")


def try_exchange(what: str) -> int:
    """Replaces each folder of the endpoint's other runs by one in which a file is a link, until `try_enough` runs.

    Returns the number of swaps.
    """
    name, target = what.split(" ", 1)
    work = current_job().scratch.parent
    libc, swapped = ctypes.CDLL(None, use_errno=True), 0
    at_cwd, exchange = -100, 2
    inputs = work.parent / "inputs"
    evil = inputs / "evil"
    while not (work / "enough").exists():
        for victim in [path for path in _entries(inputs) if path.name.startswith("run-")]:
            with contextlib.suppress(OSError):
                evil.mkdir(exist_ok=True)
                if not (evil / name).is_symlink():
                    (evil / name).symlink_to(target)
                swapped += libc.renameat2(at_cwd, bytes(evil), at_cwd, bytes(victim), exchange) == 0
    return swapped


def try_enough(_what: str) -> None:
    (current_job().scratch.parent / "enough").touch()


def _entries(folder: pathlib.Path) -> list[pathlib.Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def try_read(path: str) -> str:
    return _told(lambda: pathlib.Path(path).read_text()[:100])


def try_write(path: str) -> str:
    return _told(lambda: str(pathlib.Path(path).write_text("mine now")))


def try_environment(_what: str) -> str:
    return _told(lambda: str(pathlib.Path(outputs.__file__).write_text("raise SystemExit('poisoned')")))


def try_forks(_what: str) -> dict[str, Any]:
    """Starts processes until the kernel refuses."""
    children, refusal = [], ""
    try:
        while len(children) < 20_000:
            child = os.fork()
            if child == 0:
                signal.pause()
            children.append(child)
    except OSError as error:
        refusal = type(error).__name__
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return {"children": len(children), "refusal": refusal}


def try_signal(pid: str) -> str:
    return _told(lambda: str(os.kill(int(pid), signal.SIGKILL)))


def try_trace(_what: str) -> str:
    """Attaches to every visible process, as a debugger would."""
    libc = ctypes.CDLL(None, use_errno=True)
    attach = 16
    seen = [int(entry.name) for entry in pathlib.Path("/proc").glob("[0-9]*")]
    attached = [pid for pid in seen if pid != os.getpid() and libc.ptrace(attach, pid, 0, 0) == 0]
    return f"{len(attached)} of {len(seen)}"


def try_link(target: str) -> pathlib.Path:
    """Declares a link as a file of its result, bypassing the runner's own check."""
    link = current_job().scratch / "picture.png"
    link.symlink_to(target)

    def place(self: outputs.Outputs, path: pathlib.Path) -> str:
        self.files.append(outputs.OutputFile("picture.png", str(path), "image/png"))
        return "picture.png"

    outputs.Outputs._place = place
    return link


def try_outlive(_what: str) -> str:
    """Leaves a process that continues, and returns its name outside."""
    name = f"outlive-{current_job().id}"
    subprocess.Popen(["bash", "-c", f"exec -a {name} sleep 600"], start_new_session=True)
    while not any(name in _command(entry) for entry in pathlib.Path("/proc").glob("[0-9]*")):
        time.sleep(0.01)
    return name


def try_fill(_what: str) -> None:
    """Writes files until it is stopped."""
    for number in range(1_000_000):
        (current_job().scratch / str(number)).write_bytes(b"x" * (1 << 20))
        time.sleep(0.005)


def try_memory(_what: str) -> str:
    """Fills the temporary file system."""
    with open("/tmp/fill", "wb") as file:  # noqa: S108 - its own
        return _told(lambda: str([file.write(b"x" * (1 << 24)) for _ in range(200)]))


def _command(entry: pathlib.Path) -> str:
    with contextlib.suppress(OSError):
        return (entry / "cmdline").read_bytes().decode("utf-8", "replace")
    return ""


def _told(attempt: Any) -> str:
    try:
        return str(attempt())
    except OSError as error:
        return f"{type(error).__name__} {error.errno}"
