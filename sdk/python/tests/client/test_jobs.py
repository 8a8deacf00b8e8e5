"""Submitting, waiting, results: what the caller gets for each response of the API."""

from __future__ import annotations

import json
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace

import pytest

from stokehold import (
    Client,
    Conflict,
    DependencyFailed,
    JobCancelled,
    JobExpired,
    JobFailed,
    JobPoisoned,
    JobRejected,
    OutOfGpuMemory,
    PartlySubmitted,
    RateLimited,
    WaitTimeout,
)
from stokehold._api import BULK_BYTES_MAX

from .conftest import FAST, JOB_ID, Server, data, hang, job, ok, problem, redirect


def test_submit_sends_what_was_given_and_nothing_else(api: Server, client: Client) -> None:
    api.on("POST /v1/jobs", ok(job(), 202))
    submitted = client.submit("echo", {"text": "hi"})
    assert (submitted.id, submitted.state, submitted.version) == (JOB_ID, "queued", 1)
    assert submitted.created_at == datetime(2026, 11, 21, 5, 50, 0, 123_000, timezone.utc)
    (request,) = api.seen("POST /v1/jobs")
    assert request.json() == {"endpoint": "echo", "input": {"text": "hi"}}
    assert request.headers["authorization"] == "Bearer sk_test"
    assert len(request.headers["idempotency-key"]) == 36
    assert "prefer" not in request.headers

    client.submit(
        "echo",
        None,
        version=3,
        priority="batch",
        timeout_s=9,
        max_attempts=2,
        run_after=datetime(2027, 1, 2, tzinfo=timezone.utc),
        metadata={"team": "a"},
        idempotency_key="mine",
        wait_s=2.5,
    )
    request = api.seen("POST /v1/jobs")[1]
    assert request.json() == {
        "endpoint": "echo",
        "input": None,
        "version": 3,
        "priority": "batch",
        "timeout_s": 9,
        "max_attempts": 2,
        "run_after": "2027-01-02T00:00:00.000Z",
        "metadata": {"team": "a"},
    }
    assert request.headers["idempotency-key"] == "mine"
    assert request.headers["prefer"] == "wait=3"


def test_submit_refuses_what_json_cannot_hold(api: Server, client: Client) -> None:
    with pytest.raises(TypeError, match=r"a builtins\.set cannot be sent as JSON"):
        client.submit("echo", {"text": {1}})
    with pytest.raises(ValueError, match="cannot be sent as JSON"):
        client.submit("echo", {"number": float("nan")})
    knot: list[object] = []
    knot.append(knot)
    with pytest.raises(ValueError, match="JSON"):
        client.submit("echo", knot)
    with pytest.raises(ValueError, match="no time zone"):
        client.submit("echo", run_after=datetime(2027, 1, 1))
    assert api.requests == []


def test_submit_many_goes_in_chunks_of_a_thousand(api: Server, client: Client) -> None:
    api.on(
        "POST /v1/jobs/bulk",
        ok({"ids": [f"a{n}" for n in range(1000)]}, 202),
        ok({"ids": [f"b{n}" for n in range(5)]}, 202),
    )
    jobs = client.submit_many("echo", ({"n": n} for n in range(1005)), priority="batch", idempotency_key="k")
    assert [jobs[0].id, jobs[999].id, jobs[1004].id] == ["a0", "a999", "b4"]
    first, second = api.seen("POST /v1/jobs/bulk")
    assert first.json()["jobs"][7] == {"endpoint": "echo", "input": {"n": 7}, "priority": "batch"}
    assert [len(first.json()["jobs"]), len(second.json()["jobs"])] == [1000, 5]
    assert [first.headers["idempotency-key"], second.headers["idempotency-key"]] == ["k-0", "k-1"]
    assert client.submit_many("echo", []) == []


def test_submit_many_keeps_a_request_below_the_body_limit(api: Server, client: Client) -> None:
    third = "x" * (BULK_BYTES_MAX // 3)
    api.on("POST /v1/jobs/bulk", ok({"ids": ["a", "b"]}, 202), ok({"ids": ["c"]}, 202))
    assert [job.id for job in client.submit_many("echo", [third] * 3)] == ["a", "b", "c"]
    assert all(len(request.body) <= BULK_BYTES_MAX + 100 for request in api.requests)


def test_submit_many_tells_what_was_accepted_when_a_later_chunk_fails(api: Server, client: Client) -> None:
    api.on(
        "POST /v1/jobs/bulk",
        ok({"ids": [f"a{n}" for n in range(1000)]}, 202),
        problem(400, "invalid_input", "no", [{"path": "/jobs/0/input", "message": "no"}]),
    )
    with pytest.raises(PartlySubmitted, match="1000 of 1001") as caught:
        client.submit_many("echo", range(1001))
    assert [job.id for job in caught.value.jobs][-1] == "a999"
    assert caught.value.__cause__ is not None
    api.on("POST /v1/jobs/bulk", problem(429, "queue_full", "full", retry_after="3600"))
    with pytest.raises(RateLimited):
        client.submit_many("echo", [1])


def test_wait_polls_until_the_job_has_ended(api: Server, client: Client) -> None:
    api.on("POST /v1/jobs", ok(job(), 202))
    api.on(
        f"GET /v1/jobs/{JOB_ID}",
        ok(job()),
        ok(job("running", progress={"fraction": 0.5, "message": "half"})),
        ok(job("succeeded")),
    )
    submitted = client.submit("echo", {"text": "hi"})
    assert submitted.wait() is submitted
    assert submitted.state == "succeeded"
    assert submitted.timing.run_ms == 2
    polls = api.seen(f"GET /v1/jobs/{JOB_ID}")
    assert [poll.query for poll in polls] == [{"wait_s": "30"}] * 3
    assert submitted.result() == {"text": "hi"}
    assert len(api.seen(f"GET /v1/jobs/{JOB_ID}")) == 3, "an ended job is not asked for again"


def test_wait_gives_up_in_time_and_leaves_the_job_alone(api: Server, client: Client) -> None:
    api.on(f"GET /v1/jobs/{JOB_ID}", ok(job("running")))
    running = client.get(JOB_ID)
    with pytest.raises(WaitTimeout, match="still running") as caught:
        running.wait(timeout=0.05)
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.job_id == JOB_ID
    assert {request.method for request in api.requests} == {"GET"}
    with pytest.raises(WaitTimeout):
        running.result(timeout=0)


def test_wait_survives_a_restart_of_the_api(api: Server, client: Client) -> None:
    away = problem(503, "unavailable", "starting")
    api.on(f"GET /v1/jobs/{JOB_ID}", ok(job()), away, away, ok(job("succeeded")))
    assert client.get(JOB_ID).wait().state == "succeeded"


def test_a_silent_server_ends_the_call(api: Server) -> None:
    api.on(f"GET /v1/jobs/{JOB_ID}", hang, ok(job()))
    with Client(api.url, "sk_test", timeout_s=0.05, retry=FAST) as client:
        assert client.get(JOB_ID).state == "queued"
    assert len(api.requests) == 2


def test_result_too_large_for_the_record_is_fetched_without_handing_on_the_token(
    api: Server, store: Server, client: Client
) -> None:
    api.on(f"GET /v1/jobs/{JOB_ID}", ok(job("succeeded", result=None)))
    api.on(f"GET /v1/jobs/{JOB_ID}/result", redirect(f"{store.url}/results/1?signature=s"))
    store.on("GET /results/1", data(json.dumps(["large"] * 3).encode()))
    assert client.get(JOB_ID).result() == ["large"] * 3
    assert api.requests[-1].headers["authorization"] == "Bearer sk_test"
    assert "authorization" not in store.requests[0].headers
    assert store.requests[0].query == {"signature": "s"}


def test_result_may_be_null(api: Server, client: Client) -> None:
    api.on(f"GET /v1/jobs/{JOB_ID}", ok(job("succeeded", result=None)))
    api.on(f"GET /v1/jobs/{JOB_ID}/result", ok(None))
    assert client.get(JOB_ID).result() is None


def test_result_of_a_failed_job_raises_what_happened(api: Server, client: Client) -> None:
    error = {"code": "handler_error", "class": "ValueError", "message": "no", "traceback": "tb", "stderr": "last words"}
    attempt = {
        "attempt": 1,
        "worker_id": "w_1",
        "state": "failed",
        "started_at": "2026-11-21T05:50:00Z",
        "ended_at": None,
        "timing": None,
        "error": error,
    }
    api.on(f"GET /v1/jobs/{JOB_ID}", ok(job("failed", error=error, attempts=[attempt])))
    failed = client.get(JOB_ID)
    with pytest.raises(JobFailed, match=r"failed \(handler_error\): ValueError: no") as caught:
        failed.result()
    failure = caught.value
    assert (failure.code, failure.class_name, failure.message) == ("handler_error", "ValueError", "no")
    assert (failure.traceback, failure.stderr, failure.job_id) == ("tb", "last words", JOB_ID)
    assert failed.attempts[0].error == failed.error
    assert failed.attempts[0].started_at == datetime(2026, 11, 21, 5, 50, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("state", "kind"), [("cancelled", JobCancelled), ("expired", JobExpired), ("failed", JobFailed)]
)
def test_result_of_a_job_without_one_raises(api: Server, client: Client, state: str, kind: type[Exception]) -> None:
    api.on(f"GET /v1/jobs/{JOB_ID}", ok(job(state)))
    with pytest.raises(kind, match=JOB_ID):
        client.get(JOB_ID).result()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("rejected", JobRejected),
        ("dependency_failed", DependencyFailed),
        ("poison", JobPoisoned),
        ("oom_gpu", OutOfGpuMemory),
        ("oom_host", JobFailed),
    ],
)
def test_why_a_job_failed_has_its_class(api: Server, client: Client, code: str, kind: type[JobFailed]) -> None:
    api.on(f"GET /v1/jobs/{JOB_ID}", ok(job("failed", error={"code": code, "class": None, "message": "too violent"})))
    with pytest.raises(JobFailed, match=rf"failed \({code}\): too violent") as caught:
        client.get(JOB_ID).result()
    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.message) == (code, "too violent")


def test_cancel_and_refresh(api: Server, client: Client) -> None:
    api.on(f"POST /v1/jobs/{JOB_ID}/cancel", ok(job("cancelled")), problem(409, "already_ended", "it is succeeded"))
    api.on(f"GET /v1/jobs/{JOB_ID}", ok(job()), ok(job("running")))
    queued = client.get(JOB_ID)
    assert queued.refresh().state == "running"
    assert queued.cancel().state == "cancelled"
    with pytest.raises(Conflict, match="it is succeeded"):
        client.cancel(JOB_ID)


def test_list_fetches_pages_as_they_are_looked_at(api: Server, client: Client) -> None:
    api.on(
        "GET /v1/jobs",
        ok({"jobs": [job(id="a"), job(id="b")], "next_cursor": "2-0"}),
        ok({"jobs": [], "next_cursor": "1-0"}),
        ok({"jobs": [job(id="c")], "next_cursor": None}),
    )
    jobs = client.list(state="queued", endpoint="echo", metadata={"team": "a b"}, page_size=2)
    assert api.requests == []
    assert [next(jobs).id, next(jobs).id] == ["a", "b"]
    assert len(api.requests) == 1
    assert [job.id for job in jobs] == ["c"]
    first, second, third = api.requests
    assert first.query == {"limit": "2", "state": "queued", "endpoint": "echo", "metadata.team": "a b"}
    assert [second.query["cursor"], third.query["cursor"]] == ["2-0", "1-0"]


def test_endpoints_and_workers(api: Server, client: Client) -> None:
    version = {
        "name": "echo",
        "version": 2,
        "created_at": "2026-11-21T05:50:00.1Z",
        "input_schema": {},
        "entry": "main.py:echo",
    }
    api.on("GET /v1/endpoints", ok({"endpoints": [version]}))
    api.on("GET /v1/endpoints/echo", ok(version))
    api.on("GET /v1/endpoints/echo/versions", ok({"versions": [version, {**version, "version": 1}]}))
    worker = {
        "id": "w_1",
        "name": "box",
        "state": "ready",
        "joined_at": None,
        "seen_at": "2026-11-21T05:50:00Z",
        "slots": 2,
    }
    api.on("GET /v1/workers", ok({"workers": [worker]}))
    assert [endpoint.version for endpoint in client.endpoints()] == [2]
    endpoint = client.endpoint("echo")
    assert (endpoint.created_at, endpoint.raw["entry"]) == (
        datetime(2026, 11, 21, 5, 50, 0, 100_000, timezone.utc),
        "main.py:echo",
    )
    assert [endpoint.version for endpoint in client.versions("echo")] == [2, 1]
    assert client.workers()[0].raw["slots"] == 2


def test_traffic_is_read_and_set(api: Server, client: Client) -> None:
    parts = [{"version": 1, "percent": 90}, {"version": 2, "percent": 10}]
    api.on("GET /v1/endpoints/echo/traffic", ok({"name": "echo", "versions": parts[:1]}))
    api.on("PUT /v1/endpoints/echo/traffic", ok({"name": "echo", "versions": parts}))
    assert client.traffic("echo") == {1: 90}
    assert client.set_traffic("echo", 2, 10) == {1: 90, 2: 10}
    assert api.requests[-1].json() == {"version": 2, "percent": 10}


def test_an_id_cannot_reach_another_route(api: Server, client: Client, tmp_path: Path) -> None:
    api.on("GET /v1/jobs/..%2Fworkers", ok(job()))
    assert client.get("../workers").id == JOB_ID


def test_a_submit_says_when_it_began_and_where_its_caller_is_in_a_trace(
    api: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace", raising=False)
    before_ms = time.time_ns() // 1_000_000
    api.on("POST /v1/jobs", problem(503, "unavailable", "later"), ok(job(), 202))
    client.submit("echo", {})
    first, second = (request.headers for request in api.seen("POST /v1/jobs"))
    assert first["stokehold-called-ms"] == second["stokehold-called-ms"]
    assert before_ms <= int(first["stokehold-called-ms"]) <= time.time_ns() // 1_000_000
    assert "traceparent" not in first

    # As OpenTelemetry's API answers within a span, and outside of any.
    place = SimpleNamespace(is_valid=True, trace_id=0x4BF92F35 << 96, span_id=0xF067AA0BA902B7, trace_flags=1)
    span = SimpleNamespace(get_span_context=lambda: place)
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", SimpleNamespace(get_current_span=lambda: span))
    api.on("POST /v1/jobs/bulk", ok({"ids": [JOB_ID]}, 202))
    client.submit_many("echo", [{}])
    (bulk,) = api.seen("POST /v1/jobs/bulk")
    assert bulk.headers["traceparent"] == f"00-4bf92f35{'0' * 24}-00f067aa0ba902b7-01"
    place.is_valid = False
    client.submit("echo", {})
    assert "traceparent" not in api.seen("POST /v1/jobs")[-1].headers
