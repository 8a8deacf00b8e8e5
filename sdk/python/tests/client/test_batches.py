"""Batches: lines out as a stream, lines back as a stream, and waiting in between."""

from __future__ import annotations

import asyncio
import io
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stokehold import AsyncClient, Client, Conflict, ConnectionFailed, FileRef, NothingToRetry, WaitTimeout
from stokehold._lines import _Numbers

from .conftest import FAST, Answer, Exchange, Server, data, drop, job, ok, problem

BATCH_ID = "batch_0192f0c1a2b37cde8f00112233445500"
COUNTS = {"total": 3, "invalid": 1, "accepted": 2, "succeeded": 1, "failed": 1, "cancelled": 0, "expired": 0}


def batch(state: str = "running", **members: Any) -> dict[str, Any]:
    return {
        "id": BATCH_ID,
        "endpoint": "echo",
        "state": state,
        "priority": "batch",
        "metadata": {},
        "counts": {**COUNTS, "open": 0, "running": 0},
        "created_at": "2026-11-21T05:50:00.123Z",
        "eta_at": None,
        "rate_per_s": 2.5,
        "errors": [{"line": 3, "message": "is no JSON"}],
        "retry_of": None,
        **members,
    }


def lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def broken(body: bytes) -> Answer:
    """Announces more than it sends."""

    def answer(exchange: Exchange) -> None:
        exchange.send_response(200)
        exchange.send_header("content-length", str(len(body) + 10))
        exchange.end_headers()
        exchange.wfile.write(body)
        exchange.close_connection = True

    return answer


RESULTS = [{"line": n, "custom_id": f"c{n}", "job_id": f"j{n}", "result": {"n": n}} for n in range(1, 8)]


@pytest.fixture(autouse=True)
def _temporary_files_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    own = tmp_path / "tmp"
    own.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    yield
    assert list(own.iterdir()) == [], "a batch leaves nothing behind"


def test_lines_are_sent_one_a_line_and_options_beside_them(api: Server, client: Client) -> None:
    api.on("POST /v1/batches", ok(batch("validating"), 202))
    created = client.batches.create(
        "echo",
        ({"custom_id": f"ü{n}", "input": {"n": n}} for n in range(3)),
        format="stokehold",
        on_invalid="skip",
        deadline_s=60,
        metadata={"team": "a b"},
        webhook="https://example.com/hook?x=1",
        webhook_events=["batch.completed"],
        priority=None,
        idempotency_key="mine",
    )
    assert (created.id, created.state, created.is_terminal) == (BATCH_ID, "validating", False)
    (request,) = api.requests
    assert [json.loads(line) for line in request.body.splitlines()] == [
        {"custom_id": f"ü{n}", "input": {"n": n}} for n in range(3)
    ]
    assert request.query == {
        "endpoint": "echo",
        "format": "stokehold",
        "on_invalid": "skip",
        "deadline_s": "60",
        "metadata.team": "a b",
        "webhook": "https://example.com/hook?x=1",
        "webhook_events": "batch.completed",
    }
    assert request.headers["content-type"] == "application/jsonl"
    assert request.headers["content-length"] == str(len(request.body))
    assert request.headers["idempotency-key"] == "mine"


def test_a_broken_upload_is_sent_again_whole_with_one_key(api: Server, client: Client) -> None:
    api.on("POST /v1/batches", drop, problem(503, "unavailable", "x"), ok(batch(), 202))
    sent_bytes: list[int] = []
    client.batches.create(
        "echo", iter([{"input": 1}, {"input": 2}]), on_progress=lambda sent, _: sent_bytes.append(sent)
    )
    tries = api.seen("POST /v1/batches")
    assert [request.body for request in tries] == [b'{"input":1}\n{"input":2}\n'] * 3
    assert len({request.headers["idempotency-key"] for request in tries}) == 1
    assert sent_bytes == [24] * 3


@pytest.mark.parametrize("kind", ["path", "text path", "binary file", "text file", "strings", "bytes"])
def test_lines_come_from_anywhere(api: Server, client: Client, tmp_path: Path, kind: str) -> None:
    text = '{"input": "grüß"}\n{"input": 2}\n'
    path = tmp_path / "lines.jsonl"
    path.write_text(text, encoding="utf-8")
    api.on("POST /v1/batches", ok(batch(), 202))
    if kind == "text file":
        with path.open(encoding="utf-8") as file:
            client.batches.create("echo", file)
    else:
        sources: dict[str, Any] = {
            "path": path,
            "text path": str(path),
            "binary file": io.BytesIO(text.encode()),
            "strings": text.splitlines(keepends=True),
            "bytes": [line.encode() for line in text.splitlines()],
        }
        client.batches.create("echo", sources[kind])
    assert api.requests[0].body.decode() == text
    assert path.exists()


def test_many_lines_pass_through_little_memory(api: Server, client: Client) -> None:
    api.on("POST /v1/batches", ok(batch(), 202))
    client.batches.create("echo", ({"input": "x" * 1000} for _ in range(2000)))
    assert len(api.requests[0].body.splitlines()) == 2000


def test_what_is_no_line_is_refused_before_anything_is_sent(api: Server, client: Client) -> None:
    with pytest.raises(TypeError, match="line 2 is a int"):
        client.batches.create("echo", [{"input": 1}, 2])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="line 1 contains a line break"):
        client.batches.create("echo", ['{"input":\n1}'])
    with pytest.raises(TypeError, match="cannot be sent"):
        client.batches.create("echo", [{"input": {1}}])
    with pytest.raises(TypeError, match="exactly one of lines"):
        client.batches.create("echo")
    with pytest.raises(TypeError, match="'batch_size'"):
        client.batches.create("echo", [], batch_size=3)  # type: ignore[call-arg]
    assert api.requests == []


def test_a_file_that_is_there_already_is_named(api: Server, client: Client) -> None:
    api.on("POST /v1/batches", ok(batch(), 202))
    client.batches.create("echo", input_file=FileRef("x.jsonl", "/v1/files/file_1", "file_1"), format="openai")
    client.batches.create("echo", input_file="file_2", metadata={"a": "b"})
    client.batches.create("echo", input_key="inputs/acme/x.jsonl")
    assert [request.json() for request in api.requests] == [
        {"endpoint": "echo", "format": "openai", "input_file": "file_1"},
        {"endpoint": "echo", "metadata": {"a": "b"}, "input_file": "file_2"},
        {"endpoint": "echo", "input_key": "inputs/acme/x.jsonl"},
    ]
    with pytest.raises(ValueError, match="not an uploaded file"):
        client.batches.create("echo", input_file=FileRef("x", "/v1/jobs/1/files/x"))


def test_files_in_lines_are_uploaded_once_each(api: Server, store: Server, client: Client, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"a")
    api.on("POST /v1/files", ok({"id": "file_1", "upload_url": f"{store.url}/up", "headers": {}}, 201))
    store.on("PUT /up", data(b""))
    api.on("POST /v1/batches", ok(batch(), 202))
    client.batches.create("echo", [{"input": {"image": tmp_path / "a.png"}}] * 2)
    assert api.requests[-1].body == b'{"input":{"image":{"$file":"file_1"}}}\n' * 2
    assert len(store.requests) == 1


def test_wait_until_it_has_ended(api: Server, client: Client) -> None:
    api.on(f"GET /v1/batches/{BATCH_ID}", ok(batch()), ok(batch("finalizing")), ok(batch("completed")))
    waited = client.batches.retrieve(BATCH_ID)
    assert waited.wait() is waited
    assert waited.state == "completed"
    assert (waited.counts.ended, waited.counts.invalid, waited.invalid_lines) == (2, 1, [(3, "is no JSON")])
    assert api.requests[-1].query == {"wait_s": "30"}
    api.on(f"GET /v1/batches/{BATCH_ID}", ok(batch()))
    with pytest.raises(WaitTimeout, match=r"batch .* is still running") as caught:
        waited.refresh().wait(timeout=0.02)
    assert (caught.value.batch_id, caught.value.job_id) == (BATCH_ID, None)


def test_cancel_retry_and_list(api: Server, client: Client) -> None:
    api.on(f"GET /v1/batches/{BATCH_ID}", ok(batch()))
    api.on(f"POST /v1/batches/{BATCH_ID}/cancel", ok(batch("cancelled")))
    api.on(
        f"POST /v1/batches/{BATCH_ID}/retry-failed",
        ok(batch("validating", id="batch_2", retry_of=BATCH_ID), 202),
        problem(409, "nothing_to_retry", "all well"),
        problem(409, "not_ready", "it runs"),
    )
    found = client.batches.retrieve(BATCH_ID)
    again = found.retry_failed()
    assert (again.id, again.retry_of) == ("batch_2", BATCH_ID)
    with pytest.raises(NothingToRetry):
        found.retry_failed()
    with pytest.raises(Conflict):
        found.retry_failed()
    assert found.cancel().state == "cancelled"
    api.on(
        "GET /v1/batches",
        ok({"batches": [batch()], "next_cursor": "1"}),
        ok({"batches": [batch(id="batch_2")], "next_cursor": None}),
    )
    assert [each.id for each in client.batches.list(state="running", page_size=1)] == [BATCH_ID, "batch_2"]
    assert api.requests[-1].query == {"limit": "1", "state": "running", "cursor": "1"}


def test_results_and_errors_are_streamed(api: Server, client: Client) -> None:
    file = {"$file": "a.png", "url": "/v1/jobs/j9/files/a.png"}
    error = {"line": 2, "custom_id": None, "job_id": None, "state": "invalid", "error": {"code": "x", "message": "y"}}
    api.on(f"GET /v1/batches/{BATCH_ID}", ok(batch("completed")))
    api.on(f"GET /v1/batches/{BATCH_ID}/results", data(lines(*RESULTS, {"line": 9, "result": file}).rstrip(b"\n")))
    api.on(f"GET /v1/batches/{BATCH_ID}/errors", data(lines(error)))
    ended = client.batches.retrieve(BATCH_ID)
    *plain, last = ended.results()
    assert plain == RESULTS
    assert isinstance(last["result"], FileRef)
    assert list(ended.errors()) == [error]
    assert api.seen(f"GET /v1/batches/{BATCH_ID}/results")[0].headers["accept"] == "application/jsonl"


def test_a_broken_stream_of_results_is_taken_up_and_nothing_comes_twice(api: Server, client: Client) -> None:
    whole = lines(*RESULTS)
    cuts = [broken(whole[:size]) for size in range(0, len(whole), 41)]
    shuffled = lines(*reversed(RESULTS))
    api.on(f"GET /v1/batches/{BATCH_ID}", ok(batch("completed")))
    route = f"GET /v1/batches/{BATCH_ID}/results"
    api.on(route, problem(503, "unavailable", "x"), *cuts[::3], drop, data(shuffled))
    found = list(client.batches.retrieve(BATCH_ID).results())
    assert sorted(found, key=lambda line: int(line["line"])) == RESULTS


def test_a_stream_that_always_breaks_ends(api: Server, client: Client) -> None:
    api.on(f"GET /v1/batches/{BATCH_ID}", ok(batch("completed")))
    api.on(f"GET /v1/batches/{BATCH_ID}/results", broken(lines(RESULTS[0])))
    with pytest.raises(ConnectionFailed):
        list(client.batches.retrieve(BATCH_ID).results())
    assert len(api.seen(f"GET /v1/batches/{BATCH_ID}/results")) == 6
    api.on(f"GET /v1/batches/{BATCH_ID}/errors", data(b"<html>\n"))
    with pytest.raises(ConnectionFailed, match="not a JSON object"):
        list(client.batches.retrieve(BATCH_ID).errors())


def test_numbers_are_a_set() -> None:
    numbers, plain = _Numbers(), set()
    for number in (0, 7, 8, 7, 1_000_003, 0, 63, 64, 1_000_003):
        assert numbers.add(number) is (number not in plain)
        plain.add(number)


def test_the_asyncio_half_does_the_same(api: Server) -> None:
    api.on("POST /v1/batches", drop, ok(batch("validating"), 202))
    api.on(f"GET /v1/batches/{BATCH_ID}", ok(batch()), ok(batch("completed")))
    api.on("GET /v1/batches", ok({"batches": [batch()], "next_cursor": None}))
    api.on(f"GET /v1/batches/{BATCH_ID}/results", broken(lines(*RESULTS[:3])), data(lines(*RESULTS)))
    api.on(f"GET /v1/batches/{BATCH_ID}/errors", data(b""))
    api.on(f"POST /v1/batches/{BATCH_ID}/retry-failed", problem(409, "nothing_to_retry", "all well"))
    api.on("GET /v1/jobs/j1", ok(job(batch_id=BATCH_ID, line=1, custom_id="c1")))

    async def scene() -> None:
        async with AsyncClient(api.url, "sk_test", retry=FAST) as client:
            created = await client.batches.create("echo", [{"input": 1}], metadata={"a": "b"})
            assert (await created.wait(timeout=60, progress=True)).state == "completed"
            assert [line async for line in created.results()] == RESULTS
            assert [line async for line in created.errors()] == []
            assert [each.id async for each in client.batches.list()] == [BATCH_ID]
            with pytest.raises(NothingToRetry):
                await created.retry_failed()
            line = await client.get("j1")
            assert (line.batch_id, line.line, line.custom_id) == (BATCH_ID, 1, "c1")

    asyncio.run(scene())
    assert [request.body for request in api.seen("POST /v1/batches")] == [b'{"input":1}\n'] * 2
