"""Descriptions of exceptions that a user can act on."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from stokehold.runner import fault, oom
from stokehold.runner.errors import BadOutput, Cancelled, Reject

_OWN_FOLDER = str(Path(__file__).parent)
_MESSAGE_CHARS_MAX = 2_000
_TRACEBACK_BYTES_MAX = 16 * 1024
_TRACEBACK_HEAD_BYTES = 4 * 1024
# JSON encodes each as six characters, and the size of a report's header is limited.
_CONTROL_CHARACTERS = {code: "?" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"}


class Failure(NamedTuple):
    """An exception as sent over the wire."""

    code: str
    class_name: str
    message: str
    traceback: str


class Relayed(Exception):  # noqa: N818
    """An exception of another process, as described by that process."""

    def __init__(self, message: str, traceback: str) -> None:
        super().__init__(message)
        self.message = message
        self.traceback = traceback

    def __str__(self) -> str:
        return self.message


def relayed(class_name: str, message: str, traceback: str) -> Relayed:
    """An exception that is described and classified as in its own process.

    class_name: with its module, unless that is `builtins`.
    """
    module, _, name = class_name.rpartition(".")
    # `oom` and `fault` recognise some by their base classes.
    known = {"RuntimeError": RuntimeError, "MemoryError": MemoryError}.get(class_name)
    bases = (Relayed,) if known is None else (Relayed, known)
    kind: type[Relayed] = type(name, bases, {"__module__": module or "builtins"})
    return kind(message, traceback)


def describe(error: BaseException, code: str | None = None) -> Failure:
    """Describes an exception; `code` overrides the code of its class."""
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    return Failure(code or _code(error), _clean(name)[:200], _message(error), _traceback(error))


def _code(error: BaseException) -> str:
    if isinstance(error, Reject):
        return "rejected"
    if isinstance(error, Cancelled):
        return "cancelled"
    if isinstance(error, BadOutput):
        return "bad_output"
    return oom.which(error) or (fault.CUDA if fault.is_one(error) else "handler_error")


def _message(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as broken:
        text = f"<no text: str() raised {type(broken).__name__}>"
    return " ".join(_clean(text[: 2 * _MESSAGE_CHARS_MAX]).split())[:_MESSAGE_CHARS_MAX]


def _traceback(error: BaseException) -> str:
    """The traceback from the handler's first frame on; empty if the handler did not raise the exception."""
    if isinstance(error, Relayed):
        return _bounded(error.traceback)
    frames = _handler_frames(error.__traceback__)
    if frames is None and not isinstance(error, SyntaxError):
        return ""
    try:
        text = "".join(traceback.TracebackException(type(error), error, frames).format())
    except Exception:
        # An exception's own __str__ or __repr__ may raise; the frames are still valid.
        text = "".join(traceback.format_tb(frames))
    return _bounded(text)


def _bounded(text: str) -> str:
    """Removes the middle of a long traceback."""
    encoded = _clean(text).encode()
    if len(encoded) <= _TRACEBACK_BYTES_MAX:
        return encoded.decode()
    gap = b"\n  ...\n"
    tail = encoded[_TRACEBACK_HEAD_BYTES + len(gap) - _TRACEBACK_BYTES_MAX :]
    return (encoded[:_TRACEBACK_HEAD_BYTES] + gap + tail).decode("utf-8", "ignore")


def _handler_frames(frames: TracebackType | None) -> TracebackType | None:
    while frames is not None and _is_ours(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    return frames


def _is_ours(file: str) -> bool:
    return file.startswith((_OWN_FOLDER, "<frozen importlib"))


def _clean(text: str) -> str:
    return text.translate(_CONTROL_CHARACTERS).encode("utf-8", "backslashreplace").decode()
