# Generated from api/openapi.json by `make models`; do not edit.
"""The stats of the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from stokehold._generated.batches import (
    BatchEstimate,
    EstimateUnknown,
)
from stokehold._read import optional

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Need:
    """The GPU memory that a version was seen to need on one GPU model.

    need_mib: The memory, MiB.
    gpu: The GPU model, as the driver reports it; absent for the minimum on any GPU, learned when the version ran out of
        memory on a smaller one.
    """

    version: int
    need_mib: int
    gpu: str | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            version=raw.get("version") or 0,
            need_mib=raw.get("need_mib") or 0,
            gpu=raw.get("gpu"),
        )


@dataclass(frozen=True)
class Quantiles:
    """The median and the 95th percentile. Runs that did not need a part count as 0."""

    p50: int
    p95: int

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            p50=raw.get("p50") or 0,
            p95=raw.get("p95") or 0,
        )


@dataclass(frozen=True)
class TimingStats:
    """Where the time of successful runs went, milliseconds; within 5 %.

    boot_ms: The median and the 95th percentile. Runs that did not need a part count as 0.
    env_ms: The median and the 95th percentile. Runs that did not need a part count as 0.
    load_ms: The median and the 95th percentile. Runs that did not need a part count as 0.
    queue_ms: From ready to leased.
    run_ms: The median and the 95th percentile. Runs that did not need a part count as 0.
    total_ms: From ready to ended.
    upload_ms: The median and the 95th percentile. Runs that did not need a part count as 0.
    warmup_ms: The median and the 95th percentile. Runs that did not need a part count as 0.
    weights_ms: The median and the 95th percentile. Runs that did not need a part count as 0.
    """

    boot_ms: Quantiles | None = None
    env_ms: Quantiles | None = None
    load_ms: Quantiles | None = None
    queue_ms: Quantiles | None = None
    run_ms: Quantiles | None = None
    total_ms: Quantiles | None = None
    upload_ms: Quantiles | None = None
    warmup_ms: Quantiles | None = None
    weights_ms: Quantiles | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            boot_ms=optional(Quantiles.decode, raw.get("boot_ms")),
            env_ms=optional(Quantiles.decode, raw.get("env_ms")),
            load_ms=optional(Quantiles.decode, raw.get("load_ms")),
            queue_ms=optional(Quantiles.decode, raw.get("queue_ms")),
            run_ms=optional(Quantiles.decode, raw.get("run_ms")),
            total_ms=optional(Quantiles.decode, raw.get("total_ms")),
            upload_ms=optional(Quantiles.decode, raw.get("upload_ms")),
            warmup_ms=optional(Quantiles.decode, raw.get("warmup_ms")),
            weights_ms=optional(Quantiles.decode, raw.get("weights_ms")),
        )


@dataclass(frozen=True)
class VersionStats:
    """The statistics of a version.

    None where there is no data.

    runs: Attempts that ended by themselves.
    succeeded: Attempts that produced a result.
    timing: Where the time of successful runs went, milliseconds; within 5 %.
    task_failed: Results that were not accepted.
    task_succeeded: Accepted results, by the feedback on this version since it was deployed.
    usd_micros_per_1000: The cost of running and loading per 1,000 runs, at the instances' prices; `GET /v1/costs` has
        the other costs.
    """

    version: int
    runs: int
    succeeded: int
    failed: int
    timing: TimingStats
    task_failed: int | None = None
    task_succeeded: int | None = None
    usd_micros_per_1000: int | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            version=raw.get("version") or 0,
            runs=raw.get("runs") or 0,
            succeeded=raw.get("succeeded") or 0,
            failed=raw.get("failed") or 0,
            timing=TimingStats.decode(raw.get("timing") or {}),
            task_failed=raw.get("task_failed"),
            task_succeeded=raw.get("task_succeeded"),
            usd_micros_per_1000=raw.get("usd_micros_per_1000"),
        )


@dataclass(frozen=True)
class LinesEstimate:
    """The estimated cost of the lines.

    lines: The number of lines.
    estimate: None if no estimate is possible.
    estimate_unknown: Why no estimate is possible.
    """

    lines: int
    estimate: BatchEstimate | None = None
    estimate_unknown: EstimateUnknown | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            lines=raw.get("lines") or 0,
            estimate=optional(BatchEstimate.decode, raw.get("estimate")),
            estimate_unknown=raw.get("estimate_unknown"),
        )


class Trace(TypedDict, total=False):
    """A trace as OTLP/JSON (<https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>).

    Ids are hex digits; times are nanoseconds since 1970, as text.

    resourceSpans: One entry, with the job's spans grouped by service.
    """

    resourceSpans: list[dict[str, Any]]
