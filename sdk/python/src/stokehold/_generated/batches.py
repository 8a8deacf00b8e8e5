# Generated from api/openapi.json by `make models`; do not edit.
"""The batches of the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from stokehold._generated.costs import TokenUsage
from stokehold._generated.jobs import (
    Priority,
)
from stokehold._read import decode_time, optional, word

if TYPE_CHECKING:
    from typing_extensions import Self


BatchState = Literal["validating", "running", "finalizing", "completed", "failed", "cancelled", "expired"]
"""The state of a batch."""

OnInvalid = Literal["fail", "skip"]
"""What happens with invalid lines: none of the batch runs, or the others do."""

LineFormat = Literal["auto", "stokehold", "openai"]
"""The format of the lines of a batch; `auto` is detected per line."""

AtBudget = Literal["drain", "stop"]
"""What happens when a budget is reached."""

BudgetState = Literal["within", "warned", "reached"]
"""The state of a budget: `warned` from 80 %."""

EstimateUnknown = Literal["no_jobs", "no_price", "mixed"]
"""Why no estimate is possible: no job of the endpoint ended in the last seven days, its workers have no price, or
the lines are for several endpoints.
"""

BatchStopReason = Literal["cancelled", "expired", "budget"]
"""Why a batch stopped early."""


@dataclass(frozen=True)
class BatchCountsFields:
    """The number of lines in each state.

    At any moment: `accepted` = `total` - `invalid` = `succeeded` + `failed` + `cancelled` + `expired` + `open`.

    total: Lines read so far; grows while the batch validates.
    invalid: Invalid lines.
    accepted: Valid lines.
    succeeded: Lines whose job succeeded.
    failed: Lines whose job failed.
    cancelled: Lines whose job was cancelled.
    expired: Lines whose job expired.
    open: Valid lines that have not ended.
    running: Open lines that are running now.
    """

    total: int = 0
    invalid: int = 0
    accepted: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    expired: int = 0
    open: int = 0
    running: int = 0

    @classmethod
    def decode(cls, raw: Mapping[str, Any] | None) -> Self:
        raw = raw or {}
        return cls(
            total=raw.get("total") or 0,
            invalid=raw.get("invalid") or 0,
            accepted=raw.get("accepted") or 0,
            succeeded=raw.get("succeeded") or 0,
            failed=raw.get("failed") or 0,
            cancelled=raw.get("cancelled") or 0,
            expired=raw.get("expired") or 0,
            open=raw.get("open") or 0,
            running=raw.get("running") or 0,
        )


class InvalidLine(NamedTuple):
    """An invalid line.

    line: From 1.
    message: What is wrong with the line.
    """

    line: int
    message: str

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            line=raw["line"],
            message=raw.get("message") or "",
        )


@dataclass(frozen=True)
class BatchEstimate:
    """The estimated cost of lines, based on running and loading of jobs in the last seven days.

    usd_micros: The cost of all lines, micro-dollars.
    low_usd_micros: The low end of the likely range.
    high_usd_micros: The high end of the likely range.
    per_line_usd_micros: The average cost of one line.
    basis_jobs: The number of jobs behind the estimate; below 50, the range is half the estimate to each side.
    """

    usd_micros: int
    low_usd_micros: int
    high_usd_micros: int
    per_line_usd_micros: float
    basis_jobs: int

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            usd_micros=raw.get("usd_micros") or 0,
            low_usd_micros=raw.get("low_usd_micros") or 0,
            high_usd_micros=raw.get("high_usd_micros") or 0,
            per_line_usd_micros=raw.get("per_line_usd_micros") or 0.0,
            basis_jobs=raw.get("basis_jobs") or 0,
        )


class BatchFields:
    """A batch, with the members of the API. Members are decoded when they are read."""

    __slots__ = ("raw",)

    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw

    @property
    def id(self) -> str:
        """`batch_` and 32 lower-case hex digits; ids sort by creation time."""
        return str(self.raw["id"])

    @property
    def state(self) -> BatchState:
        """The state of the batch."""
        value: BatchState = self.raw["state"]
        return value

    @property
    def priority(self) -> Priority:
        """The priority of its jobs."""
        value: Priority = self.raw.get("priority") or "batch"
        return value

    @property
    def on_invalid(self) -> OnInvalid:
        """What happens with invalid lines."""
        value: OnInvalid = word(self.raw, "on_invalid")
        return value

    @property
    def format(self) -> LineFormat:
        """The format of its lines."""
        value: LineFormat = word(self.raw, "format")
        return value

    @property
    def metadata(self) -> dict[str, str]:
        """The caller's own labels."""
        return dict(self.raw.get("metadata") or {})

    @property
    def counts(self) -> BatchCountsFields:
        """The number of lines in each state."""
        return BatchCountsFields.decode(self.raw.get("counts"))

    @property
    def created_at(self) -> datetime | None:
        """When it was created."""
        return decode_time(self.raw.get("created_at"))

    @property
    def spent_usd_micros(self) -> int:
        """The cost of running and loading of all ended attempts so far, micro-dollars."""
        return int(self.raw.get("spent_usd_micros") or 0)

    @property
    def invalid_lines(self) -> list[InvalidLine]:
        """The first 20 invalid lines."""
        return [InvalidLine.decode(each) for each in self.raw.get("errors") or ()]

    @property
    def results_url(self) -> str:
        """The lines that have succeeded so far. Requires the same bearer token."""
        return str(self.raw.get("results_url") or "")

    @property
    def errors_url(self) -> str:
        """The lines that have ended without success so far. Requires the same bearer token."""
        return str(self.raw.get("errors_url") or "")

    @property
    def at_budget(self) -> AtBudget | None:
        """What happens when the budget is reached."""
        return self.raw.get("at_budget")

    @property
    def budget_state(self) -> BudgetState | None:
        """The state of the budget; None without a budget."""
        return self.raw.get("budget_state")

    @property
    def budget_usd_micros(self) -> int | None:
        """The budget of all lines together, micro-dollars."""
        return self.raw.get("budget_usd_micros")

    @property
    def deadline_at(self) -> datetime | None:
        """When lines that have not ended expire."""
        return decode_time(self.raw.get("deadline_at"))

    @property
    def ended_at(self) -> datetime | None:
        """When it ended; None until then."""
        return decode_time(self.raw.get("ended_at"))

    @property
    def endpoint(self) -> str:
        """The endpoint of lines that name none."""
        return str(self.raw.get("endpoint") or "")

    @property
    def estimate(self) -> BatchEstimate | None:
        """The estimated cost at the start; None before the start and if no estimate was possible."""
        return optional(BatchEstimate.decode, self.raw.get("estimate"))

    @property
    def estimate_error_pct(self) -> float | None:
        """By how many percent the cost of the lines that ran differs from the estimate, once the batch has ended."""
        return self.raw.get("estimate_error_pct")

    @property
    def estimate_unknown(self) -> EstimateUnknown | None:
        """Why there is no estimate."""
        return self.raw.get("estimate_unknown")

    @property
    def eta_at(self) -> datetime | None:
        """When the batch is expected to end at its current rate; None if not known."""
        return decode_time(self.raw.get("eta_at"))

    @property
    def rate_per_s(self) -> float | None:
        """Lines that ended per second over the last two minutes; None if not known."""
        return self.raw.get("rate_per_s")

    @property
    def retry_of(self) -> str | None:
        """The batch whose failed lines this batch retries."""
        return self.raw.get("retry_of")

    @property
    def started_at(self) -> datetime | None:
        """When the first line could start."""
        return decode_time(self.raw.get("started_at"))

    @property
    def stop_reason(self) -> BatchStopReason | None:
        """Why the batch stopped early: `cancelled`, `expired` or `budget`."""
        return self.raw.get("stop_reason")

    @property
    def usage(self) -> TokenUsage | None:
        """The tokens of all ended lines; absent without tokens."""
        return optional(TokenUsage.decode, self.raw.get("usage"))

    @property
    def version(self) -> int | None:
        """The version of that endpoint; None: the version that was current while the batch validated."""
        return self.raw.get("version")

    @property
    def webhook(self) -> str | None:
        """The URL that receives an event when the batch ends."""
        return self.raw.get("webhook")
