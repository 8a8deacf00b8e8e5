"""Deletion: what it answers, and what prevents it."""

from __future__ import annotations

import pytest

from stokehold import Client, Conflict, InUse
from stokehold.types import Deletion, Dependent

from .conftest import Server, drop, ok, problem

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


def test_a_token_is_created_once_whatever_happens_to_the_answer(api: Server, client: Client) -> None:
    api.on("POST /v1/tokens", drop)
    with pytest.raises(OSError, match="no response"):
        client.tokens.create("ci", roles=["deploy"])
    assert len(api.seen("POST /v1/tokens")) == 1
