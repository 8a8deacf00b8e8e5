"""The reference pages: a table for each object that a user sees."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from generate.schema import Document, Field, Type

WIDTH = 100
HEADER = "<!-- Generated from api/openapi.json by `make models`; do not edit. -->"

_TYPES = {"any": "any JSON"}
_OBJECTS = {"DependencyRequest": 'the id of a job, or `{"job": "<id>", "on": "completion"}`'}


@dataclass(frozen=True)
class Page:
    """A page: the requests and the objects that it describes. The first schema is that of the page."""

    file: str
    title: str
    text: str
    requests: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()

    def headings(self) -> tuple[str, ...]:
        return (*self.requests, *self.objects)


PAGES = (
    Page(
        "job",
        "The job",
        "For developers of applications: what the API returns for a job. Times are RFC 3339 in UTC. Members that are "
        "not always there are null or absent.",
        objects=(
            "Job",
            "Attempt",
            "Timing",
            "JobError",
            "Progress",
            "Waiting",
            "JobCost",
            "TokenUsage",
            "Dependency",
            "StepRun",
        ),
    ),
    Page(
        "submit-options",
        "Options of a job",
        "For developers of applications: what a submit accepts, the body of `POST /v1/jobs`. The SDKs have the same "
        "options; in TypeScript, `timeout_s` is `timeoutS`. Only `endpoint` and `input` are required.",
        requests=("SubmitRequest",),
    ),
    Page(
        "endpoint-options",
        "Options of an endpoint",
        "For authors of models: what a deploy accepts, the body of `POST /v1/endpoints`. `stoke deploy` and the SDKs "
        "take the package, the entry and the schemas from the folder that is deployed. The options of `@endpoint` have "
        "the same names; there, the requirements for workers are options like the others.",
        requests=("DeployRequest", "Requirements", "Step", "RetryPolicy", "Weight", "Runner"),
    ),
    Page(
        "batch",
        "The batch",
        "For developers of applications: what `POST /v1/batches` accepts, and what the API returns for a batch. Times "
        "are RFC 3339 in UTC.",
        requests=("BatchRequest",),
        objects=("Batch", "BatchCounts", "Estimate", "BatchLineError"),
    ),
    Page(
        "schedule",
        "The schedule",
        "For developers of applications: what `POST /v1/schedules` accepts, and what the API returns for a schedule. "
        "Times are RFC 3339 in UTC.",
        requests=("ScheduleRequest",),
        objects=("Schedule",),
    ),
)


def pages(document: Document) -> dict[str, str]:
    """The text of each page, by its file."""
    homes = {schema: page for page in PAGES for schema in page.headings()}
    return {page.file: _page(document, page, homes) for page in PAGES}


def _page(document: Document, page: Page, homes: dict[str, Page]) -> str:
    parts = [f"# {page.title}", HEADER, _wrapped(page.text)]
    for schema in page.headings():
        found = document.object(schema)
        fields = list(found.fields)
        table = _request(fields, page, homes) if schema in page.requests else _object(fields, page, homes)
        parts += [f"## {schema}", _wrapped(found.doc), table]
    return "\n\n".join(parts) + "\n"


def _request(fields: Sequence[Field], page: Page, homes: dict[str, Page]) -> str:
    rows = []
    for one in fields:
        default = "required" if one.is_required else one.default_text()
        rows.append((f"`{one.name}`", _type(one.type, page, homes), one.bounds(), default, one.meaning()))
    return _table(("Field", "Type", "Bounds", "Default", "Meaning"), rows)


def _object(fields: Sequence[Field], page: Page, homes: dict[str, Page]) -> str:
    rows = []
    for one in fields:
        found = _type(one.type, page, homes) + (" or null" if one.is_nullable else "")
        rows.append((f"`{one.name}`", found, one.doc))
    return _table(("Field", "Type", "Meaning"), rows)


def _type(type_: Type, page: Page, homes: dict[str, Page]) -> str:
    if type_.kind == "words":
        return ", ".join(f"`{word}`" for word in type_.words)
    if type_.kind == "object":
        home = homes.get(type_.ref)
        if home is None:
            return _OBJECTS.get(type_.ref, "object")
        return f"[{type_.ref}]({'' if home is page else home.file + '.md'}#{type_.ref.lower()})"
    if type_.kind in ("list", "map") and type_.item is not None:
        item = _type(type_.item, page, homes)
        return f"list: {item}" if type_.kind == "list" else f"object of {item} values"
    return _TYPES.get(type_.kind, type_.kind)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([_cell(text) for text in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", text)


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(text, WIDTH, break_on_hyphens=False, break_long_words=False))
