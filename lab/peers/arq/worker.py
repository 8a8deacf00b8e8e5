"""arq: `arq worker.WorkerSettings`."""

import asyncio
import logging

from arq.connections import RedisSettings
from bench import CONCURRENCY, JOURNAL_JOB_S, REDIS_URL, RESULT, journal

# A log line per job would be a cost that the other peers do not have.
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
    # The default polls twice a second, so that round trips and the first job of an idle worker would wait for a poll.
    poll_delay = 0.01
    # Longer than the benchmark: the expiry of the keys of finished jobs is not measured.
    keep_result = 3600
