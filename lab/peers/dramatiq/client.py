from concurrent.futures import ThreadPoolExecutor

from app import noop, note
from bench import PAYLOAD, SUBMITTERS, serve


def send(job: str, number: int):
    return noop.send(**PAYLOAD) if job == "noop" else note.send(number)


def submit(how: str, job: str, count: int) -> None:
    # dramatiq has no call for several jobs. Bulk is many threads, whose writes share the syncs of the disk.
    if how == "one":
        for number in range(count):
            send(job, number)
        return
    with ThreadPoolExecutor(SUBMITTERS) as pool:
        for _ in pool.map(lambda number: send(job, number), range(count)):
            pass


def round_trip() -> None:
    send("noop", 0).get_result(block=True, timeout=30_000)


serve(submit, round_trip)
