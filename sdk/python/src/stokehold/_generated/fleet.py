# Generated from api/openapi.json by `make models`; do not edit.
"""The fleet of the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from stokehold._generated.endpoints import (
    EndpointRequirements,
)
from stokehold._generated.jobs import (
    Priority,
    Waiting,
)
from stokehold._read import decode_time, word

if TYPE_CHECKING:
    from typing_extensions import Self


DecisionAction = Literal["rent", "resume", "drain", "undrain", "stop", "release"]
"""What the autoscaler does with an instance."""

MachineState = Literal["booting", "ready", "draining", "stopped", "resuming", "lost", "ending"]
"""The state of an instance."""


@dataclass(frozen=True)
class FleetDecision:
    """A decision of the autoscaler about an instance.

    at: When it was made.
    action: `rent`, `resume`, `drain`, `undrain`, `stop` or `release`.
    reason: The reason.
    failure: Why the action failed; None if it did not.
    machine: The instance, once there is one.
    """

    at: datetime | None
    action: DecisionAction
    reason: str
    failure: str | None = None
    machine: str | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            at=decode_time(raw.get("at")),
            action=word(raw, "action"),
            reason=raw.get("reason") or "",
            failure=raw.get("failure"),
            machine=raw.get("machine"),
        )


@dataclass(frozen=True)
class FleetNotice:
    """A notice for the operator.

    kind: The subject, e.g. `max_usd_per_hour` or `provider_unreachable vast`.
    text: The notice, with what to do.
    since: Since when it applies.
    """

    kind: str
    text: str
    since: datetime | None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            kind=raw.get("kind") or "",
            text=raw.get("text") or "",
            since=decode_time(raw.get("since")),
        )


@dataclass(frozen=True)
class Machine:
    """An instance.

    id: The autoscaler's id of the instance; for a worker that it did not start, the worker's name.
    provider: The provider; `joined`: an operator started the worker, and the autoscaler does not manage it.
    kind: The GPU model, or `CPU`.
    host: The physical host, if the provider names it.
    state: The state of an instance.
    since: Since when it is in this state.
    rented_at: Since when it is paid for.
    usd_micros_per_hour: The cost per hour in its current state; 0 for an owned machine.
    is_interruptible: Whether the provider may interrupt it for a higher bid.
    cards: The number of GPUs; 0 computes on the CPU.
    vram_class_gib: The memory class of the smallest GPU.
    slots: Attempts that it runs concurrently.
    running: Attempts that it is running now.
    loaded: Loaded models, as `tenant/name@version`.
    on_disk: Endpoints that it has loaded since it was rented, as `tenant/name`: their files are on its disk.
    idle_since: Since when it runs no attempt; None while it does and before it is ready.
    worker_id: Its worker, once it has joined.
    """

    id: str
    provider: str
    kind: str
    host: str
    state: MachineState
    since: datetime | None
    rented_at: datetime | None
    usd_micros_per_hour: int
    is_interruptible: bool
    cards: int
    vram_class_gib: int
    slots: int
    running: int
    loaded: tuple[str, ...]
    on_disk: tuple[str, ...]
    idle_since: datetime | None = None
    worker_id: str | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            id=raw["id"],
            provider=raw.get("provider") or "",
            kind=raw.get("kind") or "",
            host=raw.get("host") or "",
            state=raw["state"],
            since=decode_time(raw.get("since")),
            rented_at=decode_time(raw.get("rented_at")),
            usd_micros_per_hour=raw.get("usd_micros_per_hour") or 0,
            is_interruptible=bool(raw.get("is_interruptible")),
            cards=raw.get("cards") or 0,
            vram_class_gib=raw.get("vram_class_gib") or 0,
            slots=raw.get("slots") or 0,
            running=raw.get("running") or 0,
            loaded=tuple(raw.get("loaded") or ()),
            on_disk=tuple(raw.get("on_disk") or ()),
            idle_since=decode_time(raw.get("idle_since")),
            worker_id=raw.get("worker_id"),
        )


@dataclass(frozen=True)
class Fleet:
    """Every instance, by id.

    usd_micros_per_hour: The current cost of all instances together.
    notices: Notices for the operator: what the autoscaler cannot see, or holds back.
    decisions: The latest decisions and their reasons, newest first.
    autoscaler_at: When the autoscaler last reported its status; None if there was no report.
    """

    usd_micros_per_hour: int
    machines: tuple[Machine, ...]
    notices: tuple[FleetNotice, ...]
    decisions: tuple[FleetDecision, ...]
    autoscaler_at: datetime | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            usd_micros_per_hour=raw.get("usd_micros_per_hour") or 0,
            machines=tuple(Machine.decode(each) for each in raw.get("machines") or ()),
            notices=tuple(FleetNotice.decode(each) for each in raw.get("notices") or ()),
            decisions=tuple(FleetDecision.decode(each) for each in raw.get("decisions") or ()),
            autoscaler_at=decode_time(raw.get("autoscaler_at")),
        )


@dataclass(frozen=True)
class WaitingByPriority:
    """Jobs that waited only for a worker."""

    interactive: int
    standard: int
    batch: int

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            interactive=raw.get("interactive") or 0,
            standard=raw.get("standard") or 0,
            batch=raw.get("batch") or 0,
        )


@dataclass(frozen=True)
class Lane:
    """The ready jobs of one endpoint, at one priority, for one GPU class.

    priority: The priority of a job.
    vram_class_gib: The GPU memory class; 0 is the CPU.
    demands: The endpoint's other requirements for workers; empty if it has none.
    jobs: The number of jobs.
    waiting: Why a job has not started.
    eta_s: When they are expected to be done, as estimated by the autoscaler from current and coming instances. None if
        no autoscaler runs, or if nothing that could run them exists or is coming.
    oldest_at: Since when the first of them is ready; None if all wait for their concurrency key.
    """

    tenant: str
    endpoint: str
    priority: Priority
    vram_class_gib: int
    demands: EndpointRequirements
    jobs: int
    waiting: Waiting
    eta_s: int | None = None
    oldest_at: datetime | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            tenant=raw["tenant"],
            endpoint=raw.get("endpoint") or "",
            priority=word(raw, "priority"),
            vram_class_gib=raw.get("vram_class_gib") or 0,
            demands=EndpointRequirements.decode(raw.get("demands") or {}),
            jobs=raw.get("jobs") or 0,
            waiting=Waiting.decode(raw.get("waiting") or {}),
            eta_s=raw.get("eta_s"),
            oldest_at=decode_time(raw.get("oldest_at")),
        )


@dataclass(frozen=True)
class GpuReading:
    """A reading of a GPU; None is what it does not report.

    vram_held_mib: Reserved by models.
    """

    index: int
    vram_held_mib: int
    power_w: int | None = None
    temperature_c: int | None = None
    utilisation_pct: int | None = None
    vram_used_mib: int | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            index=raw.get("index") or 0,
            vram_held_mib=raw.get("vram_held_mib") or 0,
            power_w=raw.get("power_w"),
            temperature_c=raw.get("temperature_c"),
            utilisation_pct=raw.get("utilisation_pct"),
            vram_used_mib=raw.get("vram_used_mib"),
        )


@dataclass(frozen=True)
class Reading:
    """A reading of a worker.

    at: RFC 3339.
    running: Attempts that were running.
    received_bytes: Bytes since the machine started, over all interfaces except loopback.
    """

    at: datetime | None
    running: int
    gpus: tuple[GpuReading, ...]
    memory_free_bytes: int
    disk_free_bytes: int
    received_bytes: int
    sent_bytes: int

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            at=decode_time(raw.get("at")),
            running=raw.get("running") or 0,
            gpus=tuple(GpuReading.decode(each) for each in raw.get("gpus") or ()),
            memory_free_bytes=raw.get("memory_free_bytes") or 0,
            disk_free_bytes=raw.get("disk_free_bytes") or 0,
            received_bytes=raw.get("received_bytes") or 0,
            sent_bytes=raw.get("sent_bytes") or 0,
        )


@dataclass(frozen=True)
class Evicted:
    """An evicted worker.

    name: The name that its operator gave it.
    requeued: The number of its jobs that were requeued.
    join_token_revoked: Whether that token was revoked.
    join_token: The id of the token that it joined with; None if it is not known.
    """

    id: str
    name: str
    requeued: int
    join_token_revoked: bool
    join_token: str | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            id=raw["id"],
            name=raw.get("name") or "",
            requeued=raw.get("requeued") or 0,
            join_token_revoked=bool(raw.get("join_token_revoked")),
            join_token=raw.get("join_token"),
        )


@dataclass(frozen=True)
class RedisMemory:
    """The memory and the replicas of Redis.

    memory_used_bytes: Memory in use.
    memory_max_bytes: The `maxmemory` setting; 0 without a limit.
    replicas: Replicas in sync.
    """

    memory_used_bytes: int
    memory_max_bytes: int
    replicas: int

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            memory_used_bytes=raw.get("memory_used_bytes") or 0,
            memory_max_bytes=raw.get("memory_max_bytes") or 0,
            replicas=raw.get("replicas") or 0,
        )


@dataclass(frozen=True)
class Admission:
    """Whether new work is accepted.

    Accepted work continues in any case.

    open: Whether new work is accepted.
    reason: The reason for refusing new work.
    """

    open: bool
    reason: str | None = None

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            open=bool(raw.get("open")),
            reason=raw.get("reason"),
        )


@dataclass(frozen=True)
class Health:
    """The health of this replica.

    status: `ok`.
    durability: What an accepted job survives: `strict` (a power cut), `standard` (any crash of a process) or
        `ephemeral` (nothing).
    replicas_to_wait: The number of Redis replicas that hold a job, or its end, before it is acknowledged.
    admission: Whether new work is accepted, as of the last second; with several shards, on all of them.
    redis: The state of Redis, as of the last second; with several shards, the fullest one.
    release: This API's release.
    """

    status: str
    durability: str
    replicas_to_wait: int
    admission: Admission
    redis: RedisMemory
    release: str

    @classmethod
    def decode(cls, raw: Mapping[str, Any]) -> Self:
        return cls(
            status=raw.get("status") or "",
            durability=raw.get("durability") or "",
            replicas_to_wait=raw.get("replicas_to_wait") or 0,
            admission=Admission.decode(raw.get("admission") or {}),
            redis=RedisMemory.decode(raw.get("redis") or {}),
            release=raw.get("release") or "",
        )
