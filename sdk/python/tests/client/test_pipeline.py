"""Jobs that name each other: what is sent, and what may be asked when."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from stokehold import AsyncClient, Client, Job, JobRecord, Reference, ServerError

from .conftest import FAST, JOB_ID, Server, data, job, ok, problem


def sent(api: Server) -> Any:
    return api.seen("POST /v1/jobs/bulk")[-1].json()["jobs"]


def test_a_pipeline_is_one_request(api: Server, client: Client) -> None:
    api.on("POST /v1/jobs/bulk", ok({"ids": ["a", "b", "c"]}, 202))
    with client.pipeline(idempotency_key="mine") as p:
        check = p.submit("prompt-check", {"prompt": "dusk"}, priority="interactive")
        image = p.submit(
            "render", {"prompt": check["prompt"], "all": check, "box": check["a/b"]["~"][0]}, depends_on=[check]
        )
        notice = p.submit("notify", None, depends_on=[{"job": image, "on": "completion"}, JOB_ID])
        assert api.requests == []
        assert repr(check["prompt"]) == "Reference('#0', pointer='/prompt')"
    assert [request.path for request in api.requests] == ["/v1/jobs/bulk"]
    assert api.requests[0].headers["idempotency-key"] == "mine"
    assert sent(api) == [
        {"endpoint": "prompt-check", "input": {"prompt": "dusk"}, "priority": "interactive"},
        {
            "endpoint": "render",
            "input": {
                "prompt": {"$job": "#0", "pointer": "/prompt"},
                "all": {"$job": "#0"},
                "box": {"$job": "#0", "pointer": "/a~1b/~0/0"},
            },
            "depends_on": ["#0"],
        },
        {"endpoint": "notify", "input": None, "depends_on": [{"job": "#1", "on": "completion"}, JOB_ID]},
    ]
    assert [(each.id, each.state) for each in (check, image, notice)] == [
        ("a", "queued"),
        ("b", "blocked"),
        ("c", "blocked"),
    ]
    api.on("GET /v1/jobs/b", ok(job("succeeded", id="b", result={"file": 1})))
    assert image.result(timeout=60) == {"file": 1}


def test_fan_out_and_fan_in_are_lists(api: Server, client: Client) -> None:
    api.on("POST /v1/jobs/bulk", ok({"ids": [str(n) for n in range(5)]}, 202))
    with client.pipeline() as p:
        split = p.submit("split", {"n": 3})
        parts = [p.submit("work", {"part": split[n]}) for n in range(3)]
        joined = p.submit("join", {"parts": parts})
    assert [each["input"] for each in sent(api)[1:4]] == [
        {"part": {"$job": "#0", "pointer": f"/{n}"}} for n in range(3)
    ]
    assert sent(api)[4]["input"] == {"parts": [{"$job": f"#{n}"} for n in (1, 2, 3)]}
    assert (joined.id, joined.state) == ("4", "blocked")


def test_a_job_that_is_accepted_may_stand_in_any_input(api: Server, client: Client) -> None:
    api.on("POST /v1/jobs", ok(job(), 202))
    api.on("POST /v1/jobs/bulk", ok({"ids": ["a"]}, 202))
    first = client.submit("echo", {"text": "hi"})
    client.submit("echo", {"text": first["text"], "all": [first]}, depends_on=[first])
    assert api.requests[-1].json() == {
        "endpoint": "echo",
        "input": {"text": {"$job": JOB_ID, "pointer": "/text"}, "all": [{"$job": JOB_ID}]},
        "depends_on": [JOB_ID],
    }
    (many,) = client.submit_many("echo", [{"text": first}])
    assert many.state == "blocked"
    with client.pipeline() as p:
        p.submit("echo", first)
    assert sent(api) == [{"endpoint": "echo", "input": {"$job": JOB_ID}}]


def test_an_error_in_the_block_sends_nothing(api: Server, client: Client) -> None:
    checks = []

    def scene() -> None:
        with client.pipeline() as p:
            checks.append(p.submit("prompt-check"))
            raise KeyError

    with pytest.raises(KeyError):
        scene()
    assert api.requests == []
    with pytest.raises(RuntimeError, match="is not sent"):
        checks[0].wait()


def test_a_planned_job_cannot_be_waited_for_in_the_block(api: Server, client: Client) -> None:
    api.on("POST /v1/jobs/bulk", ok({"ids": ["a"]}, 202))
    with client.pipeline() as p:
        check = p.submit("prompt-check")
        for ask in (check.wait, check.result, check.cancel, check.refresh, check.retry):
            with pytest.raises(RuntimeError, match="is not sent"):
                ask()
    with pytest.raises(RuntimeError, match="create another"):
        p.submit("echo")


def test_a_job_of_another_pipeline_is_no_number(api: Server, client: Client) -> None:
    api.on("POST /v1/jobs/bulk", ok({"ids": ["a", "b"]}, 202))
    with client.pipeline() as p, client.pipeline() as other:
        mine, theirs = p.submit("echo"), other.submit("echo")
        with pytest.raises(ValueError, match="within its own pipeline"):
            p.submit("echo", depends_on=[theirs])
        with pytest.raises(ValueError, match="within its own pipeline"):
            client.submit("echo", {"x": mine["y"]})
        p.submit("echo", mine)
    assert [len(request.json()["jobs"]) for request in api.requests] == [1, 2]


def test_a_refused_pipeline_leaves_its_jobs_unsent(api: Server, client: Client) -> None:
    api.on("POST /v1/jobs/bulk", problem(500, "internal", "no"))
    with pytest.raises(ServerError), client.pipeline() as p:
        check = p.submit("prompt-check")
    with pytest.raises(RuntimeError, match="is not sent"):
        check.wait()


def test_a_pipeline_fits_one_request_or_is_refused(api: Server, client: Client) -> None:
    many = client.pipeline()
    for n in range(1001):
        many.submit("echo", n)
    with pytest.raises(ValueError, match="at most 1000 jobs"), many:
        pass
    with pytest.raises(ValueError, match="7 MiB"), client.pipeline() as p:
        p.submit("echo", "x" * (8 << 20))
    with client.pipeline():
        pass
    assert api.requests == []


def test_files_in_a_pipeline_are_uploaded_once(api: Server, store: Server, client: Client, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"a")
    api.on("POST /v1/files", ok({"id": "file_1", "upload_url": f"{store.url}/up", "headers": {}}, 201))
    store.on("PUT /up", data(b""))
    api.on("POST /v1/jobs/bulk", ok({"ids": ["a", "b"]}, 202))
    with client.pipeline() as p:
        first = p.submit("echo", {"image": tmp_path / "a.png"})
        p.submit("echo", {"image": tmp_path / "a.png", "was": first})
    assert [each["input"]["image"] for each in sent(api)] == [{"$file": "file_1"}] * 2
    assert len(store.requests) == 1


def test_a_reference_is_no_sequence() -> None:
    record = JobRecord(job())
    for thing in (record, record["a"]):
        assert isinstance(thing[0], Reference)
        with pytest.raises(TypeError):
            list(thing)  # type: ignore[call-overload]
        with pytest.raises(TypeError):
            _ = "a" in thing  # type: ignore[misc]
        for key in (-1, True, None, 1.5, slice(2)):
            with pytest.raises(TypeError, match="name of a member"):
                _ = thing[key]  # type: ignore[index]


def test_the_asyncio_half_does_the_same(api: Server) -> None:
    api.on("POST /v1/jobs/bulk", ok({"ids": ["a", "b"]}, 202))
    api.on("GET /v1/jobs/b", ok(job("succeeded", id="b", result=7)))

    async def fail(client: AsyncClient) -> None:
        async with client.pipeline() as p:
            p.submit("echo")
            raise KeyError

    async def scene() -> None:
        async with AsyncClient(api.url, "sk_test", retry=FAST) as client:
            async with client.pipeline() as p:
                check = p.submit("prompt-check", {"prompt": "dusk"})
                image = p.submit("render", {"prompt": check["prompt"]}, depends_on=[check])
                with pytest.raises(RuntimeError, match="is not sent"):
                    await image.wait()
            assert not isinstance(image, Job)
            assert await image.result(timeout=60) == 7
            with pytest.raises(KeyError):
                await fail(client)

    asyncio.run(scene())
    assert len(api.seen("POST /v1/jobs/bulk")) == 1
    assert sent(api)[1]["input"] == {"prompt": {"$job": "#0", "pointer": "/prompt"}}
