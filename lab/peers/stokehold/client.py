"""The Python SDK: its blocking client one by one and for round trips, its asyncio client for many at a time."""

import asyncio
import os

from bench import PAYLOAD, at_once, serve

from stokehold import AsyncClient, Client

SERVER = (os.environ["BENCH_URL"], os.environ["BENCH_TOKEN"])

client = Client(*SERVER)
many = AsyncClient(*SERVER)
loop = asyncio.new_event_loop()


def payload(job: str, number: int) -> dict:
    return PAYLOAD if job == "noop" else {"number": number}


def submit(how: str, job: str, count: int) -> None:
    if how == "one":
        for number in range(count):
            client.submit(job, payload(job, number))
    elif how == "many":
        loop.run_until_complete(at_once(lambda number: many.submit(job, payload(job, number)), count))
    else:
        client.submit_many(job, (payload(job, number) for number in range(count)))


def round_trip() -> None:
    client.submit("noop", PAYLOAD).result(timeout=30)


serve(submit, round_trip)
