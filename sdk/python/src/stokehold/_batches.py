"""Batches: many jobs from one file of lines. Shared by both clients; does no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Callable, Literal, NamedTuple, TypedDict
from urllib.parse import quote

from stokehold._calls import POLL_S, encode_json, with_query
from stokehold._lines import Line, LineReader, Lines, spool
from stokehold._models import FileInfo, Priority, decode_time
from stokehold._options import given
from stokehold._request import Plan, Work
from stokehold._transfer import Body, OnProgress

if TYPE_CHECKING:
    from stokehold._api import Api

__all__ = ["BatchCounts", "BatchOptions", "BatchRecord", "BatchState", "InvalidLine", "Line", "Lines"]

BatchState = Literal["validating", "running", "finalizing", "completed", "failed", "cancelled", "expired"]

ENDED: frozenset[str] = frozenset({"completed", "failed", "cancelled", "expired"})

# Seconds between updates of a progress bar.
PROGRESS_POLL_S = 1

PATH = "/v1/batches"


class BatchOptions(TypedDict, total=False):
    """How a batch is run. An option that is missing or None has the default of the API.

    version: the version of the endpoint that the lines run on; default: the current version.
    format: "stokehold" lines are `{"custom_id", "input", "endpoint", "metadata"}`, of which only `input` is required;
        "openai" lines are those of OpenAI's batches. Default "auto": detected from the first line.
    priority: the priority of the jobs; default "batch".
    on_invalid: "fail" (default) runs no job if a line is invalid; "skip" runs the valid lines.
    deadline_s: seconds within which all jobs must have ended; the rest expire. 1 to 2,592,000, default none.
    timeout_s, max_attempts: of each job; default: those of the endpoint.
    budget_usd_micros: the most that all lines together may cost, in micro-dollars (millionths of a dollar); default no
        limit.
    at_budget: what to do when the budget is used up: "drain" (default) cancels jobs that have not started; "stop" also
        cancels running jobs.
    metadata: strings of your own, to find the batch by.
    webhook: an https URL that receives a signed request (see `verify_webhook`) when the batch has ended.
    """

    version: int | None
    format: Literal["auto", "stokehold", "openai"] | None
    priority: Priority | None
    on_invalid: Literal["fail", "skip"] | None
    deadline_s: int | None
    timeout_s: int | None
    max_attempts: int | None
    budget_usd_micros: int | None
    at_budget: Literal["drain", "stop"] | None
    metadata: Mapping[str, str] | None
    webhook: str | None
    webhook_events: Sequence[str] | None


@dataclass(frozen=True)
class BatchCounts:
    """The number of lines by state: `total - invalid = accepted = succeeded + failed + cancelled + expired + open`."""

    total: int = 0
    invalid: int = 0
    accepted: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    expired: int = 0
    open: int = 0
    running: int = 0

    @property
    def ended(self) -> int:
        """The number of lines whose jobs have ended, in any state."""
        return self.succeeded + self.failed + self.cancelled + self.expired

    @classmethod
    def decode(cls, raw: Mapping[str, Any] | None) -> BatchCounts:
        return cls(**{name: int((raw or {}).get(name) or 0) for name in cls.__dataclass_fields__})


class InvalidLine(NamedTuple):
    """An invalid line: its number, from 1, and what is wrong with it."""

    line: int
    message: str


class BatchRecord:
    """A batch in the state that the API last returned. Members are decoded when they are read."""

    __slots__ = ("raw",)

    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw

    @property
    def id(self) -> str:
        return str(self.raw["id"])

    @property
    def endpoint(self) -> str:
        return str(self.raw.get("endpoint") or "")

    @property
    def state(self) -> BatchState:
        state: BatchState = self.raw["state"]
        return state

    @property
    def is_terminal(self) -> bool:
        """Whether the batch has ended. An ended batch never changes its state."""
        return self.raw["state"] in ENDED

    @property
    def counts(self) -> BatchCounts:
        return BatchCounts.decode(self.raw.get("counts"))

    @property
    def priority(self) -> Priority:
        priority: Priority = self.raw.get("priority") or "batch"
        return priority

    @property
    def metadata(self) -> dict[str, str]:
        return dict(self.raw.get("metadata") or {})

    @property
    def invalid_lines(self) -> list[InvalidLine]:
        """The first 20 invalid lines; `errors()` returns all of them."""
        return [InvalidLine(raw["line"], raw["message"]) for raw in self.raw.get("errors") or ()]

    @property
    def created_at(self) -> datetime | None:
        return decode_time(self.raw.get("created_at"))

    @property
    def started_at(self) -> datetime | None:
        return decode_time(self.raw.get("started_at"))

    @property
    def ended_at(self) -> datetime | None:
        return decode_time(self.raw.get("ended_at"))

    @property
    def deadline_at(self) -> datetime | None:
        return decode_time(self.raw.get("deadline_at"))

    @property
    def eta_at(self) -> datetime | None:
        """The estimated end, at the current rate; None if it is not known."""
        return decode_time(self.raw.get("eta_at"))

    @property
    def rate_per_s(self) -> float | None:
        """The current rate, in jobs that end per second."""
        return self.raw.get("rate_per_s")

    @property
    def spent_usd_micros(self) -> int:
        """The cost so far of running and loading, in micro-dollars."""
        return int(self.raw.get("spent_usd_micros") or 0)

    @property
    def stop_reason(self) -> Literal["cancelled", "expired", "budget"] | None:
        """Why the batch stopped early; None while it runs and if it ran to its end."""
        return self.raw.get("stop_reason")

    @property
    def retry_of(self) -> str | None:
        """The id of the batch whose failed lines this batch retries."""
        return self.raw.get("retry_of")


def create(
    api: Api,
    endpoint: str,
    lines: Lines | None,
    input_file: FileInfo | str | None,
    input_key: str | None,
    options: Mapping[str, Any],
    idempotency_key: str | None,
    on_progress: OnProgress | None,
) -> Plan[BatchRecord]:
    """Creates a batch from lines, which are streamed, or from a file that exists already."""
    if sum(source is not None for source in (lines, input_file, input_key)) != 1:
        raise TypeError("pass exactly one of lines, input_file and input_key")
    members = {"endpoint": endpoint, **given(options, BatchOptions.__annotations__)}
    if lines is None:
        if isinstance(input_file, FileInfo):
            if input_file.id is None:
                raise ValueError(f"{input_file.name} is not an uploaded file; upload it first, or pass lines=...")
            input_file = input_file.id
        source = {"input_key": input_key} if input_file is None else {"input_file": input_file}
        reply = yield from api.post(PATH, encode_json({**members, **source}), idempotency_key)
        return BatchRecord(reply.json())
    path, is_temporary = yield from spool(api, lines)
    try:
        size_bytes: int = yield Work(lambda: path.stat().st_size)
        body = Body(path, size_bytes, on_progress)
        headers = {"Content-Type": "application/jsonl", "Content-Length": str(size_bytes)}
        reply = yield from api.post(with_query(PATH, _query(members)), body, idempotency_key, headers)
        return BatchRecord(reply.json())
    finally:
        if is_temporary:
            path.unlink(missing_ok=True)


def _query(members: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The options as query parameters, because the lines are the body. Metadata is `metadata.K`."""
    pairs: list[tuple[str, str]] = []
    for name, value in members.items():
        if name == "metadata":
            pairs += [(f"metadata.{key}", text) for key, text in value.items()]
        elif name == "webhook_events":
            pairs.append((name, ",".join(value)))
        else:
            pairs.append((name, str(value)))
    return pairs


def get(api: Api, batch_id: str) -> Plan[BatchRecord]:
    return BatchRecord((yield from api.get_json(batch_path(batch_id))))


def cancel(api: Api, batch_id: str) -> Plan[BatchRecord]:
    return BatchRecord((yield from api.post_json(f"{batch_path(batch_id)}/cancel")))


def retry_failed(api: Api, batch_id: str) -> Plan[BatchRecord]:
    return BatchRecord((yield from api.post_json(f"{batch_path(batch_id)}/retry-failed")))


def wait(
    api: Api, batch: BatchRecord, timeout_s: float | None, look: Callable[[BatchRecord], None] | None
) -> Plan[BatchRecord]:
    """Waits until the batch has ended. Calls `look` with it about once a second."""
    if look is None:
        raw = yield from api.wait_until_ended(batch_path(batch.id), batch.raw, ENDED, timeout_s, "batch", POLL_S)
        return BatchRecord(raw)
    show = look
    show(batch)
    raw = yield from api.wait_until_ended(
        batch_path(batch.id),
        batch.raw,
        ENDED,
        timeout_s,
        "batch",
        PROGRESS_POLL_S,
        lambda seen: show(BatchRecord(seen)),
    )
    return BatchRecord(raw)


def lines(api: Api, batch_id: str, member: Literal["results", "errors"]) -> LineReader:
    """The reader for one of the two files of a batch."""
    headers = {**api.headers, "Accept": "application/jsonl"}
    return LineReader(api.call("GET", f"{batch_path(batch_id)}/{member}", headers=headers), api.retry)


def batch_path(batch_id: str) -> str:
    return f"{PATH}/{quote(batch_id, safe='')}"
