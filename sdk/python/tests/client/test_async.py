"""The asyncio half: it carries out the same plans, so what is tested is that it carries them out."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Callable

import httpx
import pytest

from stokehold import AsyncClient, AsyncFileRef, ConnectionFailed, DoneEvent, JobFailed, NotFound, Retry, WaitTimeout
from stokehold._transfer import CHUNK_BYTES

from .conftest import FAST, JOB_ID, Server, cut, data, drop, hang, job, ok, problem, redirect
from .test_events import DONE, LOG, OUTPUT, PROGRESS, ROUTE, STATE, STORY, stream

BYTES = b"x" * (CHUNK_BYTES + 1)


@asynccontextmanager
async def connected(api: Server, retry: Retry = FAST) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(api.url, "sk_test", retry=retry) as client:
        yield client


def run(api: Server, scene: Callable[[AsyncClient], Awaitable[None]]) -> None:
    async def play() -> None:
        async with connected(api) as client:
            await scene(client)

    asyncio.run(play())


def test_submit_wait_and_result(api: Server) -> None:
    api.on("POST /v1/jobs", drop, problem(503, "unavailable", "x"), ok(job(), 202))
    api.on(f"GET /v1/jobs/{JOB_ID}", ok(job()), ok(job("succeeded")))

    async def scene(client: AsyncClient) -> None:
        submitted = await client.submit("echo", {"text": "hi"}, wait_s=1)
        assert await submitted.result(timeout=60) == {"text": "hi"}
        assert (await submitted.refresh()).state == "succeeded"

    run(api, scene)
    tries = api.seen("POST /v1/jobs")
    assert len({request.headers["idempotency-key"] for request in tries}) == 1
    assert len(tries) == 3


def test_many_at_once_on_one_client(api: Server) -> None:
    api.on("POST /v1/jobs", ok(job(), 202))

    async def scene(client: AsyncClient) -> None:
        jobs = await asyncio.gather(*(client.submit("echo", n) for n in range(30)))
        assert len(jobs) == 30

    run(api, scene)
    assert sorted(request.json()["input"] for request in api.requests) == list(range(30))


def test_bulk_list_cancel_and_overviews(api: Server) -> None:
    api.on("POST /v1/jobs/bulk", ok({"ids": ["a", "b"]}, 202))
    api.on(
        "GET /v1/jobs",
        ok({"jobs": [job(id="a")], "next_cursor": "1-0"}),
        ok({"jobs": [job(id="b")], "next_cursor": None}),
    )
    api.on(f"POST /v1/jobs/{JOB_ID}/cancel", ok(job("cancelled")))
    api.on(f"GET /v1/jobs/{JOB_ID}", ok(job()))
    api.on("GET /v1/endpoints", ok({"endpoints": []}))
    api.on("GET /v1/endpoints/x/versions", ok({"versions": []}))
    api.on("GET /v1/workers", ok({"workers": []}))

    async def scene(client: AsyncClient) -> None:
        assert [job.id for job in await client.submit_many("echo", [1, 2])] == ["a", "b"]
        assert [job.id async for job in client.list(state="queued")] == ["a", "b"]
        assert (await (await client.get(JOB_ID)).cancel()).state == "cancelled"
        assert (await client.cancel(JOB_ID)).state == "cancelled"
        assert (await client.endpoints(), await client.versions("x"), await client.workers()) == ([], [], [])
        with pytest.raises(NotFound):
            await client.endpoint("y")

    run(api, scene)


def test_failures_are_raised(api: Server) -> None:
    api.on(f"GET /v1/jobs/{JOB_ID}", ok(job("running")), ok(job("running")), ok(job("failed")))

    async def scene(client: AsyncClient) -> None:
        running = await client.get(JOB_ID)
        with pytest.raises(WaitTimeout):
            await running.wait(timeout=0)
        with pytest.raises(JobFailed):
            await running.result()
        with pytest.raises(ConnectionFailed):
            async with AsyncClient("http://127.0.0.1:1", retry=Retry(0)) as nowhere:
                await nowhere.workers()

    run(api, scene)


def test_events_resume(api: Server) -> None:
    api.on(
        ROUTE, stream(STATE, PROGRESS), drop, problem(503, "unavailable", "x"), stream(STATE, LOG, OUTPUT), stream(DONE)
    )
    api.on(f"GET /v1/jobs/{JOB_ID}", ok(job()))

    async def scene(client: AsyncClient) -> None:
        followed = await client.get(JOB_ID)
        *story, done = [event async for event in followed.events()]
        assert story == STORY
        assert isinstance(done, DoneEvent)
        assert followed.state == "succeeded"

    run(api, scene)


def test_files_both_ways(api: Server, store: Server, tmp_path: Path) -> None:
    api.on("POST /v1/files", ok({"id": "file_1", "upload_url": f"{store.url}/up?sig=s", "headers": {}}, 201))
    store.on("PUT /up", drop, data(b""))
    api.on("POST /v1/jobs", ok(job(), 202))
    file = {"$file": "o", "url": f"/v1/jobs/{JOB_ID}/files/o", "sha256": hashlib.sha256(BYTES).hexdigest()}
    api.on(f"GET /v1/jobs/{JOB_ID}", ok(job("succeeded", result=[file])))
    api.on(f"GET /v1/jobs/{JOB_ID}/files/o", redirect(f"{store.url}/o"))
    store.on("GET /o", cut, data(BYTES))
    (tmp_path / "in.bin").write_bytes(BYTES)
    sent_bytes: list[int] = []

    async def scene(client: AsyncClient) -> None:
        submitted = await client.submit("echo", {"file": tmp_path / "in.bin"})
        (output,) = await submitted.result()
        assert isinstance(output, AsyncFileRef)
        assert await output.read() == BYTES
        assert (await output.save(tmp_path)).read_bytes() == BYTES
        uploaded = await client.upload(BYTES, on_progress=lambda sent, _: sent_bytes.append(sent))
        assert uploaded.id == "file_1"

    run(api, scene)
    assert [put.body == BYTES for put in store.seen("PUT /up")] == [True] * 3
    assert sent_bytes == [CHUNK_BYTES, len(BYTES)]


def test_deploy(api: Server, store: Server, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(
        "from stokehold import endpoint\n@endpoint()\ndef greet(name: str) -> str: return name\n"
    )
    api.on("POST /v1/packages", ok({"exists": False, "upload_url": f"{store.url}/p", "headers": {}}))
    api.on("POST /v1/endpoints", ok({"name": "greet", "version": 1}, 201))
    store.on("PUT /p", data(b""))

    async def scene(client: AsyncClient) -> None:
        assert (await client.deploy(tmp_path / "main.py")).version == 1

    run(api, scene)


def test_a_cancelled_call_lets_go(api: Server) -> None:
    api.on("GET /v1/workers", hang, ok({"workers": []}))

    async def scene(client: AsyncClient) -> None:
        call = asyncio.ensure_future(client.workers())
        assert await asyncio.to_thread(api.arrived.wait, 60)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await client.workers() == []

    run(api, scene)


def test_the_transport_can_be_replaced() -> None:
    async def scene() -> None:
        transport = httpx.MockTransport(lambda request: httpx.Response(200, json={"workers": []}))
        async with AsyncClient("http://x.invalid", transport=transport) as client:
            assert await client.workers() == []

    asyncio.run(scene())
