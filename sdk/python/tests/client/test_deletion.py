"""Deletion: what it answers, and what prevents it."""

from __future__ import annotations

import pytest

from stokehold import Client, Conflict, InUse, NotFound
from stokehold.types import Deletion, Dependent

from .conftest import Answer, Server, drop, ok, problem

USED = {"kind": "schedule", "count": 1, "examples": ["sch_1"]}


def test_a_dry_run_returns_what_depends_on_it(api: Server, client: Client) -> None:
    answer = {"deleted": False, "dependents": [USED], "freed_bytes": 4096}
    api.on("DELETE /v1/endpoints/render", ok(answer), ok({"deleted": True, "dependents": [], "freed_bytes": 4096}))
    found = client.endpoints.delete("render", dry_run=True)
    assert found == Deletion(deleted=False, dependents=(Dependent("schedule", 1, ("sch_1",)),), freed_bytes=4096)
    assert api.requests[-1].query == {"dry_run": "true"}
    assert client.endpoints.delete("render", force=True).deleted
    assert api.requests[-1].query == {"force": "true"}


def test_a_thing_that_is_needed_is_not_deleted(api: Server, client: Client) -> None:
    api.on("DELETE /v1/files/file_1", problem(409, "in_use", "2 jobs need it", dependents=[USED]))
    with pytest.raises(InUse, match="2 jobs need it") as caught:
        client.files.delete("file_1")
    assert isinstance(caught.value, Conflict)
    assert caught.value.dependents == (Dependent("schedule", 1, ("sch_1",)),)


def test_a_deletion_is_repeated_after_a_lost_connection(api: Server, client: Client) -> None:
    api.on("DELETE /v1/endpoints/render/versions/3", drop, ok({"deleted": True, "dependents": [], "freed_bytes": 1}))
    assert client.endpoints.delete_version("render", 3).freed_bytes == 1
    api.on("DELETE /v1/requirement-sets/set_7", ok({"deleted": True, "dependents": [], "freed_bytes": 0}))
    assert client.requirement_sets.delete("set_7").deleted


@pytest.mark.parametrize("lost", [drop, problem(503, "unavailable", "away"), problem(504, "x", "a proxy's")])
def test_a_retry_that_finds_nothing_to_delete_is_a_success(api: Server, client: Client, lost: Answer) -> None:
    missing = problem(404, "not_found", "no such thing")
    api.on("DELETE /v1/files/file_1", lost, missing)
    assert client.files.delete("file_1") == Deletion(deleted=True, dependents=(), freed_bytes=0)
    api.on("DELETE /v1/schedules/sch_1", lost, missing)
    client.schedules.delete("sch_1")
    api.on("DELETE /v1/secrets/KEY", lost, lost, missing)
    client.secrets.delete("KEY")
    assert len(api.requests) == 7


def test_what_was_never_there_is_not_found(api: Server, client: Client) -> None:
    missing = problem(404, "not_found", "no such thing")
    route = "DELETE /v1/files/file_1"
    api.on(route, missing)
    with pytest.raises(NotFound):
        client.files.delete("file_1")
    # The first try was refused, so it has deleted nothing.
    api.on(route, problem(429, "rate_limited", "slow down"), missing)
    with pytest.raises(NotFound):
        client.files.delete("file_1")
    # A dry run deletes nothing, nor does a reset of values.
    api.on(route, drop, missing)
    with pytest.raises(NotFound):
        client.files.delete("file_1", dry_run=True)
    api.on("DELETE /v1/endpoints/render/needs", drop, missing)
    with pytest.raises(NotFound):
        client.endpoints.forget_needs("render")


def test_a_token_is_created_once_whatever_happens_to_the_answer(api: Server, client: Client) -> None:
    api.on("POST /v1/tokens", drop)
    with pytest.raises(OSError, match="no response"):
        client.tokens.create("ci", roles=["deploy"])
    assert len(api.seen("POST /v1/tokens")) == 1
