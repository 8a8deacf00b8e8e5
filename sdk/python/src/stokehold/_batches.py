"""Batches: many jobs from one file of lines. Shared by both clients; does no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Callable, Literal
from urllib.parse import quote

from stokehold._calls import POLL_S, encode_json, with_query
from stokehold._generated.batches import BatchCountsFields, BatchEstimate, BatchFields, BatchState, InvalidLine
from stokehold._generated.options import BatchOptions
from stokehold._lines import Line, LineReader, Lines, spool
from stokehold._models import FileInfo
from stokehold._options import given
from stokehold._request import Plan, Work
from stokehold._transfer import Body, OnProgress

if TYPE_CHECKING:
    from stokehold._api import Api

__all__ = ["BatchCounts", "BatchEstimate", "BatchOptions", "BatchRecord", "BatchState", "InvalidLine", "Line", "Lines"]

ENDED: frozenset[str] = frozenset({"completed", "failed", "cancelled", "expired"})

# Seconds between updates of a progress bar.
PROGRESS_POLL_S = 1

PATH = "/v1/batches"


class BatchCounts(BatchCountsFields):
    """The number of lines by state: `total - invalid = accepted = succeeded + failed + cancelled + expired + open`."""

    @property
    def ended(self) -> int:
        """The number of lines whose jobs have ended, in any state."""
        return self.succeeded + self.failed + self.cancelled + self.expired


class BatchRecord(BatchFields):
    """A batch in the state that the API last returned. Members are decoded when they are read."""

    __slots__ = ()

    @property
    def is_terminal(self) -> bool:
        """Whether the batch has ended. An ended batch never changes its state."""
        return self.raw["state"] in ENDED

    @property
    def counts(self) -> BatchCounts:
        """The number of lines in each state."""
        return BatchCounts.decode(self.raw.get("counts"))


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
