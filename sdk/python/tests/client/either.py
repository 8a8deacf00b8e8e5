"""The same calls with `Client` and `AsyncClient`, for tests of their connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

from stokehold import AsyncClient, Client, Retry

NEVER = Retry(max_retries=0)

LARGE = "x" * (8 << 20)  # more than the buffers of both ends


class Calls:
    """The same calls with either client."""

    def __init__(self, url: str, retry: Retry, timeout_s: float) -> None:
        raise NotImplementedError

    def workers(self, count: int = 1) -> None:
        """That many calls, one after the other."""
        raise NotImplementedError

    def submit(self, value: Any = None, key: str | None = None) -> Any:
        raise NotImplementedError

    def at_once(self, count: int) -> None:
        """That many submits at the same time."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


Connect = Callable[..., Calls]


class Blocking(Calls):
    def __init__(self, url: str, retry: Retry, timeout_s: float) -> None:
        self.client = Client(url, "sk_test", retry=retry, timeout_s=timeout_s)

    def workers(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.client.workers() == []

    def submit(self, value: Any = None, key: str | None = None) -> Any:
        return self.client.submit("echo", value, idempotency_key=key)

    def at_once(self, count: int) -> None:
        with ThreadPoolExecutor(count) as threads:
            assert len(list(threads.map(self.submit, range(count)))) == count

    def close(self) -> None:
        self.client.close()


class Asyncio(Calls):
    def __init__(self, url: str, retry: Retry, timeout_s: float) -> None:
        self.client = AsyncClient(url, "sk_test", retry=retry, timeout_s=timeout_s)
        self.loop = asyncio.new_event_loop()

    def workers(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.loop.run_until_complete(self.client.workers()) == []

    def submit(self, value: Any = None, key: str | None = None) -> Any:
        return self.loop.run_until_complete(self.client.submit("echo", value, idempotency_key=key))

    def at_once(self, count: int) -> None:
        async def play() -> None:
            await asyncio.gather(*(self.client.submit("echo", number) for number in range(count)))

        self.loop.run_until_complete(play())

    def close(self) -> None:
        self.loop.run_until_complete(self.client.aclose())
        self.loop.close()


@contextlib.contextmanager
def served(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server of one connection that is no HTTP server."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()
