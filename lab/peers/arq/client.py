import asyncio

from arq import create_pool
from arq.connections import RedisSettings
from bench import PAYLOAD, REDIS_URL, at_once, serve_async


async def main() -> None:
    redis = await create_pool(RedisSettings.from_dsn(REDIS_URL))

    async def enqueue(job: str, number: int):
        if job == "noop":
            return await redis.enqueue_job("noop", **PAYLOAD)
        return await redis.enqueue_job("note", number)

    async def submit(how: str, job: str, count: int) -> None:
        # arq has no call for several jobs. Bulk is many concurrent awaits, as in its documentation.
        await at_once(lambda number: enqueue(job, number), count, 1 if how == "one" else 64)

    async def round_trip() -> None:
        job = await enqueue("noop", 0)
        # The default polls twice a second.
        await job.result(timeout=30, poll_delay=0.005)

    await serve_async(submit, round_trip)


asyncio.run(main())
