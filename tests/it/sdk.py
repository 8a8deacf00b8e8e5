"""Calls every verb of the Python SDK on the stack that STOKE_URL and STOKE_TOKEN name."""

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

# The resources around jobs.
with Client() as client:
    job = client.submit("slow", {"n": 7})
    assert job.result(timeout=60)["n"] == 7
    uploaded = client.files.upload(b"123", name="three.txt")
    found = client.files.retrieve(uploaded.id)
    assert (found.name, found.size_bytes, found.read()) == ("three.txt", 3, b"123")
    current = client.endpoints.retrieve("slow")
    assert current.version in client.endpoints.traffic("slow")
    assert [one.name for one in client.endpoints()] == [one.name for one in client.endpoints.list()]
    assert client.endpoints.versions("slow")[0].version == current.version
    assert isinstance(client.endpoints.stats("slow"), list)
    assert client.endpoints.needs("slow") == []
    new = client.tokens.create("sdk-py", roles=["worker"], trust="datacenter", region="eu", ttl_s=600)
    assert (new.record.kind, new.record.trust, new.record.region) == ("join", "datacenter", "eu")
    rotated = client.tokens.rotate(new.record.id, overlap_s=60)
    assert rotated.token != new.token and "token=" not in repr(rotated)
    assert new.record.id in [one.id for one in client.tokens.list()]
    client.tokens.revoke(new.record.id)
    client.secrets.set("SDK_PY", "x")
    assert "SDK_PY" in [one.name for one in client.secrets.list()]
    client.secrets.delete("SDK_PY")
    assert client.jobs.trace(job.id)["resourceSpans"]
    assert client.batches.estimate("slow", line_count=10).lines == 10
    assert client.costs.retrieve(by="day").by == "day"
    assert client.fleet.health().status == "ok"
    assert isinstance(client.fleet.retrieve().machines, tuple) and client.fleet.queue() == []
    assert isinstance(client.workers.readings(client.workers()[0].id), list)
    assert client.quarantine.retrieve().jobs == ()
    assert client.limits.own() == client.limits()
    tenant = client.limits.own().tenant
    assert client.limits.replace_for_endpoint(tenant, "slow", max_running=9)["max_running"] == 9
    assert client.limits.replace_for_endpoint(tenant, "slow").get("max_running") is None
    assert len(list(client.audit.list(page_size=5))) > 5
    assert client.audit.page(limit=1).newest is not None
    assert tenant in [one.name for one in client.tenants.list()]
