"""The connections of `Client`. `_async_pool.py` is the same for `AsyncClient`; both are written by hand."""

from __future__ import annotations

import os
import socket
import threading
import time

from stokehold._errors import ConnectionFailed, StokeholdError
from stokehold._http1 import RequestError, ResponseError, ResponseReader, UnreadableError, write_head
from stokehold._origin import Origin, is_readable
from stokehold._request import (
    CLOSED,
    CONNECT_TIMEOUT_S,
    CONNECTIONS_MAX,
    IDLE_CONNECTIONS_MAX,
    IDLE_S,
    POOL_TIMEOUT_S,
    WRITE_BYTES,
    WRITE_TIMEOUT_S,
    Call,
    Reply,
    call_error,
    too_slow,
)

_RECEIVE_BYTES = 64 << 10

# The timeout once a deadline has passed. 0 would make the socket non-blocking.
_POLL_S = 1e-6


class Pool:
    """Keeps connections to one server open, and sends one request at a time over each. Threads can share it."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._is_closed = False
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._idle: list[_Connection] = []
        self._places = threading.BoundedSemaphore(CONNECTIONS_MAX)

    def close(self) -> None:
        """Closes the connections; those in use, once their request has ended."""
        self._is_closed = True
        self._shrink(0)

    def send(self, call: Call, target: str, body: bytes | None) -> Reply | StokeholdError:
        """Makes a call and reads the whole response."""
        if self._is_closed:
            raise RuntimeError(CLOSED)
        if self._pid != os.getpid():
            # A forked process: the connections, and the places that other threads had taken, are those of the parent.
            self._shrink(0)
            self._begin()
        places = self._places
        if not places.acquire(timeout=POOL_TIMEOUT_S):
            return too_slow(call, "PoolTimeout")
        try:
            return self._send(call, target, body)
        finally:
            places.release()

    def _send(self, call: Call, target: str, body: bytes | None) -> Reply | StokeholdError:
        connection: _Connection | None = None
        reader = ResponseReader()
        step = "ConnectTimeout"
        try:
            request = write_head(call.method, target, self._origin.header, call.headers, body)
            connection = self._take() or _Connection(self._origin)
            step = "WriteTimeout"
            refused = connection.write(request + body if body else request)
            step = "ReadTimeout"
            connection.read(reader, call.read_timeout_s, refused)
        except (RequestError, UnicodeError) as error:  # UnicodeError: a name that DNS cannot have
            return call_error(call, StokeholdError, f"the request cannot be sent: {error}", error)
        except UnreadableError as error:
            return call_error(call, StokeholdError, str(error), error)
        except (socket.timeout, TimeoutError) as error:
            return too_slow(call, step, error)
        except (OSError, ResponseError) as error:
            return call_error(call, ConnectionFailed, f"no response: {error or type(error).__name__}", error)
        else:
            if reader.reusable and refused is None:
                connection.idle_since = time.monotonic()
                self._idle.append(connection)
                connection = None
                self._shrink(0 if self._is_closed else IDLE_CONNECTIONS_MAX)
            return Reply(reader.status, reader.headers, reader.body)
        finally:
            if connection is not None:
                connection.close()

    def _take(self) -> _Connection | None:
        """The connection that was used last, if its server has not closed it."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if connection.is_usable():
                return connection
            connection.close()

    def _shrink(self, count: int) -> None:
        """Closes the connections that have been idle the longest, until `count` are left."""
        while len(self._idle) > count:
            try:
                self._idle.pop(0).close()
            except IndexError:  # another thread has just taken the last one
                return


class _Connection:
    """A connection to the server."""

    def __init__(self, origin: Origin) -> None:
        self.idle_since = 0.0
        self._timeout_s = CONNECT_TIMEOUT_S
        self._socket = socket.create_connection((origin.host, origin.port), timeout=CONNECT_TIMEOUT_S)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if origin.tls is not None:
                self._socket = origin.tls.wrap_socket(self._socket, server_hostname=origin.host)
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def is_usable(self) -> bool:
        """Whether it is neither too old nor closed by the server."""
        if time.monotonic() - self.idle_since > IDLE_S:
            return False
        return not is_readable(self._socket)

    def write(self, data: bytes) -> OSError | None:
        """Sends all of it. Returns the error if the server stopped reading: its response may contain the reason."""
        self._set_timeout(WRITE_TIMEOUT_S)
        try:
            # In pieces: the timeout is that of a call of `send`, which for TLS may send all that it is given.
            sent = self._socket.send(data if len(data) <= WRITE_BYTES else memoryview(data)[:WRITE_BYTES])
            while sent < len(data):
                sent += self._socket.send(memoryview(data)[sent : sent + WRITE_BYTES])
        except ConnectionError as error:
            return error
        return None

    def read(self, reader: ResponseReader, timeout_s: float, refused: OSError | None) -> None:
        """Reads a response: its head within `timeout_s`, then its body without a pause of `timeout_s`.

        Raises `refused` instead of an error of its own.
        """
        deadline = time.monotonic() + timeout_s
        self._set_timeout(timeout_s)
        try:
            while True:
                data = self._socket.recv(_RECEIVE_BYTES)
                if reader.feed(data) if data else reader.end():
                    return
                self._set_timeout(timeout_s if reader.status else max(_POLL_S, deadline - time.monotonic()))
        except (OSError, ResponseError):
            if refused is None:
                raise
            raise refused from None

    def _set_timeout(self, seconds: float) -> None:
        if seconds != self._timeout_s:  # each change is a system call
            self._socket.settimeout(seconds)
            self._timeout_s = seconds
