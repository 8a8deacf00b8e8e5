"""What a handler might try that wants more than its job. Each attempt says what it got."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import time
from typing import Any

from stokehold import current_job, endpoint
from stokehold.runner import outputs


@endpoint(name="hostile")
def hostile(attempt: str, what: str = "") -> Any:
    return globals()[f"try_{attempt}"](what)


def try_token(canary: str) -> list[str]:
    """Looks for the worker's join token wherever a process can look."""
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
    """The first words of a Redis on this socket, of who comes without its password."""
    with socket.socket(socket.AF_UNIX) as redis:
        redis.settimeout(2)
        try:
            redis.connect(path)
            redis.sendall(b"KEYS *\r\n")
            return redis.recv(100).decode()
        except OSError as error:
            return type(error).__name__ + f" {error.errno}"


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
    """Attaches to whatever can be seen, as a debugger would."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    attach = 16
    seen = [int(entry.name) for entry in pathlib.Path("/proc").glob("[0-9]*")]
    attached = [pid for pid in seen if pid != os.getpid() and libc.ptrace(attach, pid, 0, 0) == 0]
    return f"{len(attached)} of {len(seen)}"


def try_link(target: str) -> pathlib.Path:
    """Names a link as a file of its result, past the runner's own look."""
    link = current_job().scratch / "picture.png"
    link.symlink_to(target)

    def place(self: outputs.Outputs, path: pathlib.Path) -> str:
        self.files.append(outputs.OutputFile("picture.png", str(path), "image/png"))
        return "picture.png"

    outputs.Outputs._place = place
    return link


def try_outlive(_what: str) -> str:
    """Leaves a process that wants to go on, and says how it is known outside."""
    name = f"outlive-{current_job().id}"
    subprocess.Popen(["bash", "-c", f"exec -a {name} sleep 600"], start_new_session=True)
    while not any(name in _command(entry) for entry in pathlib.Path("/proc").glob("[0-9]*")):
        time.sleep(0.01)
    return name


def try_fill(_what: str) -> None:
    """Writes files until somebody stops it."""
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
