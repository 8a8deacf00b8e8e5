"""What is around jobs: options, selections, retries, feedback, schedules, webhooks, limits."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timezone
from typing import Any

import pytest

from stokehold import (
    AsyncClient,
    Client,
    ConnectionFailed,
    Dependee,
    JobCost,
    NotRetryable,
    QuotaExceeded,
    Retried,
    Retry,
    StepRun,
    Timing,
    Waiting,
)
from stokehold._lines import LineReader
from stokehold._request import Call

from .conftest import FAST, JOB_ID, Server, data, job, ok, problem

SCHEDULE = {
    "id": "sch_1",
    "name": "nightly",
    "cron": "0 3 * * *",
    "time_zone": "Europe/Paris",
    "missed": "skip",
    "grace_s": 60,
    "paused": False,
    "next_at": "2026-11-22T02:00:00Z",
    "last_at": None,
    "last_job_id": None,
    "last_error": None,
    "ticks": 0,
    "created_at": "2026-11-21T05:50:00.123Z",
    "job": {"endpoint": "echo", "input": {}},
}
DELIVERY = {
    "id": "msg_1",
    "event": "job.completed",
    "url": "https://example.com",
    "job_id": JOB_ID,
    "batch_id": None,
    "state": "pending",
    "created_at": "2026-11-21T05:50:00Z",
    "next_try_at": "2026-11-21T05:50:05Z",
    "tries": [{"at": "2026-11-21T05:50:00Z", "status": 500, "error": None, "duration_ms": 12}],
}
SECRET = {"secret": "whsec_bmV3", "previous": "whsec_b2xk", "previous_until": "2026-11-22T05:50:00Z"}
FEEDBACK = {
    "job_id": JOB_ID,
    "endpoint": "echo",
    "version": 1,
    "accepted": True,
    "score": 4,
    "labels": ["sharp"],
    "comment": None,
    "at": "2026-11-21T05:50:00Z",
}


def test_every_option_of_a_job_is_sent_as_it_is_named(api: Server, client: Client) -> None:
    api.on("POST /v1/jobs", ok(job(), 202))
    options: dict[str, Any] = {
        "queue_timeout_s": 60,
        "deadline_s": 600,
        "retention_s": 3600,
        "concurrency_key": "user-7",
        "concurrency_max": 2,
        "depends_on": ["a", {"job": "b", "on": "completion"}],
        "webhook": "https://example.com/hook",
        "webhook_events": ["job.started", "job.completed"],
    }
    client.submit("echo", None, **options)
    assert api.requests[-1].json() == {"endpoint": "echo", "input": None, **options}
    client.submit("echo", None, **dict.fromkeys(options))  # type: ignore[arg-type]
    assert api.requests[-1].json() == {"endpoint": "echo", "input": None}
    with pytest.raises(TypeError, match=r"'dead_line_s'; the arguments are .*deadline_s"):
        client.submit("echo", dead_line_s=1)  # type: ignore[call-arg]


def test_a_job_tells_what_it_belongs_to(api: Server, client: Client) -> None:
    step = {
        "name": "safe",
        "stage": "before",
        "endpoint": "prompt-check",
        "job_id": "j",
        "state": "succeeded",
        "decision": "reject",
        "reason": "no",
        "scores": {"violence": 0.9},
        "timing": {"run_ms": 3},
        "cost_usd_micros": 12,
    }
    full = job(
        deadline_at="2026-11-21T06:50:00Z",
        batch_id="batch_1",
        line=3,
        custom_id="c",
        retry_of="old",
        schedule_id="sch_1",
        depends_on=[{"job": "a", "on": "completion"}, {"job": "b"}],
        concurrency_key="k",
        webhook="https://example.com",
        webhook_events=["job.completed"],
        steps=[step],
        step_of="whole",
        waiting={"reason": "busy", "message": "all workers are busy"},
        cost={"run_usd_micros": 9, "total_usd_micros": 11, "is_estimate": True},
        cost_usd_micros=1234,
    )
    api.on(f"GET /v1/jobs/{JOB_ID}", ok(full), ok(job()))
    found = client.get(JOB_ID)
    assert found.deadline_at == datetime(2026, 11, 21, 6, 50, tzinfo=timezone.utc)
    assert (found.batch_id, found.line, found.custom_id, found.retry_of) == ("batch_1", 3, "c", "old")
    assert (found.schedule_id, found.concurrency_key, found.cost_usd_micros) == ("sch_1", "k", 1234)
    assert found.depends_on == [Dependee("a", "completion"), Dependee("b", "success")]
    assert (found.webhook, found.webhook_events) == ("https://example.com", ["job.completed"])
    assert found.steps == [
        StepRun(
            "safe", "before", "prompt-check", "j", "succeeded", "reject", "no", {"violence": 0.9}, Timing(run_ms=3), 12
        )
    ]
    assert (found.step_of, found.waiting) == ("whole", Waiting("busy", "all workers are busy"))
    assert found.cost == JobCost(9, 0, 0, 11, is_estimate=True)
    plain = client.get(JOB_ID)
    assert (plain.step_of, plain.waiting, plain.cost) == (None, None, None)
    assert (plain.steps, plain.depends_on, plain.batch_id, plain.cost_usd_micros) == ([], [], None, None)


def test_a_job_is_done_again(api: Server, client: Client) -> None:
    api.on(f"GET /v1/jobs/{JOB_ID}", ok(job("failed")))
    api.on(
        f"POST /v1/jobs/{JOB_ID}/retry",
        ok(job(id="new", retry_of=JOB_ID), 202),
        problem(409, "not_retryable", "it succeeded"),
        ok(job(id="newer", retry_of=JOB_ID), 202),
    )
    again = client.get(JOB_ID).retry()
    assert (again.id, again.retry_of) == ("new", JOB_ID)
    with pytest.raises(NotRetryable):
        client.retry(JOB_ID)
    assert api.requests[-1].query == {}
    assert client.retry(JOB_ID, same_version=True).id == "newer"
    assert api.requests[-1].query == {"same_version": "true"}


def test_many_are_done_again_until_none_is_left(api: Server, client: Client) -> None:
    page = [{"id": f"a{n}", "new_id": f"b{n}"} for n in range(3)]
    api.on(
        "POST /v1/jobs/retry",
        ok({"retried": page[:2], "more": True}),
        ok({"retried": page[2:], "more": False}),
        ok({"retried": page, "more": True}),
    )
    assert client.retry_jobs(endpoint="echo", error_code="timeout", metadata={"a": "b"}) == [
        Retried(f"a{n}", f"b{n}") for n in range(3)
    ]
    selected = {"endpoint": "echo", "error_code": "timeout", "metadata": {"a": "b"}}
    assert [request.json() for request in api.requests] == [{"filter": selected, "limit": 1000}] * 2
    assert len(client.retry_jobs(state="failed")) == 3, "a server that always reports more is not followed forever"
    assert len(api.requests) == 4
    client.retry_jobs(batch="batch_1", limit=3, same_version=True)
    assert api.requests[-1].json()["same_version"] is True
    assert [request.json()["limit"] for request in api.requests[4:]] == [3]
    with pytest.raises(ValueError, match="no jobs selected; pass at least one of batch, endpoint"):
        client.retry_jobs()


def test_many_are_cancelled_until_none_is_left(api: Server, client: Client) -> None:
    api.on(
        "POST /v1/jobs/cancel",
        ok({"cancelled": 1000, "more": True}),
        ok({"cancelled": 200, "more": True}),
        ok({"cancelled": 0, "more": True}),
    )
    assert client.cancel_jobs(schedule="sch_1", priority="batch", limit=1200) == 1200
    assert [request.json()["limit"] for request in api.requests] == [1000, 200]
    assert client.cancel_jobs(state="queued") == 0
    with pytest.raises(ValueError, match="no jobs selected; pass at least one of batch, endpoint"):
        client.cancel_jobs(limit=3)


def test_dead_letters_and_selections_are_pages(api: Server, client: Client) -> None:
    pages = [
        ok({"jobs": [job("failed", id="a")], "next_cursor": "1"}),
        ok({"jobs": [job("expired", id="b")], "next_cursor": None}),
    ]
    api.on("GET /v1/dead-letters", *pages)
    api.on("GET /v1/jobs", *pages)
    assert [each.id for each in client.dead_letters(endpoint="echo", error_code="oom_gpu")] == ["a", "b"]
    assert api.requests[1].query == {"limit": "100", "endpoint": "echo", "error_code": "oom_gpu", "cursor": "1"}
    found = client.list(batch="batch_1", schedule="sch_1", priority="batch", error_code="x", page_size=5)
    assert [each.id for each in found] == ["a", "b"]
    assert api.requests[2].query == {
        "limit": "5",
        "batch": "batch_1",
        "schedule": "sch_1",
        "priority": "batch",
        "error_code": "x",
    }


def test_a_quota_is_told_with_when_to_come_back(api: Server) -> None:
    api.on("POST /v1/jobs", problem(429, "quota_exceeded", "100 jobs are open", retry_after="3600"))
    api.on(
        "GET /v1/limits",
        ok(
            {
                "tenant": "acme",
                "limits": {"weight": 1, "max_open": 100},
                "endpoints": {"echo": {"limits": {"max_running": 2}, "usage": {"open": 1, "running": 1}}},
                "usage": {"open": 100, "running": 7},
            }
        ),
    )
    with Client(api.url, retry=Retry(0)) as client:
        with pytest.raises(QuotaExceeded) as caught:
            client.submit("echo")
        assert caught.value.retry_after_s == 3600
        limits = client.limits()
    assert (limits.tenant, limits.limits["max_open"], limits.usage["open"]) == ("acme", 100, 100)
    assert limits.endpoints["echo"]["limits"] == {"max_running": 2}


def test_feedback(api: Server, client: Client) -> None:
    api.on(f"GET /v1/jobs/{JOB_ID}", ok(job("succeeded")))
    api.on(f"POST /v1/jobs/{JOB_ID}/feedback", ok(FEEDBACK))
    found = client.get(JOB_ID)
    given = found.feedback(accepted=True, score=4, labels=("sharp",))
    assert (given.accepted, given.score, given.labels, given.comment) == (True, 4, ("sharp",), None)
    assert api.requests[-1].json() == {"accepted": True, "score": 4, "labels": ["sharp"]}
    client.feedback.give(JOB_ID, accepted=False, comment="blurred")
    assert api.requests[-1].json() == {"accepted": False, "comment": "blurred"}
    with pytest.raises(ValueError, match="no feedback given"):
        found.feedback()
    version = {
        "endpoint": "echo",
        "version": 2,
        "rated": 3,
        "accepted": 2,
        "success_rate": 0.66,
        "mean_score": None,
    }
    api.on("GET /v1/feedback", ok({"versions": [version]}))
    (stats,) = client.feedback.stats("echo")
    assert (stats.version, stats.rated, stats.success_rate, stats.mean_score) == (2, 3, 0.66, None)
    assert api.requests[-1].query == {"endpoint": "echo"}
    rows = [{**FEEDBACK, "job_id": f"j{n}", "input": {}, "result": 1} for n in range(2)]
    api.on("GET /v1/feedback/export", data("\n".join(map(json.dumps, rows)).encode()))
    assert list(client.feedback.export(endpoint="echo", sample=2, seed=7)) == rows
    assert api.requests[-1].query == {"endpoint": "echo", "sample": "2", "seed": "7"}


def test_a_sample_that_breaks_is_taken_up_as_the_same_sample(api: Server, client: Client) -> None:
    rows = [{**FEEDBACK, "job_id": f"j{n}"} for n in range(5)]
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()

    def broken(exchange: Any) -> None:
        exchange.send_response(200)
        exchange.send_header("content-length", "9999")
        exchange.end_headers()
        exchange.wfile.write(text[: len(text) // 2])
        exchange.close_connection = True

    api.on("GET /v1/feedback/export", broken, data(text))
    assert list(client.feedback.export()) == rows
    first, second = api.requests
    assert first.query == second.query
    assert int(first.query["seed"]) < 1 << 64


def test_lines_without_a_name_cannot_be_taken_up() -> None:
    reader = LineReader(Call("GET", "http://x", {}), Retry())
    reader.call()
    assert list(reader.feed(b'{"result": 1}\n')) == [{"result": 1}]
    with pytest.raises(ConnectionFailed):
        reader.pause_s(ConnectionFailed("cut"), 0.5)


def test_schedules(api: Server, client: Client) -> None:
    api.on("POST /v1/schedules", ok(SCHEDULE, 201))
    made = client.schedules.create(
        cron="0 3 * * *",
        endpoint="echo",
        input={"text": "hi"},
        name="nightly",
        time_zone="Europe/Paris",
        missed="skip",
        grace_s=60,
        paused=False,
        idempotency_key="mine",
        priority="batch",
        webhook="https://example.com",
    )
    assert api.requests[-1].headers["idempotency-key"] == "mine"
    assert api.requests[-1].json() == {
        "name": "nightly",
        "cron": "0 3 * * *",
        "time_zone": "Europe/Paris",
        "missed": "skip",
        "grace_s": 60,
        "paused": False,
        "job": {
            "endpoint": "echo",
            "input": {"text": "hi"},
            "priority": "batch",
            "webhook": "https://example.com",
        },
    }
    assert (made.id, made.cron, made.missed, made.is_paused, made.ticks) == ("sch_1", "0 3 * * *", "skip", False, 0)
    assert made.next_at == datetime(2026, 11, 22, 2, tzinfo=timezone.utc)
    client.schedules.create(cron="* * * * *", endpoint="echo")
    assert api.requests[-1].json() == {"cron": "* * * * *", "job": {"endpoint": "echo", "input": None}}
    with pytest.raises(TypeError, match="a schedule submits many"):
        client.schedules.create(cron="* * * * *", endpoint="echo", depends_on=["a"])

    api.on("GET /v1/schedules/sch_1", ok(SCHEDULE))
    api.on("POST /v1/schedules/sch_1/pause", ok({**SCHEDULE, "paused": True, "next_at": None}))
    api.on("POST /v1/schedules/sch_1/resume", ok(SCHEDULE))
    api.on("DELETE /v1/schedules/sch_1", lambda exchange: exchange.reply(204, b""))
    api.on("GET /v1/schedules", ok({"schedules": [SCHEDULE], "next_cursor": None}))
    found = client.schedules.retrieve("sch_1")
    assert (found.pause().is_paused, found.next_at) == (True, None)
    assert not found.resume().is_paused
    assert [each.id for each in client.schedules.list()] == ["sch_1"]
    found.delete()
    assert len(api.seen("DELETE /v1/schedules/sch_1")) == 1


def test_webhooks(api: Server, client: Client) -> None:
    api.on("GET /v1/webhooks/secret", ok({"secret": "whsec_bmV3", "previous": None, "previous_until": None}))
    api.on("POST /v1/webhooks/secret/rotate", ok(SECRET))
    assert client.webhooks.secret().secrets == ["whsec_bmV3"]
    rotated = client.webhooks.rotate_secret()
    assert rotated.secrets == ["whsec_bmV3", "whsec_b2xk"]
    assert "whsec" not in repr(rotated)
    api.on("GET /v1/webhooks/deliveries", ok({"deliveries": [DELIVERY], "next_cursor": None}))
    api.on("GET /v1/webhooks/deliveries/msg_1", ok(DELIVERY))
    api.on("POST /v1/webhooks/deliveries/msg_1/replay", ok(DELIVERY, 202))
    (delivery,) = client.webhooks.deliveries(job=JOB_ID, state="pending")
    assert api.requests[-1].query == {"limit": "100", "job": JOB_ID, "state": "pending"}
    assert (delivery.id, delivery.event, delivery.tries[0].status) == ("msg_1", "job.completed", 500)
    assert client.webhooks.delivery("msg_1") == client.webhooks.replay("msg_1") == delivery


def test_the_asyncio_half_does_the_same(api: Server) -> None:
    api.on(f"GET /v1/jobs/{JOB_ID}", ok(job("failed")))
    api.on(f"POST /v1/jobs/{JOB_ID}/retry", ok(job(id="new"), 202))
    api.on(f"POST /v1/jobs/{JOB_ID}/feedback", ok(FEEDBACK))
    api.on("POST /v1/jobs/retry", ok({"retried": [{"id": "a", "new_id": "b"}], "more": False}))
    api.on("POST /v1/jobs/cancel", ok({"cancelled": 2, "more": False}))
    api.on("GET /v1/dead-letters", ok({"jobs": [job("failed")], "next_cursor": None}))
    api.on("GET /v1/limits", ok({"tenant": "acme"}))
    api.on("GET /v1/feedback", ok({"versions": []}))
    api.on("GET /v1/feedback/export", data(json.dumps(FEEDBACK).encode()))
    api.on("POST /v1/schedules", ok(SCHEDULE, 201))
    api.on("POST /v1/schedules/sch_1/pause", ok({**SCHEDULE, "paused": True}))
    api.on("DELETE /v1/schedules/sch_1", lambda exchange: exchange.reply(204, b""))
    api.on("GET /v1/schedules", ok({"schedules": [SCHEDULE], "next_cursor": None}))
    api.on("GET /v1/schedules/sch_1", ok(SCHEDULE))
    api.on("GET /v1/webhooks/secret", ok(SECRET))
    api.on("POST /v1/webhooks/secret/rotate", ok(SECRET))
    api.on("GET /v1/webhooks/deliveries", ok({"deliveries": [DELIVERY], "next_cursor": None}))
    api.on("GET /v1/webhooks/deliveries/msg_1", ok(DELIVERY))
    api.on("POST /v1/webhooks/deliveries/msg_1/replay", ok(DELIVERY, 202))

    async def scene() -> None:
        async with AsyncClient(api.url, "sk_test", retry=FAST) as client:
            failed = await client.get(JOB_ID)
            assert (await failed.retry()).id == "new"
            assert (await failed.feedback(score=4)).score == 4
            assert (await client.feedback.give(JOB_ID, score=4)).labels == ("sharp",)
            assert await client.retry_jobs(state="failed") == [Retried("a", "b")]
            assert await client.cancel_jobs(state="queued") == 2
            assert [each.id async for each in client.dead_letters()] == [JOB_ID]
            assert (await client.limits()).tenant == "acme"
            assert await client.feedback.stats() == []
            assert [row async for row in client.feedback.export(sample=1)] == [FEEDBACK]
            schedule = await client.schedules.create(cron="* * * * *", endpoint="echo")
            assert (await schedule.pause()).is_paused
            assert not (await schedule.refresh()).is_paused
            assert [each.id async for each in client.schedules.list()] == ["sch_1"]
            await schedule.delete()
            assert (await client.webhooks.secret()).previous == "whsec_b2xk"
            assert (await client.webhooks.rotate_secret()).secrets == ["whsec_bmV3", "whsec_b2xk"]
            assert [each.id async for each in client.webhooks.deliveries()] == ["msg_1"]
            assert await client.webhooks.delivery("msg_1") == await client.webhooks.replay("msg_1")

    asyncio.run(scene())
