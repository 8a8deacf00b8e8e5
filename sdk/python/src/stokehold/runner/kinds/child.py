"""A child program of a runner: the program and the runner end together."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Callable

# Shorter than the worker's grace period for a runner that was asked to stop.
_STOP_GRACE_S = 3.0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
# Longer than the delivery of a signal to this process takes.
_DEATH_S = 1.0
# Loaded now, because libraries must not be loaded between fork and exec.
_libc = ctypes.CDLL(None, use_errno=True)
_prctl: Callable[[int, int], int] | None = getattr(_libc, "prctl", None)


def die_with_parent() -> None:
    """For `preexec_fn`: kills the program when the thread that started it ends."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Makes orphaned processes children of this process, so that `end_orphans` finds them."""
    if _prctl is not None:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_orphans() -> None:
    """Kills all descendants of this process; call it only when none of them is needed."""
    while orphans := descendants(os.getpid()):
        for pid in orphans:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in orphans:
            # Orphans of the killed processes become children of this process only in the next round.
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def descendants(pid: int) -> list[int]:
    """All descendants, as far as the kernel reports them."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *descendants(child)]
    return found


class ChildEnded(Exception):  # noqa: N818
    """The program exited before it was ready; see its standard error for the reason."""


class Child:
    """Starts a program in the package's folder, with the runner's own standard output and error.

    Once `watch` was called, its end is the runner's: with the same exit code, or by the same signal, so that the worker
    sees what happened to the program as if it had happened to the runner. Start it from the main thread.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._stopping = False
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=1,
            stderr=2,
            env={**os.environ, **environment},
            preexec_fn=die_with_parent,
        )
        self._name = Path(command[0]).name

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """Raises `ChildEnded` if the process has exited."""
        code = self._process.poll()
        if code is not None:
            raise ChildEnded(f"{self._name} {_ending(code)} before it was ready")

    def watch(self) -> None:
        """From now on, ends the runner when the process exits."""
        threading.Thread(target=self._wait, name="child", daemon=True).start()

    def stop(self) -> None:
        """Terminates the process, and kills it after a grace period."""
        self._stopping = True
        self._process.terminate()
        try:
            self._process.wait(_STOP_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait(self) -> None:
        code = self._process.wait()
        if not self._stopping:
            end_like(code)


def end_like(code: int) -> None:
    """Ends this process like another one, by `subprocess`'s return code."""
    if code < 0:
        faulthandler.disable()
        # Python can reset a signal handler in its main thread only.
        _libc.signal(-code, ctypes.c_void_p(0))
        os.kill(os.getpid(), -code)
        time.sleep(_DEATH_S)
    # A server that exits with 0 has failed too.
    os._exit(code if code > 0 else 1)


def _ending(code: int) -> str:
    return f"exited with code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"
