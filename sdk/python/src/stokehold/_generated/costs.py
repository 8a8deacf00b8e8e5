# Generated from api/openapi.json by `make models`; do not edit.
"""The costs of the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from stokehold._read import optional, word

if TYPE_CHECKING:
    from typing_extensions import Self


CostsBy = Literal["endpoint", "tenant", "batch", "machine", "day", "job"]
"""What costs are grouped by."""


@dataclass(frozen=True)
class HostedCost:
    """What the same work would have cost at a service.

    ours_usd_micros: The cost here of the work for which the list has a price.
    """

    service: str
    usd_micros: int
    ours_usd_micros: int

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            service=raw.get("service") or "",
            usd_micros=raw.get("usd_micros") or 0,
            ours_usd_micros=raw.get("ours_usd_micros") or 0,
        )


@dataclass(frozen=True)
class Savings:
    """What the same work would have cost elsewhere.

    on_demand_usd_micros: The same instances for the same time without interruptible prices.
    hosted: The cost of running alone at hosted services, by the price list of this installation.
    """

    on_demand_usd_micros: int
    hosted: tuple[HostedCost, ...]

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            on_demand_usd_micros=raw.get("on_demand_usd_micros") or 0,
            hosted=tuple(HostedCost.decode(each) for each in raw.get("hosted") or ()),
        )


@dataclass(frozen=True)
class TokenUsage:
    """Tokens of language models, as the results of jobs report them.

    prompt_tokens: Tokens of the prompts, including the cached ones.
    cached_tokens: Tokens of the prompts that the engine had in its cache.
    completion_tokens: Tokens that the model wrote.
    """

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            prompt_tokens=raw.get("prompt_tokens") or 0,
            cached_tokens=raw.get("cached_tokens") or 0,
            completion_tokens=raw.get("completion_tokens") or 0,
        )


@dataclass(frozen=True)
class CostRow:
    """The cost of a row and its parts.

    The parts add up to the total.

    name: The row's display name.
    run_usd_micros: Instances while jobs ran.
    load_usd_micros: Instances while models were loaded for jobs.
    overhead_usd_micros: Everything except running and loading.
    jobs: Ended attempts.
    run_s: Total run time, seconds; a call shared by several jobs counts in equal parts.
    is_estimate: Whether a provider has not yet billed the final amount.
    boot_usd_micros: Instances while they started; absent by job.
    day: The UTC day, e.g. 2026-11-22.
    disk_usd_micros: Disks of other instances; absent by job.
    endpoint: `*`: several endpoints, of which there were too many on a day to list them separately.
    idle_usd_micros: Instances while they were idle; absent by job.
    per_1000_jobs_usd_micros: None without jobs.
    per_job_usd_micros: None without jobs.
    stopped_usd_micros: Disks of stopped instances; absent by job.
    traffic_usd_micros: Traffic in both directions; absent by job.
    usage: The tokens of the jobs that ended with a result; absent without tokens.
    usd_micros_per_million_tokens: The price of a million prompt and completion tokens: the cost of the endpoints with
        tokens, on the days on which they have some, divided by the tokens. None without tokens.
    """

    name: str
    run_usd_micros: int
    load_usd_micros: int
    overhead_usd_micros: int
    total_usd_micros: int
    jobs: int
    run_s: float
    is_estimate: bool
    batch_id: str | None = None
    boot_usd_micros: int | None = None
    day: str | None = None
    disk_usd_micros: int | None = None
    endpoint: str | None = None
    idle_usd_micros: int | None = None
    job_id: str | None = None
    machine: str | None = None
    per_1000_jobs_usd_micros: int | None = None
    per_job_usd_micros: int | None = None
    stopped_usd_micros: int | None = None
    tenant: str | None = None
    traffic_usd_micros: int | None = None
    usage: TokenUsage | None = None
    usd_micros_per_million_tokens: int | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            name=raw.get("name") or "",
            run_usd_micros=raw.get("run_usd_micros") or 0,
            load_usd_micros=raw.get("load_usd_micros") or 0,
            overhead_usd_micros=raw.get("overhead_usd_micros") or 0,
            total_usd_micros=raw.get("total_usd_micros") or 0,
            jobs=raw.get("jobs") or 0,
            run_s=raw.get("run_s") or 0.0,
            is_estimate=bool(raw.get("is_estimate")),
            batch_id=raw.get("batch_id"),
            boot_usd_micros=raw.get("boot_usd_micros"),
            day=raw.get("day"),
            disk_usd_micros=raw.get("disk_usd_micros"),
            endpoint=raw.get("endpoint"),
            idle_usd_micros=raw.get("idle_usd_micros"),
            job_id=raw.get("job_id"),
            machine=raw.get("machine"),
            per_1000_jobs_usd_micros=raw.get("per_1000_jobs_usd_micros"),
            per_job_usd_micros=raw.get("per_job_usd_micros"),
            stopped_usd_micros=raw.get("stopped_usd_micros"),
            tenant=raw.get("tenant"),
            traffic_usd_micros=raw.get("traffic_usd_micros"),
            usage=optional(TokenUsage.decode, raw.get("usage")),
            usd_micros_per_million_tokens=raw.get("usd_micros_per_million_tokens"),
        )


@dataclass(frozen=True)
class Costs:
    """The costs of a range of days and their parts.

    by: What costs are grouped by.
    from_day: The first day, UTC.
    to_day: The last day.
    rows: The most expensive row first; days and jobs by time.
    left_off: Rows beyond the limit; the total includes them.
    total: The total of all rows. With `by=job`, the total of all jobs of those days, listed or not.
    idle_share: The share of the total spent on idle instances, 0 to 1.
    savings: What the same work would have cost elsewhere.
    """

    by: CostsBy
    from_day: str
    to_day: str
    rows: tuple[CostRow, ...]
    left_off: int
    total: CostRow
    idle_share: float
    savings: Savings

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            by=word(raw, "by"),
            from_day=raw.get("from") or "",
            to_day=raw.get("to") or "",
            rows=tuple(CostRow.decode(each) for each in raw.get("rows") or ()),
            left_off=raw.get("left_off") or 0,
            total=CostRow.decode(raw.get("total") or {}),
            idle_share=raw.get("idle_share") or 0.0,
            savings=Savings.decode(raw.get("savings") or {}),
        )
