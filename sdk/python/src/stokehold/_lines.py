"""JSON Lines: written to a temporary file, so that a retry can send them again, and decoded from a response stream."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path, PurePath
from typing import IO, TYPE_CHECKING, Any, Union

from stokehold._errors import ConnectionFailed, StokeholdError
from stokehold._files import InputEncoder
from stokehold._request import Call, Plan, Reply, Work, decode_error
from stokehold._retry import Retry
from stokehold._transfer import CHUNK_BYTES

if TYPE_CHECKING:
    from stokehold._api import Api

Line = Union[Mapping[str, Any], str, bytes]
Lines = Union[str, PurePath, IO[str], IO[bytes], Iterable[Line]]
"""A path, an open file, or lines: each a dict, or JSON already."""

# Far above the longest line that the API writes.
LINE_BYTES_MAX = 64 << 20

# A connection that lasted this long resets the retries.
STEADY_S = 10.0


def spool(api: Api, lines: Lines) -> Plan[tuple[Path, bool]]:
    """Writes lines to a file. Returns its path, and whether it is a temporary file that the caller must remove.

    Memory holds one chunk at a time, whatever the source of the lines. A `pathlib.Path` in a line is uploaded.
    """
    if isinstance(lines, (str, PurePath)):
        return Path(lines), False
    handle, name = tempfile.mkstemp(prefix="stokehold-", suffix=".jsonl")
    path = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            if hasattr(lines, "read"):
                opened: Any = lines
                yield Work(lambda: _copy(opened, file))
            else:
                yield from _encode(api, lines, file)
        return path, True
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _encode(api: Api, lines: Iterable[Line], file: IO[bytes]) -> Plan[None]:
    names = InputEncoder()
    buffer = bytearray()
    for number, line in enumerate(lines, 1):
        if isinstance(line, Mapping):
            buffer += yield from api.encode(line, names)
        else:
            buffer += _encoded(line, number)
        buffer += b"\n"
        if len(buffer) >= CHUNK_BYTES:
            chunk, buffer = buffer, bytearray()
            yield Work(partial(file.write, chunk))
    yield Work(partial(file.write, buffer))


def _encoded(line: Any, number: int) -> bytes:
    if not isinstance(line, (str, bytes)):
        raise TypeError(f"line {number} is a {type(line).__name__}; pass a dict, or a line of JSON as str or bytes")
    text = (line.encode() if isinstance(line, str) else line).rstrip(b"\r\n")
    if b"\n" in text:
        raise ValueError(f"line {number} contains a line break; pass one line at a time, or the open file")
    return text


def _copy(source: Any, file: IO[bytes]) -> None:
    while chunk := source.read(CHUNK_BYTES):
        file.write(chunk.encode() if isinstance(chunk, str) else chunk)


class LineReader:
    """Decodes a response of lines across reconnects, each line once.

    `feed` takes bytes; `pause_s` is for when they stop. Lines are identified by `line`, or else by `custom_id` or
    `job_id`. If a line has none of these, a response that is cut off cannot be resumed and is an error.
    """

    def __init__(self, call: Call, retry: Retry) -> None:
        self.done = False
        self._call = call
        self._retry = retry
        self._rest = bytearray()
        self._numbers = _Numbers()
        self._names: set[str] = set()
        self._nameless = False
        self._fruitless = 0
        self._since = 0.0

    def call(self) -> Call:
        """The request. It starts at the first line again."""
        self._rest.clear()
        self._since = time.monotonic()
        return self._call

    def feed(self, chunk: bytes) -> Iterator[dict[str, Any]]:
        """The lines that these bytes complete."""
        *whole, rest = chunk.split(b"\n")
        for part in whole:
            line = bytes(self._rest) + part
            self._rest.clear()
            yield from self._decode(line)
        self._rest += rest
        if len(self._rest) > LINE_BYTES_MAX:
            raise StokeholdError(f"received a line of more than {LINE_BYTES_MAX >> 20} MiB; is this a Stokehold API?")

    def end(self) -> Iterator[dict[str, Any]]:
        """The last line, which may lack a line break. The response is complete."""
        line = bytes(self._rest)
        self._rest.clear()
        yield from self._decode(line)
        self.done = True

    def pause_s(self, outcome: Reply | StokeholdError, jitter: float) -> float:
        """Seconds to wait before reconnecting after an error. Raises to give up."""
        error = decode_error(outcome) if isinstance(outcome, Reply) else outcome
        if time.monotonic() - self._since >= STEADY_S:
            self._fruitless = 0
        delay_s = None if self._nameless else self._retry.delay_s(self._fruitless, error, jitter)
        if delay_s is None:
            raise error
        self._fruitless += 1
        return delay_s

    def _decode(self, line: bytes) -> Generator[dict[str, Any], None, None]:
        if not line.strip():
            return
        try:
            value: dict[str, Any] = json.loads(line)
            is_new = self._is_new(value)
        except (ValueError, AttributeError) as error:
            raise ConnectionFailed(f"a line of the response is not a JSON object: {line[:100]!r}") from error
        if is_new:
            self._fruitless = 0
            yield value

    def _is_new(self, value: dict[str, Any]) -> bool:
        number, name = value.get("line"), value.get("custom_id") or value.get("job_id")
        if isinstance(number, int) and number >= 0:
            return self._numbers.add(number)
        if isinstance(name, str):
            known = len(self._names)
            self._names.add(name)
            return len(self._names) > known
        self._nameless = True
        return True


class _Numbers:
    """A set of line numbers, a bit each: a million lines are 125 kB."""

    def __init__(self) -> None:
        self._bits = bytearray()

    def add(self, number: int) -> bool:
        """Whether it is new."""
        place, bit = number >> 3, 1 << (number & 7)
        if place >= len(self._bits):
            self._bits.extend(bytes(max(place + 1 - len(self._bits), len(self._bits))))
        is_new = not self._bits[place] & bit
        self._bits[place] |= bit
        return is_new
