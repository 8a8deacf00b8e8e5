# Generated from api/openapi.json by `make models`; do not edit.
"""The limits of the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from stokehold._generated.batches import (
    AtBudget,
    BudgetState,
)

if TYPE_CHECKING:
    from typing_extensions import Self


class BudgetUsage(TypedDict, total=False):
    """A daily budget and its use.

    spent_today_usd_micros: The cost of attempts that ended today, and of running ones as of a few seconds ago.
    state: The state of a budget: `warned` from 80 %.
    resumes_at: When jobs start again; None while they do, and if the budget is 0.
    """

    limit_usd_micros: int
    spent_today_usd_micros: int
    state: BudgetState
    resumes_at: str | None


class Usage(TypedDict, total=False):
    """The current usage.

    open: Jobs that have not ended.
    running: Jobs that are running.
    memory_bytes: Bytes of the queue's memory in use by jobs, including ended ones; tenants only.
    storage_bytes: Stored bytes, as of a minute ago; only for a tenant with a storage limit.
    """

    open: int
    running: int
    memory_bytes: int | None
    storage_bytes: int | None


class ShownLimits(TypedDict, total=False):
    """Limits, with the state of the budget.

    at_budget: What happens when the budget is reached.
    budget: The daily budget, if set.
    budget_usd_micros_per_day: The daily budget (UTC), micro-dollars.
    max_memory_bytes: Bytes of the queue's memory; tenants only.
    max_open: Jobs that have not ended.
    max_running: Jobs that run concurrently.
    max_storage_bytes: Bytes of files, packages and weights; tenants only.
    requests_per_minute: Requests per minute; tenants only.
    starts_per_minute: Starts per minute.
    weight: The share of the machines relative to other tenants; tenants only.
    """

    at_budget: AtBudget | None
    budget: BudgetUsage | None
    budget_usd_micros_per_day: int | None
    max_memory_bytes: int | None
    max_open: int | None
    max_running: int | None
    max_storage_bytes: int | None
    requests_per_minute: int | None
    starts_per_minute: int | None
    weight: float


class TenantLimits(TypedDict, total=False):
    """Limits.

    Absent or None: no limit.

    at_budget: What happens when the budget is reached. With `drain`, the default, nothing more starts before midnight;
        with `stop`, running jobs also return to the front of their queue and start again after midnight.
    budget_usd_micros_per_day: The daily budget (UTC) for running and loading, micro-dollars. Jobs that are already
        running when it is reached add to the cost.
    max_memory_bytes: Bytes of the queue's memory for the tenant's jobs, including ended ones until they move to the
        archive; a submit beyond this is refused with `quota_exceeded`, and lines of batches wait. Absent: no limit
        until 60 % of the memory is in use, then a fifth of it. Tenants only.
    max_open: Jobs that have not ended; a submit beyond this is refused with `quota_exceeded`.
    max_running: Jobs that run concurrently; 0 stops every start.
    max_storage_bytes: Bytes of uploaded files, packages and weights; an upload beyond this is refused with
        `storage_exceeded`. Tenants only.
    requests_per_minute: Requests per minute to each replica of the API; the burst is ten seconds' worth. Requests
        beyond this are refused with `rate_limited`. Tenants only.
    starts_per_minute: Starts per minute; the burst is one second's worth, at least one.
    weight: The share of the machines relative to other tenants, 0.01 to 1,000; default 1. Tenants only.
    """

    at_budget: AtBudget | None
    budget_usd_micros_per_day: int | None
    max_memory_bytes: int | None
    max_open: int | None
    max_running: int | None
    max_storage_bytes: int | None
    requests_per_minute: int | None
    starts_per_minute: int | None
    weight: float | None


class EndpointLimits(TypedDict, total=False):
    """Limits and their usage.

    limits: Limits. Absent or None: no limit.
    usage: The current usage.
    budget: The daily budget, if set.
    """

    limits: TenantLimits
    usage: Usage
    budget: BudgetUsage | None


@dataclass(frozen=True)
class Limits:
    """The limits of a tenant and its endpoints.

    limits: Limits. Absent or None: no limit.
    usage: The current usage.
    endpoints: Deployed endpoints, by name.
    budget: The daily budget, if set.
    """

    tenant: str
    limits: TenantLimits
    usage: Usage
    endpoints: Mapping[str, EndpointLimits]
    budget: BudgetUsage | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            tenant=raw["tenant"],
            limits=raw.get("limits") or TenantLimits(),
            usage=raw.get("usage") or Usage(),
            endpoints=dict(raw.get("endpoints") or {}),
            budget=raw.get("budget"),
        )
