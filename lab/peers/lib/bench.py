"""The client side of the harness's line protocol (README.md), and the two jobs that every peer runs."""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator

REDIS_URL = os.environ["BENCH_REDIS_URL"]
CONCURRENCY = int(os.environ.get("BENCH_CONCURRENCY", "0"))
DEFAULTS = bool(os.environ.get("BENCH_DEFAULTS"))
JOURNAL = os.environ.get("BENCH_JOURNAL", "")
# As JSON: 194 bytes of payload, 55 of result.
PAYLOAD = {"text": "x" * 183}
RESULT = {"ok": True, "note": "y" * 34}
JOURNAL_JOB_S = 0.005
SUBMITTERS = 64


def journal(line: str) -> None:
    """Writes a whole line or nothing: a write this small to a file opened for appending is atomic."""
    file = os.open(JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


def requests() -> Iterator[list[str]]:
    answer("ready")
    for line in sys.stdin:
        yield line.split()


def answer(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def chunks(items: list, size: int) -> Iterable[list]:
    return (items[at : at + size] for at in range(0, len(items), size))


def serve(submit: Callable[[str, str, int], None], round_trip: Callable[[], None]) -> None:
    """Answers the harness for a client that blocks."""
    for verb, *rest in requests():
        try:
            if verb == "submit":
                how, job, count = rest
                submit(how, job, int(count))
                answer("ok")
            else:
                answer("ok " + " ".join(str(timed(round_trip)) for _ in range(int(rest[0]))))
        except Exception as error:
            answer(f"error {type(error).__name__}: {error}".replace("\n", " "))


def timed(call: Callable[[], None]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1_000


async def serve_async(
    submit: Callable[[str, str, int], Awaitable[None]], round_trip: Callable[[], Awaitable[None]]
) -> None:
    """Answers the harness for a client that awaits. Nothing else runs while it waits for a request."""
    for verb, *rest in requests():
        try:
            if verb == "submit":
                how, job, count = rest
                await submit(how, job, int(count))
                answer("ok")
            else:
                samples = []
                for _ in range(int(rest[0])):
                    start = time.perf_counter()
                    await round_trip()
                    samples.append((time.perf_counter() - start) * 1_000)
                answer("ok " + " ".join(map(str, samples)))
        except Exception as error:
            answer(f"error {type(error).__name__}: {error}".replace("\n", " "))


async def at_once(call: Callable[[int], Awaitable[object]], count: int, at_once: int = SUBMITTERS) -> None:
    """Makes `count` calls, with a fixed number in flight."""
    numbers = iter(range(count))

    async def submitter() -> None:
        for number in numbers:
            await call(number)

    await asyncio.gather(*(submitter() for _ in range(at_once)))
