"""celery: `celery --app app worker`."""

import time

from bench import CONCURRENCY, JOURNAL_JOB_S, REDIS_URL, RESULT, journal
from celery import Celery

app = Celery("bench", broker=REDIS_URL, backend=REDIS_URL)
app.conf.update(
    # Child processes; more than the machine has cores made it slower.
    worker_concurrency=CONCURRENCY or 2,
    # Messages each child may hold: its documentation's advice for short tasks is "many".
    worker_prefetch_multiplier=100,
    # Read once, here, instead of a warning at each start.
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
