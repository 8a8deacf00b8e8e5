"""dramatiq: `dramatiq app --processes 1 --threads N`."""

import time

import dramatiq
from bench import JOURNAL_JOB_S, REDIS_URL, RESULT, journal
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

broker = RedisBroker(url=REDIS_URL)
# Results are kept for 10 minutes, the default.
broker.add_middleware(Results(backend=RedisBackend(url=REDIS_URL), store_results=True))
dramatiq.set_broker(broker)


@dramatiq.actor
def noop(text: str) -> dict:
    return RESULT


@dramatiq.actor(store_results=False)
def note(number: int) -> None:
    journal(f"start {number}")
    time.sleep(JOURNAL_JOB_S)
    journal(f"end {number}")
