"""Uploads and downloads in chunks: no whole file is held in memory, and each try starts from the beginning."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Generator
from pathlib import Path
from typing import IO, Callable, Protocol

from stokehold._errors import ConnectionFailed

OnProgress = Callable[[int, int], None]
"""Called with the number of bytes sent so far and the total number of bytes."""

# Large enough to make the cost of a system call negligible, small enough for smooth progress.
CHUNK_BYTES = 256 * 1024


class Body:
    """A file or bytes to send, possibly several times."""

    def __init__(self, source: Path | bytes, size_bytes: int, on_progress: OnProgress | None = None) -> None:
        self.size_bytes = size_bytes
        self._source = source
        self._on_progress = on_progress
        self._sent_bytes = 0

    def chunks(self) -> Generator[bytes, None, None]:
        """The chunks, from the beginning. Reads files, so it may block."""
        self._sent_bytes = 0
        if isinstance(self._source, bytes):
            for start in range(0, len(self._source), CHUNK_BYTES):
                yield self._source[start : start + CHUNK_BYTES]
            return
        with self._source.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk

    def sent(self, chunk: bytes) -> None:
        """Reports a chunk as sent."""
        self._sent_bytes += len(chunk)
        if self._on_progress is not None:
            self._on_progress(self._sent_bytes, self.size_bytes)


def digest(source: Path | bytes) -> tuple[str, int]:
    """The SHA-256 in hex, and the size in bytes."""
    if isinstance(source, bytes):
        return hashlib.sha256(source).hexdigest(), len(source)
    hasher, size_bytes = hashlib.sha256(), 0
    with source.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            hasher.update(chunk)
            size_bytes += len(chunk)
    return hasher.hexdigest(), size_bytes


class Sink(Protocol):
    """Receives the bytes of a response."""

    def start(self) -> None:
        """Starts a try. Discards the bytes of an earlier one."""

    def write(self, chunk: bytes) -> None:
        """Receives the next bytes."""


class MemorySink:
    """Keeps the bytes in memory."""

    def __init__(self) -> None:
        self.bytes = bytearray()

    def start(self) -> None:
        self.bytes.clear()

    def write(self, chunk: bytes) -> None:
        self.bytes += chunk

    def finish(self, sha256: str | None) -> bytes:
        """Returns all bytes, after checking them."""
        _check(hashlib.sha256(self.bytes).hexdigest(), sha256)
        return bytes(self.bytes)


class FileSink:
    """Writes the bytes to a temporary file next to `path`, which replaces `path` when it is complete."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hasher = hashlib.sha256()
        self._partial = path.with_name(f".{path.name[:64]}.{uuid.uuid4().hex[:8]}.part")
        self._file: IO[bytes] = self._partial.open("xb")

    def start(self) -> None:
        self._hasher = hashlib.sha256()
        self._file.seek(0)
        self._file.truncate()

    def write(self, chunk: bytes) -> None:
        self._hasher.update(chunk)
        self._file.write(chunk)

    def finish(self, sha256: str | None) -> Path:
        """Moves the file to its path, after checking it."""
        _check(self._hasher.hexdigest(), sha256)
        self._file.close()
        self._partial.replace(self._path)
        return self._path

    def discard(self) -> None:
        """Removes the temporary file. Does nothing after `finish`."""
        self._file.close()
        self._partial.unlink(missing_ok=True)


def _check(got: str, wanted: str | None) -> None:
    if wanted is not None and got != wanted:
        raise ConnectionFailed(f"the downloaded file has the SHA-256 {got} instead of {wanted}; download it again")
