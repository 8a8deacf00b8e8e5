"""celery: `celery --app app worker`."""

import time

from bench import CONCURRENCY, DEFAULTS, JOURNAL_JOB_S, REDIS_URL, RESULT, journal
from celery import Celery

app = Celery("bench", broker=REDIS_URL, backend=REDIS_URL)
app.conf.update(
    # Child processes, as many as the machine has cores: its default.
    worker_concurrency=CONCURRENCY or 2,
    # Messages each child may hold, 4 by default: for lots of short tasks its documentation says 64 or 128.
    worker_prefetch_multiplier=4 if DEFAULTS else 128,
    # Its own advice at each start.
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
