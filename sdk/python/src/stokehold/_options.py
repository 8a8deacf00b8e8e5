"""The options of a job, a selection of jobs and a deploy: names are checked, values are converted for the API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stokehold._generated.options import DeployOptions, JobFilter, JobOptions
from stokehold._models import JobRecord
from stokehold._read import encode_time
from stokehold._references import depends_on
from stokehold.runner.policy import json_of

# The most jobs that one request retries or cancels.
SELECTED_JOBS_MAX = 1_000


__all__ = ["DeployOptions", "JobFilter", "JobOptions"]


def job_options(options: Mapping[str, Any], planned: Sequence[JobRecord] = ()) -> dict[str, Any]:
    """The given members of a submit. `planned` are jobs that are not sent yet and that a dependency may refer to."""
    members = given(options, JobOptions.__annotations__)
    if "run_after" in members:
        members["run_after"] = encode_time(members["run_after"])
    if "depends_on" in members:
        members["depends_on"] = depends_on(members["depends_on"], planned)
    return members


def job_filter(options: Mapping[str, Any]) -> dict[str, Any]:
    """The `filter` of a change to many jobs. An empty filter raises `ValueError`: it would select every job."""
    members = given(options, JobFilter.__annotations__)
    if not members:
        raise ValueError(f"no jobs selected; pass at least one of {', '.join(JobFilter.__annotations__)}")
    return members


def list_query(options: Mapping[str, Any], page_size: int, known: Iterable[str] | None = None) -> list[tuple[str, str]]:
    """The query of a listing."""
    members = given(options, JobFilter.__annotations__ if known is None else known)
    metadata = members.pop("metadata", {})
    query = [("limit", str(page_size))]
    query += [(name, str(value)) for name, value in members.items()]
    return query + [(f"metadata.{name}", value) for name, value in metadata.items()]


def given(options: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """The options that are neither None nor an empty mapping or list. Raises `TypeError` for an unknown name."""
    return {name: value for name, value in present(options, known).items() if value != {} and value != []}


def present(options: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """The options that are not None. Raises `TypeError` for an unknown name."""
    names = list(known)
    unknown = [name for name in options if name not in names]
    if unknown:
        raise TypeError(f"unexpected argument {unknown[0]!r}; the arguments are {', '.join(names)}")
    return {name: value for name, value in options.items() if value is not None}


def deploy_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The given options of a deploy. Those that are not given have the values of the handler."""
    members = present(options, DeployOptions.__annotations__)
    return {name: json_of(value) for name, value in members.items()}
