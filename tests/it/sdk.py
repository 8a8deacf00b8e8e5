"""The Python SDK, every verb, against the stack that STOKE_URL and STOKE_TOKEN name."""

import asyncio
import tempfile
from pathlib import Path

from stokehold import AsyncClient, Client, JobFailed, NotFound


def check_sync() -> None:
    with Client() as client:
        job = client.submit("slow", {"n": 1}, metadata={"suite": "sdk"})
        assert job.result(timeout=60)["n"] == 1
        again = client.get(job.id)
        assert again.state == "succeeded", again

        jobs = client.submit_many("slow", [{"n": n} for n in range(20)])
        assert [job.result(timeout=60)["n"] for job in jobs] == list(range(20))

        first = client.submit("slow", {"n": 2}, idempotency_key="once")
        assert client.submit("slow", {"n": 2}, idempotency_key="once").id == first.id

        kinds = [event.type for event in client.submit("count", {"to": 3}).events()]
        assert kinds.count("output") == 3 and kinds[-1] == "done", kinds

        doomed = client.submit("slow", {"n": 1, "seconds": 3600})
        doomed.cancel()
        assert client.get(doomed.id).state == "cancelled"

        with tempfile.TemporaryDirectory() as folder:
            quiet = Path(folder) / "quiet.txt"
            quiet.write_text("hello")
            loud = client.submit("shout", {"text": quiet}).result(timeout=60)["loud"]
            assert loud.read() == b"HELLO"

        try:
            client.submit("nothing-like-it", {})
        except NotFound as error:
            assert error.code == "unknown_endpoint", error
        else:
            raise AssertionError("an unknown endpoint is an error")

        try:
            client.submit("shout", {"text": {"$file": client.upload(b"\xff").id}}, max_attempts=1).result(timeout=60)
        except JobFailed as error:
            assert "UnicodeDecodeError" in str(error), error
        else:
            raise AssertionError("a failing handler fails the call")


async def check_async() -> None:
    async with AsyncClient() as client:
        jobs = await client.submit_many("slow", [{"n": n} for n in range(20)])
        results = await asyncio.gather(*(job.result(timeout=60) for job in jobs))
        assert [result["n"] for result in results] == list(range(20))


check_sync()
asyncio.run(check_async())
