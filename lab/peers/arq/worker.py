"""arq: `arq worker.WorkerSettings`."""

import asyncio
import logging

from arq.connections import RedisSettings
from bench import CONCURRENCY, JOURNAL_JOB_S, REDIS_URL, RESULT, journal

# One log line a job is a cost that no other peer is charged.
logging.getLogger("arq.worker").addFilter(lambda record: record.funcName != "run_job")


async def noop(_ctx: dict, text: str) -> dict:
    return RESULT


async def note(_ctx: dict, number: int) -> None:
    journal(f"start {number}")
    await asyncio.sleep(JOURNAL_JOB_S)
    journal(f"end {number}")


class WorkerSettings:
    functions = (noop, note)
    redis_settings = RedisSettings.from_dsn(REDIS_URL)
    max_jobs = CONCURRENCY
    # The default looks for work twice a second: 10 ms is what its round trip and an idle worker's first job need.
    poll_delay = 0.01
    # Never reached here: where the keys of a finished job go by themselves is not part of what is measured.
    keep_result = 3600
