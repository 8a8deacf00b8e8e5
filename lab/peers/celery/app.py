"""celery: `celery --app app worker`."""

import time

from bench import CONCURRENCY, DEFAULTS, JOURNAL_JOB_S, REDIS_URL, RESULT, journal
from celery import Celery

app = Celery("bench", broker=REDIS_URL, backend=REDIS_URL)
app.conf.update(
    # The default: one child process per core.
    worker_concurrency=CONCURRENCY or 2,
    # Messages that each child may prefetch, 4 by default. The documentation recommends 64 or 128 for many short tasks.
    worker_prefetch_multiplier=4 if DEFAULTS else 128,
    # Recommended by the message that Celery prints at each start.
    broker_connection_retry_on_startup=True,
)


@app.task
def noop(text: str) -> dict:
    return RESULT


@app.task(ignore_result=True)
def note(number: int) -> None:
    journal(f"start {number}")
    time.sleep(JOURNAL_JOB_S)
    journal(f"end {number}")
