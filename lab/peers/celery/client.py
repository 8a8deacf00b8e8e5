from concurrent.futures import ThreadPoolExecutor

from app import noop, note
from bench import PAYLOAD, SUBMITTERS, serve


def send(job: str, number: int):
    return noop.delay(**PAYLOAD) if job == "noop" else note.delay(number)


def submit(how: str, job: str, count: int) -> None:
    # Celery has no call for several tasks; a group also sends them one by one. Bulk is many threads, whose writes
    # share the syncs of the disk.
    if how == "one":
        for number in range(count):
            send(job, number)
        return
    with ThreadPoolExecutor(SUBMITTERS) as pool:
        for _ in pool.map(lambda number: send(job, number), range(count)):
            pass


def round_trip() -> None:
    send("noop", 0).get(timeout=30)


serve(submit, round_trip)
