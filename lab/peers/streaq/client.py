import asyncio

from app import noop, note, worker
from bench import PAYLOAD, at_once, chunks, serve_async


def task(job: str, number: int):
    return noop.enqueue(**PAYLOAD) if job == "noop" else note.enqueue(number)


async def submit(how: str, job: str, count: int) -> None:
    if how == "bulk":
        for numbers in chunks(list(range(count)), 1_000):
            await worker.enqueue_many([task(job, number) for number in numbers])
        return

    async def enqueue(number: int) -> None:
        await task(job, number)

    await at_once(enqueue, count, 1 if how == "one" else 64)


async def round_trip() -> None:
    enqueued = await task("noop", 0)
    await enqueued.result(30)


async def main() -> None:
    async with worker:
        await serve_async(submit, round_trip)


asyncio.run(main())
