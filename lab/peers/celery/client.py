from concurrent.futures import ThreadPoolExecutor

from app import noop, note
from bench import PAYLOAD, SUBMITTERS, serve


def send(job: str, number: int):
    return noop.delay(**PAYLOAD) if job == "noop" else note.delay(number)


def submit(how: str, job: str, count: int) -> None:
    # No call takes several tasks: a group sends them one after the other as well. Bulk is many threads: their writes
    # share the disk's syncs.
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
