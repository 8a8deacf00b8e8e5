"""The connections of `AsyncClient`. `_pool.py` is the same for `Client`; both are written by hand."""

from __future__ import annotations

import asyncio
import os
import time

from stokehold._errors import ConnectionFailed, StokeholdError
from stokehold._http1 import NO_RESPONSE, RequestError, ResponseError, ResponseReader, UnreadableError, write_head
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

# The head start of an address over the next one of the same name (RFC 8305).
HAPPY_EYEBALLS_DELAY_S = 0.25


_NOTHING = memoryview(b"")


class _SilenceError(Exception):
    """No progress in time, while writing or reading."""


class AsyncPool:
    """Keeps connections to one server open, and sends one request at a time over each."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pid = os.getpid()
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()
        self._places = asyncio.Semaphore(CONNECTIONS_MAX)

    async def aclose(self) -> None:
        """Closes the connections; those in use, once their request has ended."""
        self._is_closed = True
        if self._loop is asyncio.get_running_loop():
            while self._idle:
                self._idle.pop().close()
            # asyncio closes in a later turn of the loop, which may be over once this returns.
            await asyncio.gather(*(connection.closed for connection in self._open if connection.is_closing))

    async def send(self, call: Call, target: str, body: bytes | None) -> Reply | StokeholdError:
        """Makes a call and reads the whole response."""
        if self._is_closed:
            raise RuntimeError(CLOSED)
        loop = asyncio.get_running_loop()
        if self._loop is not loop or self._pid != os.getpid():
            # Another event loop, e.g. in a forked process: connections cannot move between loops.
            self._begin(loop)
        places = self._places
        try:
            if places.locked():
                await asyncio.wait_for(places.acquire(), POOL_TIMEOUT_S)
            else:
                await places.acquire()
        except (asyncio.TimeoutError, TimeoutError) as error:
            return too_slow(call, "PoolTimeout", error)
        try:
            return await self._send(loop, call, target, body)
        finally:
            places.release()

    async def _send(
        self, loop: asyncio.AbstractEventLoop, call: Call, target: str, body: bytes | None
    ) -> Reply | StokeholdError:
        connection: _Connection | None = None
        try:
            request = write_head(call.method, target, self._origin.header, call.headers, body)
            connection = self._take() or await self._connect(loop)
            reader = await connection.exchange(request + body if body else request, call.read_timeout_s)
        except (RequestError, UnicodeError) as error:  # UnicodeError: a name that DNS cannot have
            return call_error(call, StokeholdError, f"the request cannot be sent: {error}", error)
        except UnreadableError as error:
            return call_error(call, StokeholdError, str(error), error)
        except _SilenceError as error:
            return too_slow(call, str(error), error)
        except (asyncio.TimeoutError, TimeoutError) as error:
            return too_slow(call, "ConnectTimeout", error)
        except (OSError, ResponseError) as error:
            return call_error(call, ConnectionFailed, f"no response: {error or type(error).__name__}", error)
        else:
            if reader.reusable and not self._is_closed:
                connection.idle_since = time.monotonic()
                self._idle.append(connection)
                connection = self._idle.pop(0) if len(self._idle) > IDLE_CONNECTIONS_MAX else None
            return Reply(reader.status, reader.headers, reader.body)
        finally:
            if connection is not None:
                connection.close()

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> _Connection:
        origin = self._origin
        connecting = loop.create_connection(
            lambda: _Connection(loop, self._open),
            origin.host,
            origin.port,
            ssl=origin.tls,
            server_hostname=None if origin.tls is None else origin.host,
            happy_eyeballs_delay=HAPPY_EYEBALLS_DELAY_S,
        )
        _, connection = await asyncio.wait_for(connecting, CONNECT_TIMEOUT_S)
        return connection

    def _take(self) -> _Connection | None:
        """The connection that was used last, if its server has not closed it."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable():
                return connection
            connection.close()
        return None


class _Connection(asyncio.Protocol):
    """A connection to the server."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connections: set[_Connection]) -> None:
        """`connections` has the connection until it is closed."""
        self.idle_since = 0.0
        self._connections = connections
        self.closed: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._reader: ResponseReader | None = None
        self._response: asyncio.Future[None] | None = None
        self._read_timeout_s = 0.0
        self._progress_at = 0.0
        # What the transport does not have yet of the request, and whether it has unsent bytes of the rest.
        self._rest = _NOTHING
        self._is_paused = False
        self._unsent = 0
        self._timer: asyncio.TimerHandle | None = None

    def close(self) -> None:
        self._transport.abort()

    @property
    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def is_usable(self) -> bool:
        """Whether it is neither too old nor closed by the server, which the event loop may not have noticed yet."""
        if self.is_closing or time.monotonic() - self.idle_since > IDLE_S:
            return False
        return not is_readable(self._transport.get_extra_info("socket"))

    async def exchange(self, request: bytes, read_timeout_s: float) -> ResponseReader:
        """Sends a request and reads the response. The caller closes the connection unless it is reusable."""
        if self.is_closing:
            raise ResponseError(NO_RESPONSE)
        self._reader = reader = ResponseReader()
        self._response = response = self._loop.create_future()
        self._read_timeout_s = read_timeout_s
        if len(request) <= WRITE_BYTES:
            self._transport.write(request)
        else:
            self._rest = memoryview(request)
        if self._is_paused or self._rest:
            self._write_rest()
        else:
            self._progress_at = self._loop.time()
            self._timer = self._loop.call_later(read_timeout_s, self._check_read)
        try:
            await response
            return reader
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._reader = self._response = None
            self._rest = _NOTHING

    def _write_rest(self) -> None:
        """Writes the request until the transport has unsent bytes of it. Then starts the timer of the next step."""
        if self._response is None or self._response.done() or self.is_closing:
            return
        while self._rest and not self._is_paused:
            if is_readable(self._transport.get_extra_info("socket")):
                # Read first: if the server refused the request and closed the connection, a write would fail.
                self._loop.call_soon(self._write_rest)
                break
            # In pieces: to send a large buffer, transports of TLS copy what is left of it after each record.
            self._transport.write(self._rest[:WRITE_BYTES])
            self._rest = self._rest[WRITE_BYTES:]
        self._progress_at = self._loop.time()
        if self._timer is not None:
            self._timer.cancel()
        if self._is_writing:
            self._unsent = self._transport.get_write_buffer_size()
            self._timer = self._loop.call_later(WRITE_TIMEOUT_S, self._check_write)
        else:
            self._timer = self._loop.call_later(self._read_timeout_s, self._check_read)

    @property
    def _is_writing(self) -> bool:
        """Whether a part of the request is not sent yet."""
        return self._is_paused or len(self._rest) > 0

    def pause_writing(self) -> None:
        """The transport has unsent bytes."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """The transport has sent everything."""
        self._is_paused = False
        self._loop.call_soon(self._write_rest)  # not at once: the transport is in the middle of its own work

    def _check_write(self) -> None:
        """Fails the exchange if the transport has sent nothing for the time of the timeout."""
        unsent = self._transport.get_write_buffer_size()
        if unsent < self._unsent:
            self._unsent = unsent
            self._timer = self._loop.call_later(WRITE_TIMEOUT_S, self._check_write)
        else:
            self._fail(_SilenceError("WriteTimeout"))

    def _check_read(self) -> None:
        """Fails the exchange if nothing was received for the time of the timeout; else waits for what is left of it."""
        left_s = self._progress_at + self._read_timeout_s - self._loop.time()
        if left_s <= 0:
            self._fail(_SilenceError("ReadTimeout"))
        else:
            self._timer = self._loop.call_later(left_s, self._check_read)

    def _fail(self, error: Exception) -> None:
        if self._response is not None and not self._response.done():
            self._response.set_exception(error)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 (for the type)
        # Calls `pause_writing` as soon as bytes are unsent, and `resume_writing` as soon as none are. With 0 for both,
        # the transport of TLS would pause without any.
        transport.set_write_buffer_limits(high=1, low=0)
        self._transport = transport
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        reader, response = self._reader, self._response
        if reader is None or response is None or response.done():
            # Idle, or between a response and the next request: what a server sends here belongs to no request.
            if reader is not None:
                reader.reusable = False
            self._transport.abort()
            return
        try:
            is_complete = reader.feed(data)
            if reader.status:  # until then, the timeout is that of the whole head
                self._progress_at = self._loop.time()
            if is_complete:
                if self._is_writing:
                    reader.reusable = False  # a response before the end of the request
                response.set_result(None)
        except ResponseError as error:
            self._fail(error)

    def eof_received(self) -> None:
        """The end of what the server sends; asyncio then closes the connection."""
        try:
            if self._reader is not None and self._response is not None and not self._response.done():
                self._reader.end()
                self._response.set_result(None)
        except ResponseError as error:
            self._fail(error)

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.discard(self)
        self._fail(error or ResponseError(NO_RESPONSE))
        if not self.closed.done():
            self.closed.set_result(None)
