"""Does what its input says, well or badly. Says its process id first, so that a test can tell that it began, and where."""

import ctypes
import os
import re
import signal
import stat
import struct
import sys
import time
from pathlib import Path

from stokehold import current_job, endpoint, progress


@endpoint(name="plain")
def plain(how: str, path: str = "", count: int = 0) -> object:
    print(os.getpid(), flush=True)
    return globals()[how](path, count)


def fine(path: str, count: int) -> object:
    return {"pid": os.getpid(), "count": count}


def environment(path: str, count: int) -> object:
    return dict(os.environ)


def wait(path: str, count: int) -> object:
    """Until the file is there."""
    while not os.path.exists(path):
        time.sleep(0.005)
    return "waited"


def stubborn(path: str, count: int) -> object:
    """Swallows being cancelled."""
    while True:
        try:
            time.sleep(3_600)
        except BaseException:
            pass


def throw(path: str, count: int) -> object:
    print("about to raise", file=sys.stderr)
    raise LookupError("no such thing")


def leave(path: str, count: int) -> object:
    print("about to exit", file=sys.stderr, flush=True)
    os._exit(3)


def segfault(path: str, count: int) -> object:
    return ctypes.string_at(0)


def fill(path: str, count: int) -> object:
    """Writes `count` MiB."""
    with (current_job().scratch / "filler").open("wb") as filler:
        for _ in range(count):
            filler.write(b"0" * (1 << 20))
    return count


def flood(path: str, count: int) -> object:
    for _ in range(1_000):
        print("x" * 100_000)


def spin(path: str, count: int) -> object:
    """Never lets go of the interpreter, and hears no signal that can be blocked."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    return re.match("(a+)+$", "a" * 64 + "b")


def freeze(path: str, count: int) -> object:
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(3_600)


def wire() -> int:
    """The one socket of a runner that has opened none itself."""
    return next(fd for fd in range(3, 256) if os.path.exists(f"/dev/fd/{fd}") and stat.S_ISSOCK(os.fstat(fd).st_mode))


def babble(path: str, count: int) -> object:
    """Writes into the runner's own wire what is no frame."""
    os.write(wire(), b"\xff" * 64)
    time.sleep(3_600)


def overfill(path: str, count: int) -> object:
    """Announces a frame that is within a header's bound, and fills it with what is no message."""
    os.write(wire(), struct.pack("<II", 512, 0) + b"x" * 512)
    time.sleep(3_600)


def say(path: str, count: int) -> object:
    for n in range(count):
        print(f"line {n}")
        progress((n + 1) / count, f"{n + 1} of {count}")
    os.write(2, b"from C\n")
    return None


def large(path: str, count: int) -> object:
    return "x" * count


def files(path: str, count: int) -> object:
    made = []
    for n in range(count):
        file = current_job().scratch / f"{n}.txt"
        file.write_text(f"file {n}")
        made.append(file)
    return {"made": made, "first": made[0], "sub": Path(path or made[0])}
