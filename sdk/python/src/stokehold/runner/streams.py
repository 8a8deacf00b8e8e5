"""Sends `sys.stdout` and `sys.stderr` as logs of the writing run."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from stokehold.runner.context import CURRENT

if TYPE_CHECKING:
    from stokehold._wire import Wire


class _LogBytes(io.RawIOBase):
    """The stream at `sys.stdout.buffer`."""

    def __init__(self, wire: Wire, fd: int) -> None:
        self._wire = wire
        self._fd = fd

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        """The real descriptor, so that child processes write to the same stream as C code."""
        return self._fd

    def write(self, data: Any, /) -> int:
        text = bytes(data)
        for number in _runs():
            self._wire.log(number, self._fd == 2, text)
        return len(text)

    def flush(self) -> None:
        for number in _runs():
            self._wire.flush(number)


def _runs() -> list[int]:
    """The run that the output belongs to; 0 for none."""
    current = CURRENT.get()
    return [0] if current is None else current.numbers


class LogStream(io.TextIOBase):
    """A text stream whose text is buffered into lines per run by the wire."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, wire: Wire, fd: int) -> None:
        self.buffer = _LogBytes(wire, fd)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.buffer.fileno()

    def isatty(self) -> bool:
        return False

    def write(self, text: str, /) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self.buffer.write(text.encode(self.encoding, self.errors))
        return len(text)

    def writelines(self, lines: Iterable[Any], /) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        self.buffer.flush()

    def reconfigure(self, **_options: Any) -> None:
        """Accepts any settings: the stream is always UTF-8 and line-buffered."""


def redirect(wire: Wire, wire_fd: int) -> None:
    """Redirects both streams to the wire; a forked child restores the real ones and closes the connection."""
    real = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = LogStream(wire, 1), LogStream(wire, 2)

    def in_child() -> None:
        sys.stdout, sys.stderr = real
        CURRENT.set(None)
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, wire_fd, inheritable=False)
        os.close(nowhere)

    os.register_at_fork(after_in_child=in_child)
