"""streaq: `streaq run app:worker`."""

import asyncio
import logging

from bench import CONCURRENCY, JOURNAL_JOB_S, REDIS_URL, RESULT, journal
from streaq import Worker

# The defaults: as many jobs are prefetched as run at once, and results are kept for 5 minutes.
worker = Worker(redis_url=REDIS_URL, concurrency=CONCURRENCY or 64, anyio_kwargs={"use_uvloop": True})

# A log line per job would be a cost that the other peers do not have.
logging.getLogger("streaq").addFilter(lambda record: not str(record.msg).startswith("task "))


@worker.task
async def noop(text: str) -> dict:
    return RESULT


@worker.task
async def note(number: int) -> None:
    journal(f"start {number}")
    await asyncio.sleep(JOURNAL_JOB_S)
    journal(f"end {number}")
