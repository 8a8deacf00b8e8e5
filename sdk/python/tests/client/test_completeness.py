"""The clients have a method for every operation of the API, and decode every member of its answers."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stokehold import AsyncClient, Client

from .conftest import FAST, Answer, Exchange, Request, Server, data, ok, redirect, stop

ROOT = Path(__file__).resolve().parents[4]
DOCUMENT = json.loads((ROOT / "api/openapi.json").read_text(encoding="utf-8"))
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
METHODS = ("get", "post", "put", "delete")
OPERATIONS = {f"{m.upper()} {path}" for path, methods in DOCUMENT["paths"].items() for m in methods if m in METHODS}

# The operations without a method, and who calls them.
NO_METHOD = {
    "GET /metrics": "Prometheus",
    "GET /readyz": "load balancers, which read the status alone",
    "GET /v1/worker/archives/{name}": "machines that become workers",
    "GET /v1/worker/install.sh": "machines that become workers",
    "GET /v1/live": "the dashboard",
    "GET /v1/series": "the dashboard",
    "GET /v1/session": "the dashboard",
    "POST /v1/session": "the dashboard",
    "DELETE /v1/session": "the dashboard",
    "POST /v1/files/upload": "clients that can neither hash a file nor reach the object store",
}

# The operations that are parts of a deploy with weights; test_deploy.py has them.
PARTS = {"POST /v1/weights", "GET /v1/weights/url"}

# A call of each operation. Some send several requests.
CALLS: dict[str, Callable[[Client], Any]] = {
    "GET /healthz": lambda c: c.fleet.health(),
    "GET /v1/audit": lambda c: [*c.audit.list(tenant="t"), c.audit.page(after="a")],
    "GET /v1/batches": lambda c: list(c.batches.list()),
    "POST /v1/batches": lambda c: c.batches.create("echo", [{"input": 1}]),
    "POST /v1/batches/estimate": lambda c: c.batches.estimate("echo", line_count=10),
    "GET /v1/batches/{id}": lambda c: c.batches.retrieve("b"),
    "POST /v1/batches/{id}/cancel": lambda c: c.batches.retrieve("b").cancel(),
    "GET /v1/batches/{id}/errors": lambda c: list(c.batches.retrieve("b").errors()),
    "GET /v1/batches/{id}/results": lambda c: list(c.batches.retrieve("b").results()),
    "POST /v1/batches/{id}/retry-failed": lambda c: c.batches.retrieve("b").retry_failed(),
    "GET /v1/costs": lambda c: c.costs.retrieve(by="day", from_="2026-11-22"),
    "GET /v1/dead-letters": lambda c: list(c.jobs.dead_letters(endpoint="echo")),
    "GET /v1/endpoints": lambda c: [*c.endpoints.list(), *c.endpoints()],
    "POST /v1/endpoints": lambda c: c.endpoints.deploy(ROOT / "sdk/examples/echo", python="3.11"),
    "GET /v1/endpoints/{name}": lambda c: c.endpoints.retrieve("echo"),
    "DELETE /v1/endpoints/{name}": lambda c: c.endpoints.delete("echo", dry_run=True, force=False),
    "GET /v1/endpoints/{name}/needs": lambda c: c.endpoints.needs("echo"),
    "DELETE /v1/endpoints/{name}/needs": lambda c: c.endpoints.forget_needs("echo"),
    "GET /v1/endpoints/{name}/stats": lambda c: c.endpoints.stats("echo", hours=2),
    "GET /v1/endpoints/{name}/traffic": lambda c: c.endpoints.traffic("echo"),
    "PUT /v1/endpoints/{name}/traffic": lambda c: c.endpoints.set_traffic("echo", 2, 10),
    "GET /v1/endpoints/{name}/versions": lambda c: c.endpoints.versions("echo"),
    "DELETE /v1/endpoints/{name}/versions/{version}": lambda c: c.endpoints.delete_version("echo", 2, force=True),
    "GET /v1/feedback": lambda c: c.feedback.stats(),
    "GET /v1/feedback/export": lambda c: list(c.feedback.export()),
    "GET /v1/files": lambda c: list(c.files.list()),
    "POST /v1/files": lambda c: c.files.upload(b"x"),
    "GET /v1/files/{id}": lambda c: c.files.retrieve("f"),
    "DELETE /v1/files/{id}": lambda c: c.files.delete("f", force=True),
    "GET /v1/fleet": lambda c: c.fleet.retrieve(),
    "GET /v1/jobs": lambda c: list(c.jobs.list(endpoint="echo")),
    "POST /v1/jobs": lambda c: c.jobs.submit("echo", {}),
    "POST /v1/jobs/bulk": lambda c: c.jobs.submit_many("echo", [{}, {}]),
    "POST /v1/jobs/cancel": lambda c: c.jobs.cancel_many(endpoint="echo"),
    "POST /v1/jobs/retry": lambda c: c.jobs.retry_many(endpoint="echo"),
    "GET /v1/jobs/{id}": lambda c: c.jobs.retrieve("j"),
    "POST /v1/jobs/{id}/cancel": lambda c: c.jobs.cancel("j"),
    "GET /v1/jobs/{id}/events": lambda c: list(c.jobs.events("j")),
    "POST /v1/jobs/{id}/feedback": lambda c: c.jobs.feedback("j", accepted=True),
    "GET /v1/jobs/{id}/files/{name}": lambda c: c.jobs.retrieve("j").result()["image"].read(),
    "GET /v1/jobs/{id}/result": lambda c: c.jobs.retrieve("j").result(),
    "POST /v1/jobs/{id}/retry": lambda c: c.jobs.retry("j"),
    "GET /v1/jobs/{id}/trace": lambda c: c.jobs.trace("j"),
    "GET /v1/limits": lambda c: [c.limits.own(), c.limits()],
    "GET /v1/limits/{tenant}": lambda c: c.limits.retrieve("t"),
    "PUT /v1/limits/{tenant}": lambda c: c.limits.replace("t", max_open=5),
    "GET /v1/limits/{tenant}/endpoints/{name}": lambda c: c.limits.retrieve_for_endpoint("t", "echo"),
    "PUT /v1/limits/{tenant}/endpoints/{name}": lambda c: c.limits.replace_for_endpoint("t", "echo", max_open=5),
    "POST /v1/packages": lambda c: c.deploy(ROOT / "sdk/examples/echo", python="3.11"),
    "GET /v1/quarantine": lambda c: c.quarantine.retrieve(),
    "POST /v1/quarantine/discard": lambda c: c.quarantine.discard(["j"]),
    "POST /v1/quarantine/readmit": lambda c: c.quarantine.readmit(["j"]),
    "GET /v1/queue": lambda c: c.fleet.queue(),
    "GET /v1/requirement-sets": lambda c: c.requirement_sets.list(),
    "DELETE /v1/requirement-sets/{id}": lambda c: c.requirement_sets.delete("r", dry_run=True),
    "GET /v1/schedules": lambda c: list(c.schedules.list()),
    "POST /v1/schedules": lambda c: c.schedules.create(cron="* * * * *", endpoint="echo"),
    "GET /v1/schedules/{id}": lambda c: c.schedules.retrieve("s"),
    "DELETE /v1/schedules/{id}": lambda c: c.schedules.delete("s"),
    "POST /v1/schedules/{id}/pause": lambda c: c.schedules.pause("s"),
    "POST /v1/schedules/{id}/resume": lambda c: c.schedules.resume("s"),
    "GET /v1/secrets": lambda c: c.secrets.list(),
    "POST /v1/secrets/rewrap": lambda c: c.secrets.rewrap(),
    "PUT /v1/secrets/{name}": lambda c: c.secrets.set("HF_TOKEN", "x"),
    "DELETE /v1/secrets/{name}": lambda c: c.secrets.delete("HF_TOKEN"),
    "GET /v1/tenants": lambda c: c.tenants.list(),
    "POST /v1/tenants": lambda c: c.tenants.create("t"),
    "POST /v1/tenants/{tenant}/disable": lambda c: c.tenants.disable("t"),
    "POST /v1/tenants/{tenant}/enable": lambda c: c.tenants.enable("t"),
    "GET /v1/tokens": lambda c: c.tokens.list(tenant="t"),
    "POST /v1/tokens": lambda c: c.tokens.create("ci", roles=["deploy"], ttl_s=3600),
    "DELETE /v1/tokens/{id}": lambda c: c.tokens.revoke("k", with_workers=True),
    "POST /v1/tokens/{id}/rotate": lambda c: c.tokens.rotate("k", overlap_s=60),
    "GET /v1/webhooks/deliveries": lambda c: list(c.webhooks.deliveries()),
    "GET /v1/webhooks/deliveries/{id}": lambda c: c.webhooks.delivery("d"),
    "POST /v1/webhooks/deliveries/{id}/replay": lambda c: c.webhooks.replay("d"),
    "GET /v1/webhooks/secret": lambda c: c.webhooks.secret(),
    "POST /v1/webhooks/secret/rotate": lambda c: c.webhooks.rotate_secret(),
    "GET /v1/workers": lambda c: [*c.workers.list(), *c.workers()],
    "POST /v1/workers/{id}/evict": lambda c: c.workers.evict("w", revoke_join_token=True),
    "GET /v1/workers/{id}/readings": lambda c: c.workers.readings("w"),
}

# Members of answers whose samples would make a call wait, or look for another page.
JOB = {"state": "succeeded", "result": None, "result_url": None}
MEMBERS: dict[str, dict[str, Any]] = {
    "CancelledMany": {"more": False},
    "Job": JOB,
    "Batch": {"state": "completed"},
    "BulkReply": {"ids": ["a", "b"]},
}


def resolved(schema: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A schema without its alternatives and references, and its name."""
    choices = [choice for choice in schema.get("oneOf", ()) if choice.get("type") != "null"]
    if len(choices) > 1 and all("properties" in choice for choice in choices):
        return "", {"properties": {name: one for choice in choices for name, one in choice["properties"].items()}}
    if choices:
        return resolved(choices[0])
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return name, resolved(SCHEMAS[name])[1]
    return "", schema


def sample(schema: dict[str, Any]) -> Any:
    """A value of a schema, with every member."""
    name, found = resolved(schema)
    kind = found.get("type", "object")
    kind = kind if isinstance(kind, str) else next(one for one in kind if one != "null")
    if "enum" in found:
        return found["enum"][0]
    if kind == "array":
        return [sample(found["items"])]
    if kind == "object":
        members = {one: sample(part) for one, part in found.get("properties", {}).items()}
        if isinstance(found.get("additionalProperties"), dict):
            members["1"] = sample(found["additionalProperties"])
        if "next_cursor" in members:
            members["next_cursor"] = None
        return {**members, **MEMBERS.get(name, {})}
    is_time = found.get("format") == "date-time" or "RFC 3339" in found.get("description", "")
    text = "2026-11-21T05:50:00Z" if is_time else "text"
    return {"string": text, "integer": max(1, found.get("minimum", 1)), "number": 0.5, "boolean": True}[kind]


class Described(Server):
    """Answers each request with a sample of what the document describes."""

    def __init__(self) -> None:
        super().__init__()
        self.called: set[str] = set()

    def answer_for(self, request: Request) -> Answer:
        for path, methods in DOCUMENT["paths"].items():
            operation = methods.get(request.method.lower())
            if operation and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", path), request.path):
                self.called.add(f"{request.method} {path}")
                return self._described(path, operation)
        return ok({})

    def _described(self, path: str, operation: dict[str, Any]) -> Answer:
        if path == "/v1/jobs/{id}/result":
            return ok({"image": {"$file": "a.png", "url": "/v1/jobs/j/files/a.png"}})
        if path == "/v1/jobs/{id}/files/{name}":
            return redirect(f"{self.url}/stored")
        if path == "/v1/jobs/{id}/events":
            done = json.dumps(sample({"$ref": "#/components/schemas/Job"}))
            return lambda exchange: exchange.stream(f"id: 1\nevent: done\ndata: {done}\n\n".encode())
        status, response = next(one for one in operation["responses"].items() if one[0] in ("200", "201", "202", "204"))
        content = response.get("content", {})
        if status == "204":
            return lambda exchange: Exchange.reply(exchange, 204, b"")
        if "application/json" not in content:
            return data(b'{"line": 1}\n')
        return ok(sample(content["application/json"]["schema"]), int(status))


@pytest.fixture
def described() -> Iterator[Described]:
    server = Described()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    stop(server, thread)


def test_every_operation_has_a_method_or_a_reason() -> None:
    assert OPERATIONS - set(CALLS) - set(NO_METHOD) - PARTS == set()
    assert (set(NO_METHOD) | PARTS) - OPERATIONS == set()


@pytest.mark.parametrize("operation", sorted(set(CALLS) & OPERATIONS))
def test_a_call_sends_its_operation_and_decodes_every_member(operation: str, described: Described) -> None:
    with Client(described.url, "sk_test", retry=FAST) as client:
        found = CALLS[operation](client)
    assert operation in described.called
    for value in found if isinstance(found, list) else [found]:
        missing = list(absent(value))
        assert missing == [], operation


def absent(value: Any, at: str = "") -> Iterator[str]:
    """The members of decoded objects that have no value."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        members = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    elif isinstance(value, tuple) and hasattr(value, "_asdict"):
        members = value._asdict()
    elif isinstance(value, (list, tuple)):
        members = {str(number): each for number, each in enumerate(value)} or {"items": None}
    else:
        return
    for name, member in members.items():
        if name in ("client", "raw", "sha256", "next_cursor"):
            continue
        if member is None:
            yield f"{at}.{name}"
        yield from absent(member, f"{at}.{name}")


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_the_asynchronous_client_has_the_same_methods() -> None:
    renamed = {"aclose": "close"}
    assert {renamed.get(name, name) for name in public(AsyncClient)} == public(Client)
    for name in public(Client):
        ours, theirs = inspect.getattr_static(Client, name), inspect.getattr_static(AsyncClient, name, None)
        if isinstance(ours, property) and name != "base_url":
            assert isinstance(theirs, property)
            assert public(type(getattr(Client(), name))) == public(type(getattr(AsyncClient(), name))), name
