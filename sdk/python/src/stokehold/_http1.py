"""HTTP/1.1 without I/O: writes the head of a request, and reads a whole response from bytes as they arrive.

For the short JSON exchanges of the API only, of which the two pools (`_pool.py`, `_async_pool.py`) make thousands a
second. Bodies that are streamed go through httpx.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# Far above the heads of the API; a proxy may add some headers.
HEAD_BYTES_MAX = 64 << 10

# The most bytes in the body of a response that is held in memory. The largest ones of the API are lists of jobs.
RESPONSE_BYTES_MAX = 256 << 20

# The most digits of a `Content-Length` that is read as a number: `int` refuses more than 4,300.
_LENGTH_DIGITS_MAX = 15

_STATUS_LINE = re.compile(r"HTTP/1\.([01]) ([1-9]\d\d)(?: .*)?")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

NO_RESPONSE = "the server closed the connection without a response"

_SWITCHING_PROTOCOLS = 101
_NO_CONTENT = 204
_NOT_MODIFIED = 304


class RequestError(Exception):
    """The request cannot be written as HTTP."""


class ResponseError(Exception):
    """The bytes received are not a whole HTTP response."""


class UnreadableError(ResponseError):
    """The response cannot be read, however often the request is repeated."""


def too_large() -> UnreadableError:
    """The error for a body above `RESPONSE_BYTES_MAX`."""
    limit = f"{RESPONSE_BYTES_MAX >> 20} MiB"
    return UnreadableError(f"the response has more than {limit}; request less at once, e.g. with a smaller page size")


def write_head(method: str, target: str, host: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """The request line and the headers. Raises `RequestError` for text that would end a header or is not ASCII."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", "Accept-Encoding: identity"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    head = "\r\n".join(lines) + "\r\n\r\n"
    breaks = len(lines) + 1
    if head.count("\n") != breaks or head.count("\r") != breaks or "\0" in head:
        raise RequestError("a header contains a line break or a null character")
    try:
        return head.encode("ascii")
    except UnicodeEncodeError as error:
        raise RequestError(f"a header contains {error.object[error.start]!r}, which is not ASCII") from error


class ResponseReader:
    """Reads one response. `feed` and `end` return whether it is complete."""

    __slots__ = (
        "_buffer",
        "_ends_with_connection",
        "_is_chunked",
        "_left",
        "_parts",
        "_size",
        "headers",
        "reusable",
        "status",
    )

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        """The headers, with names in lower case."""
        self.reusable = False
        """Whether another request can be sent over the connection, once the response is complete."""
        self._buffer = b""
        self._parts: list[bytes] = []
        self._left = 0
        self._size = 0
        self._is_chunked = False
        self._ends_with_connection = False

    @property
    def body(self) -> bytes:
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    @property
    def has_begun(self) -> bool:
        """Whether any byte has arrived."""
        return self.status != 0 or bool(self._buffer)

    def feed(self, data: bytes) -> bool:
        """Takes the next bytes."""
        if self.status == 0:
            self._buffer = self._buffer + data if self._buffer else data
            if not self._read_head():
                return False
            data, self._buffer = self._buffer, b""
        if self._is_chunked:
            self._buffer += data
            return self._read_chunks()
        if self._ends_with_connection:
            self._count(len(data))
            self._parts.append(data)
            return False
        if len(data) > self._left:
            # More than the response: the connection is out of step with its requests.
            data, self.reusable = data[: self._left], False
        self._parts.append(data)
        self._left -= len(data)
        return self._left == 0

    def end(self) -> bool:
        """Takes the end of the connection. Raises `ResponseError` if the response is incomplete."""
        if self._ends_with_connection:
            return True
        if not self.has_begun:
            raise ResponseError(NO_RESPONSE)
        raise ResponseError("the server closed the connection before the end of the response")

    def _read_head(self) -> bool:
        """Reads the head once it is whole, skips interim responses, and leaves what follows in the buffer."""
        while True:
            head, end, rest = self._buffer.partition(b"\r\n\r\n")
            if len(head) > HEAD_BYTES_MAX:
                raise ResponseError(f"the head of the response has more than {HEAD_BYTES_MAX >> 10} KiB")
            if not end:
                return False
            first, *lines = head.decode("latin-1").split("\r\n")
            parsed = _STATUS_LINE.fullmatch(first)
            if parsed is None:
                raise ResponseError(f"the response starts with {first[:60]!r}, which is not HTTP/1.1")
            status, self._buffer = int(parsed[2]), rest
            if status == _SWITCHING_PROTOCOLS:
                raise ResponseError("the server switched to another protocol")
            if status >= 200:
                break
        self.headers = _headers(lines)
        self.status = status
        self._frame(is_old=parsed[1] == "0")
        return True

    def _count(self, more: int) -> None:
        """Adds to the size of the body."""
        self._size += more
        if self._size > RESPONSE_BYTES_MAX:
            raise too_large()

    def _frame(self, *, is_old: bool) -> None:
        """Determines where the body ends (RFC 9112, section 6.3), and whether the connection outlives it."""
        headers = self.headers
        options = headers.get("connection", "").lower()
        self.reusable = "close" not in options and (not is_old or "keep-alive" in options)
        content_coding = headers.get("content-encoding")
        if content_coding is not None and content_coding.lower() != "identity":
            raise UnreadableError(
                f"the response has the content coding {content_coding[:60]!r}, and the request accepts none; "
                "check for a proxy in between that compresses"
            )
        length, coding = headers.get("content-length"), headers.get("transfer-encoding")
        if self.status in (_NO_CONTENT, _NOT_MODIFIED):
            return
        if coding is not None:
            if coding.lower() != "chunked" or is_old:
                raise ResponseError(f"the response has the transfer coding {coding[:60]!r} instead of chunked")
            self._is_chunked = True
            if length is not None:
                self.reusable = False
        elif length is not None:
            lengths = {text.strip() for text in length.split(",")}
            text = lengths.pop()
            if lengths or not (text.isascii() and text.isdigit()):
                raise ResponseError(f"the response has the Content-Length {length[:60]!r}")
            if len(text) > _LENGTH_DIGITS_MAX:
                raise ResponseError(f"the response has a Content-Length of {len(text)} digits: {text[:20]}...")
            self._left = int(text)
            self._count(self._left)
        else:
            self._ends_with_connection, self.reusable = True, False

    def _read_chunks(self) -> bool:
        """Moves whole chunks from the buffer to the body. `_left` counts the bytes until the end of a chunk."""
        at, buffer = 0, self._buffer
        while True:
            if self._left > 0:
                part = buffer[at : at + self._left]
                self._parts.append(part)
                self._left -= len(part)
                at += len(part)
                if self._left > 0:
                    self._buffer = b""
                    return False
                self._left = -1  # the line break after the data
            if self._left == -1:
                if len(buffer) < at + 2:
                    break
                if buffer[at : at + 2] != b"\r\n":
                    raise ResponseError("a chunk of the response is longer than its size")
                at, self._left = at + 2, 0
            end = buffer.find(b"\r\n", at)
            if end < 0:
                break
            size = _CHUNK_SIZE.fullmatch(buffer, at, end)
            if size is None:
                line = buffer[at : min(end, at + 60)].decode("latin-1")
                raise ResponseError(f"the response has the chunk size {line!r}")
            if int(size[1], 16) > 0:
                at, self._left = end + 2, int(size[1], 16)
                self._count(self._left)
                continue
            # The last chunk, of size 0, then trailers, which are dropped, and an empty line.
            last = end if buffer.startswith(b"\r\n", end + 2) else buffer.find(b"\r\n\r\n", end)
            if last < 0:
                break
            if len(buffer) > (end + 4 if last == end else last + 4):
                self.reusable = False
            self._buffer = b""
            return True
        self._buffer = buffer[at:]
        if len(self._buffer) > HEAD_BYTES_MAX:
            raise ResponseError(f"the response has a chunk size or trailers of more than {HEAD_BYTES_MAX >> 10} KiB")
        return False


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or _HEADER_NAME.fullmatch(name) is None:
            raise ResponseError(f"the response has the header line {line[:60]!r}")
        name, value = name.lower(), value.strip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers
